"""Request -> prefix key: which part of a request decides its home.

Native API: the first PrefixLength bytes of the raw body. OpenAI API: the first PrefixLength characters (code points)
of the text of ``messages``, string contents and text parts alike, joined in order with nothing between, so a content
given as one string or as parts has one key. Roles, message borders, images and every other member stay out
(docs/adr/0003). The isolation id is hashed with its length in front, so id and prefix cannot run together.
"""

import json
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from xxhash import xxh3_64_intdigest

ISOLATION_CHARACTERS_MAX = 1024
"""Longest ``prompt_cache_key`` taken. OpenAI documents no limit; a key longer than this is refused, never cut."""

PREFIX_LENGTH_MAX = 65_536

_BOM = b"\xef\xbb\xbf"


class BadChat(ValueError):
    """The body is no chat request. ``param`` is the member at fault, or None for the body as a whole."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class Chat(Struct, frozen=True):
    """What routing needs of a chat completions body."""

    text: str
    """The first PREFIX_LENGTH_MAX characters of the messages' text."""
    isolation: str | None
    stream: bool
    model: object
    """As sent, of any type; UNSET when absent."""


class _Part(Struct):
    type: str = ""
    text: str | None = None


class _Message(Struct):
    content: str | list[_Part] | None = None


class _Body(Struct):
    messages: list[_Message] | UnsetType = UNSET
    model: str | UnsetType = UNSET
    stream: bool | None = None
    prompt_cache_key: str | None = None


_typed = msgspec.json.Decoder(_Body)


def native_key(body: bytes, prefix_length: int, isolation: bytes | None) -> int | None:
    """Return the 64-bit key of an invocation, or None when body and isolation id are both empty."""
    if isolation is None:
        return xxh3_64_intdigest(b"n" + body[:prefix_length]) if body else None
    return xxh3_64_intdigest(b"N%d:%b%b" % (len(isolation), isolation, body[:prefix_length]))


def chat_key(chat: Chat, prefix_length: int) -> int | None:
    """Return the 64-bit key of a chat request, or None when it has neither text nor an isolation id."""
    text = chat.text[:prefix_length].encode("utf-8", "surrogatepass")
    if chat.isolation is None:
        return xxh3_64_intdigest(b"c" + text) if text else None
    isolation = chat.isolation.encode()
    return xxh3_64_intdigest(b"C%d:%b%b" % (len(isolation), isolation, text))


def read_chat(body: bytes) -> Chat:
    """Parse a chat body once. Raises BadChat.

    Strict where routing depends on it (an object, ``messages`` a list, ``prompt_cache_key`` a string); everything else
    is the host's to judge.
    """
    if body.startswith(_BOM):
        body = body[3:]
    try:
        if not body.isascii():
            str(body, "utf-8")
        typed = _typed.decode(body)
    except msgspec.ValidationError:
        return _read_loosely(body)
    except UnicodeDecodeError as error:
        raise BadChat(f"the body is not UTF-8: byte {error.start} does not belong") from None
    except (msgspec.DecodeError, RecursionError):
        return _read_loosely(body)
    if typed.messages is UNSET:
        raise BadChat("messages is required: a list of messages", "messages")
    pieces: list[str] = []
    room = PREFIX_LENGTH_MAX
    for message in typed.messages:
        content = message.content
        if isinstance(content, str):
            pieces.append(content[:room])
            room -= len(content)
        elif content:
            for part in content:
                if part.type == "text" and part.text:
                    pieces.append(part.text[:room])
                    room -= len(part.text)
                    if room <= 0:
                        break
        if room <= 0:
            break
    text = pieces[0] if len(pieces) == 1 else "".join(pieces)
    return Chat(text, _isolation(typed.prompt_cache_key), typed.stream is True, typed.model)


def _read_loosely(body: bytes) -> Chat:
    """Read a body of unusual types, or one that only lenient readers take (NaN, lone surrogates): the host may."""
    try:
        # As text: of bytes, the reader would take UTF-16 and UTF-32, too. Of integers, thousands of digits are refused.
        loose = json.loads(body.decode(), parse_int=float)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadChat(f"the body is not JSON: {reason}") from None
    if not isinstance(loose, dict):
        raise BadChat("the body must be a JSON object")
    messages = loose.get("messages")
    if not isinstance(messages, list):
        raise BadChat("messages is required: a list of messages", "messages")
    text = "".join(_texts(messages))[:PREFIX_LENGTH_MAX]
    return Chat(text, _isolation(loose.get("prompt_cache_key")), loose.get("stream") is True, loose.get("model"))


def _texts(messages: list[Any]) -> list[str]:
    contents = [message.get("content") for message in messages if isinstance(message, dict)]
    texts: list[str] = []
    for content in contents:
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(parts, list):
            continue
        for part in parts:
            if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
                texts.append(part["text"])
    return texts


def _isolation(value: object) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise BadChat("prompt_cache_key must be a string", "prompt_cache_key")
    if len(value) > ISOLATION_CHARACTERS_MAX:
        raise BadChat(
            f"prompt_cache_key must have at most {ISOLATION_CHARACTERS_MAX} characters, it has {len(value)}",
            "prompt_cache_key",
        )
    if not _is_text(value):
        raise BadChat("prompt_cache_key must not hold lone surrogates", "prompt_cache_key")
    return value


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True

"""A line of a log -> Entry: bodies of the native API, bodies of chat completions, message texts, or a Mooncake trace.

A body is either a JSON string, which holds its exact bytes, or any other JSON value as it stands in the line. Lines may
wrap it in an object; options name the members then.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from dataplane.routing.prefix_key import PREFIX_LENGTH_MAX, BadChat, Chat, read_chat
from simulator.tokens import render_chat
from warmroute.advise import mooncake
from warmroute.advise.entry import BadLine, Entry, tokens_of

FORMS = ("native", "chat", "text", "mooncake")
ISOLATION_CHARACTERS_MAX = 64
"""Of X-Amzn-SageMaker-Prefix-Aware-Id (announcement of prefix-aware routing)."""
_MILLISECONDS_FROM = 1e11
"""A number this large is no time in seconds: it would be after the year 5000."""
_TIME_MAX = 1e15


@dataclass(frozen=True, slots=True)
class Members:
    """Where a line's object has what: names, with dots into inner objects. None: the line is the body itself."""

    body: str | None = None
    time: str | None = None
    isolation: str | None = None


class Reader:
    """Reads lines of one form."""

    def __init__(self, form: str, members: Members, output_tokens: int) -> None:
        """``form`` is one of FORMS; ``output_tokens`` is taken for the answers, which a log of bodies does not show."""
        self.form = form
        self._members = members
        self._output_tokens = output_tokens

    def read(self, line: bytes) -> Entry:
        """Return the request of one line. Raises BadLine."""
        if self.form == "mooncake":
            return mooncake.read(line)
        body, at, isolation = unwrap(line, self._members)
        if self.form == "text":
            return self._text(_string(body), at)
        return self._body(_bytes(body), at, isolation)

    def _text(self, text: str, at: float | None) -> Entry:
        tokens, blocks = tokens_of(text.encode("utf-8", "surrogatepass"))
        return Entry(tokens, self._output_tokens, blocks, chat=Chat(text[:PREFIX_LENGTH_MAX], None, False, None), at=at)

    def _body(self, body: bytes, at: float | None, isolation: bytes | None) -> Entry:
        chat = None
        if self.form == "chat":
            try:
                chat = read_chat(body)
            except BadChat as error:
                raise BadLine(f"no chat completions body: {error}") from None
        found = _loose(body)
        members: Mapping[str, Any] = found if isinstance(found, dict) else {}
        salt = members.get("cache_salt")
        tokens, blocks = tokens_of(prompt_of(body, members), salt if isinstance(salt, str) else "")
        return Entry(tokens, self._output(members), blocks, body, chat, isolation, at)

    def _output(self, members: Mapping[str, Any]) -> int:
        inner = members.get("parameters")
        inner = inner if isinstance(inner, dict) else {}
        limits = [members.get("max_completion_tokens"), members.get("max_tokens"), members.get("max_new_tokens"),
                  inner.get("max_new_tokens"), inner.get("max_tokens")]  # fmt: skip
        return min([self._output_tokens, *(one for one in limits if type(one) is int and one > 0)])


def detect(line: bytes, members: Members) -> str:
    """Return the form of a log by its first line. Raises BadLine."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    if isinstance(found, dict) and "hash_ids" in found and members == Members():
        return "mooncake"
    body = unwrap(line, Members(members.body))[0]
    value = _loose(body)
    if isinstance(value, str):
        inner = _loose(value.encode("utf-8", "surrogatepass"))
        if not isinstance(inner, dict):
            return "text"
        value = inner
    return "chat" if isinstance(value, dict) and isinstance(value.get("messages"), list) else "native"


def unwrap(line: bytes, members: Members) -> tuple[bytes, float | None, bytes | None]:
    """Return (body as JSON, time, isolation id) of a line. Raises BadLine."""
    body = line if members.body is None else bytes(_member(line, members.body))
    if members.body is None and not _is_json(line):
        raise BadLine("not JSON")
    at = None if members.time is None else time_of(_member(line, members.time), members.time)
    if members.isolation is None:
        return body, at, None
    isolation = _loose(_member(line, members.isolation, b"null"))
    if isolation is None or isolation == "":
        return body, at, None
    if not isinstance(isolation, str) or not isolation.isascii() or len(isolation) > ISOLATION_CHARACTERS_MAX:
        raise BadLine(f"{members.isolation} is no string of at most {ISOLATION_CHARACTERS_MAX} ASCII characters")
    return body, at, isolation.encode()


def time_of(value: bytes, name: str) -> float:
    """Return seconds from a number of seconds or milliseconds, or an ISO 8601 string (UTC unless it says)."""
    found = _loose(value)
    if isinstance(found, str):
        try:
            moment = datetime.fromisoformat(found)
        except ValueError:
            raise BadLine(f"{name} is not an ISO 8601 time") from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < _TIME_MAX:
        raise BadLine(f"{name} is neither a number of seconds or milliseconds nor an ISO 8601 time")
    return found / 1000 if found >= _MILLISECONDS_FROM else float(found)


def prompt_of(body: bytes, members: Mapping[str, Any]) -> bytes:
    """Return what the model reads of a body: its messages, its ``inputs`` or ``prompt``, or all of it."""
    messages = members.get("messages")
    if isinstance(messages, list):
        try:
            return render_chat(messages)
        except (KeyError, TypeError, AttributeError, AssertionError, UnicodeEncodeError):
            return body
    for name in ("inputs", "prompt"):
        if isinstance(text := members.get(name), str) and text:
            return text.encode("utf-8", "surrogatepass")
    return body


def _member(line: bytes, path: str, default: bytes | None = None) -> bytes:
    """Return the JSON of a member as it stands in the line."""
    value = msgspec.Raw(line)
    for name in path.split("."):
        try:
            inner = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
        except msgspec.ValidationError:
            raise BadLine(f"there is no object that could have the member {path}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BadLine("not JSON") from None
        if name not in inner:
            if default is not None:
                return default
            raise BadLine(f"the member {path} is missing")
        value = inner[name]
    return bytes(value)


def _string(value: bytes) -> str:
    found = _loose(value)
    if not isinstance(found, str):
        raise BadLine("a message text must be a JSON string")
    return found


def _bytes(value: bytes) -> bytes:
    """Return the exact bytes of a body: a string's content, or the JSON as it stands."""
    if not value.startswith(b'"'):
        return value
    found = _loose(value)
    assert isinstance(found, str), "unwrap() lets nothing else through"
    return found.encode("utf-8", "surrogatepass")


def _loose(value: bytes) -> Any:
    """Return a JSON value, lone surrogates and NaN included; None where it is none."""
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _is_json(value: bytes) -> bool:
    return value.strip() == b"null" or _loose(value) is not None

"""The part ``keys``: prefix keys, against a slow plain reading of the rules they are made by.

The reference says what a key stands for. Two requests have one key exactly when it says the same of both; a body that
it calls no chat request is refused, and no other.
"""

import json
import random
from collections.abc import Sequence

from dataplane.routing.prefix_key import ISOLATION_CHARACTERS_MAX, BadChat, chat_key, native_key, read_chat
from tests.fuzz.report import Finding

Meaning = tuple[str | bytes | None, str | bytes] | None
"""What a key stands for: the isolation id and the prefix; None: no key."""

_TEXTS = ("", "a", "b", "ab", "system ", "you are a helpful assistant", "\u00e9", "e\u0301", "\u4e2d\u6587",
          "\U0001f600", "\x00", "\n", '"', "\\", "\ud83d", "\ude00", "x" * 40, "1:", "C1:a",
          "</s>", "\ufeff")  # fmt: skip
_IDS = (
    "",
    "a",
    "b",
    "ab",
    "1",
    "1:",
    "k" * ISOLATION_CHARACTERS_MAX,
    "k" * (ISOLATION_CHARACTERS_MAX + 1),
    "\u00e9",
    "\ud83d",
)
_ODD: tuple[object, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    1.5,
    1e308,
    2**70,
    "",
    "x",
    [],
    {},
    [[]],
    {"a": []},
    float("nan"),
    float("inf"),
)
_ODD_PARTS: tuple[object, ...] = ({"type": "image_url"}, {"type": "refusal", "text": "n"}, {"text": "n"})
_PIECES = (
    b"NaN", b"-Infinity", b"9" * 5_000, b"1e999999", b"[" * 1_500, b"{" * 9, b'{"a":' * 1_500, b"]", b"}", b'"', b"\\",
    b"\\u0000", b"\\ud83d", b"\x00", b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xf4\x90\x80\x80", b",",
    b":", b"null", b"\x1f", b"//", b"\xe2\x80\xa8", b'"messages":[],', b'"messages":1,',
    b'"prompt_cache_key":"z",', b"\t", b"\x0b",
)  # fmt: skip


def run(dice: random.Random) -> None:
    """Run one case. Raises Finding."""
    if dice.random() < 0.3:
        _check_native(dice)
    else:
        _check_chat(dice)


# --- native ----------------------------------------------------------------------------------------------------------


def native_meaning(body: bytes, length: int, isolation: bytes | None) -> Meaning:
    """Return what the key of an invocation stands for."""
    kept = bytes(body[at] for at in range(min(length, len(body))))
    return None if not body and isolation is None else (isolation, kept)


def _check_native(dice: random.Random) -> None:
    length = dice.choice((1, 2, 8, 1024, 65_536))
    made: list[tuple[bytes, bytes | None]] = []
    words = (b"", b"a", b"b", b"ab", b"1:", b"N1:a", b"n", b"\x00", b"\xff", b"x" * 1023, b"x" * 1024, b"x" * 65_536)
    for _ in range(4):
        body = b"".join(dice.choice(words) for _ in range(dice.randrange(4)))
        made.append((body, dice.choice((None, b"a", b"b", b"1", b"1:", b"ab", b"k" * 64))))
    found = [(native_key(*_native(one, length)), native_meaning(*_native(one, length))) for one in made]
    _compare(found, [repr(one)[:300] for one in made], length)


def _native(one: tuple[bytes, bytes | None], length: int) -> tuple[bytes, int, bytes | None]:
    return one[0], length, one[1]


# --- chat ------------------------------------------------------------------------------------------------------------


class _Number:
    """A number, however long."""

    def __init__(self, digits: str) -> None: ...


class NoChat(ValueError):
    """The reference calls the body no chat request."""


def chat_meaning(body: bytes, length: int) -> Meaning:
    """Return what the key of a chat request stands for. Raises NoChat."""
    if body[:3] == b"\xef\xbb\xbf":
        body = body[3:]
    try:
        document = json.loads(body.decode("utf-8"), parse_int=_Number, parse_float=_Number)
    except (ValueError, RecursionError) as error:
        raise NoChat(str(error)) from None
    if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
        raise NoChat("no list of messages in an object")
    text = ""
    for message in document["messages"]:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            text += content
        elif isinstance(content, list):
            for part in content:
                if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
                    text += part["text"]
    isolation = document.get("prompt_cache_key")
    if isolation in (None, ""):
        isolation = None
    elif not isinstance(isolation, str):
        raise NoChat("an id that is no text")
    elif len(isolation) > ISOLATION_CHARACTERS_MAX or any("\ud800" <= letter <= "\udfff" for letter in isolation):
        raise NoChat("an id that is too long or half")
    prefix = text[: min(length, 65_536)]
    return None if isolation is None and not prefix else (isolation, prefix)


def _check_chat(dice: random.Random) -> None:
    length = dice.choice((1, 2, 5, 1024, 65_536))
    text = "".join(dice.choice(_TEXTS) for _ in range(dice.randrange(5)))
    bodies = [_body(dice, text) for _ in range(2)] + [
        _body(dice, text + dice.choice(_TEXTS)),
        _body(dice, dice.choice(_TEXTS)),
    ]
    bodies = [_spoilt(dice, body) if dice.random() < 0.3 else body for body in bodies]
    found = []
    for body in bodies:
        refused: str | None = None
        key: int | None = None
        try:
            key = chat_key(read_chat(body), length)
        except BadChat as bad:
            refused = str(bad)
        try:
            meaning = chat_meaning(body, length)
        except NoChat as no:
            if refused is None:
                raise Finding(f"taken, and is no chat request ({no}): {body[:500]!r}") from None
            continue
        if refused is not None:
            if "nested too deeply" in refused and max(body.count(b"["), body.count(b"{")) > 400:
                continue
            raise Finding(f"refused ({refused}), and is a chat request: {body[:500]!r}")
        found.append((key, meaning, body))
    _compare([(key, meaning) for key, meaning, _ in found], [repr(body)[:500] for *_, body in found], length)


def _body(dice: random.Random, text: str) -> bytes:
    """Return a chat body with this text, in one of the many ways to write it."""
    messages: list[object] = []
    rest = text
    while rest:
        size = dice.choice((1, 3, 10, 1_000))
        piece, rest = rest[:size], rest[size:]
        content: str | list[object] = piece
        if dice.random() < 0.5:
            content = [{"type": "text", "text": piece}]
            if dice.random() < 0.3:
                content.insert(dice.randrange(2), dice.choice((*_ODD, *_ODD_PARTS)))
        messages.append({"role": dice.choice(("system", "user", "assistant", None)), "content": content})
        if dice.random() < 0.1:
            messages.append(
                dice.choice((*_ODD, {"role": "tool"}, {"content": None}, {"content": dice.choice(_ODD[:9])}))
            )
    members: dict[str, object] = {"messages": messages if dice.random() < 0.97 else dice.choice(_ODD)}
    for name in ("model", "stream", "temperature", "tools", "seed"):
        if dice.random() < 0.2:
            members[name] = dice.choice(_ODD)
    if dice.random() < 0.3:
        members["prompt_cache_key"] = dice.choice((*_IDS, *_IDS, *_ODD))
    names = list(members)
    dice.shuffle(names)
    is_ascii = dice.random() < 0.5
    written = json.dumps(
        {name: members[name] for name in names}, ensure_ascii=is_ascii, indent=dice.choice((None, None, 2))
    )
    return (b"\xef\xbb\xbf" if dice.random() < 0.05 else b"") + written.encode("utf-8", "surrogatepass")


def _spoilt(dice: random.Random, body: bytes) -> bytes:
    choice = dice.random()
    at = dice.randrange(len(body) + 1)
    if choice < 0.4:
        return body[:at] + dice.choice(_PIECES) + body[at:]
    if choice < 0.6:
        return body[:at] + bytes([dice.randrange(256)]) + body[at + 1 :]
    if choice < 0.7:
        return body[:at]
    if choice < 0.8:
        return body.decode("utf-8", "replace").encode(dice.choice(("utf-16", "utf-16-le", "utf-32-be", "utf-7")))
    return body.replace(
        b"{",
        b"{" + dice.choice((b'"messages":[{"content":"old"}],', b'"content":"old",', b'"stream":1,', b'"x":NaN,')),
        1,
    )


def _compare(found: Sequence[tuple[int | None, Meaning]], shown: Sequence[str], length: int) -> None:
    for one, (key, meaning) in enumerate(found):
        if (key is None) != (meaning is None):
            raise Finding(f"the key is {key} of what stands for {str(meaning)[:200]}: {shown[one]}, length {length}")
        for other, (key_other, meaning_other) in enumerate(found[:one]):
            if (key == key_other) != (meaning == meaning_other):
                raise Finding(f"length {length}: keys {key}, {key_other} of\n{shown[one]}\nand\n{shown[other]}")

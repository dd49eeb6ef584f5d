"""A short piece of the fuzzing of keys and parsers with each run of the tests."""

import pytest

from dataplane.routing import prefix_key
from tests.fuzz import __main__ as command
from tests.fuzz import keys, parsers
from tests.fuzz.report import Finding
from tests.fuzz.test_front import PIECES, piecewise, run_many


@piecewise
def test_prefix_keys(piece: int) -> None:
    for number in range(piece, 75_000, PIECES):
        assert not command.case("keys", keys.run, 1, number)


@piecewise
def test_parsers(piece: int) -> None:
    for number in range(piece, 300_000, PIECES):
        assert not command.case("parsers", parsers.run, 1, number)


@pytest.mark.parametrize(
    ("body", "meaning"),
    [
        (b'{"messages":[{"content":"ab"},{"content":[{"type":"text","text":"c"}]}]}', (None, "abc")),
        (b'{"messages":[{"content":"abcdef"}],"prompt_cache_key":"k"}', ("k", "abcde")),
        (b'\xef\xbb\xbf{"messages":[{"content":5}],"n":NaN}', None),
        (b'{"messages":[],"messages":[{"content":"\\ud83d"}]}', (None, "\ud83d")),
    ],
)
def test_the_reference(body: bytes, meaning: keys.Meaning) -> None:
    assert keys.chat_meaning(body, 5) == meaning


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"messages":1}', b'{"messages":[],"prompt_cache_key":5}', b"\xff"])
def test_the_reference_refuses(body: bytes) -> None:
    with pytest.raises(keys.NoChat):
        keys.chat_meaning(body, 5)


@pytest.mark.parametrize("broken", ["cut", "bytes"])
def test_a_key_of_something_else_is_found(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzing itself can fail: a key that leaves the last character out, and one that counts bytes."""
    made = prefix_key.chat_key

    def key(chat: prefix_key.Chat, length: int) -> int | None:
        if broken == "cut":
            return made(chat, length - 1)
        text = chat.text.encode("utf-8", "surrogatepass")[:length].decode("utf-8", "replace")
        return made(prefix_key.Chat(text, chat.isolation, chat.stream, chat.model), length)

    monkeypatch.setattr(keys, "chat_key", key)
    with pytest.raises(Finding, match="key"):
        run_many(keys.run)

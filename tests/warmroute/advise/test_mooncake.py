import json
from typing import Any

import pytest

from dataplane.routing.prefix_key import Chat, chat_key
from tests.warmroute.advise.logs import trace_lines
from warmroute.advise import mooncake
from warmroute.advise.entry import BadLine

LINE: dict[str, Any] = {"timestamp": 2500, "input_length": 1100, "output_length": 7, "hash_ids": [0, 9, 4]}


def read(**changes: Any) -> Any:
    return mooncake.read(json.dumps(LINE | changes).encode())


def test_a_line_becomes_a_request_with_its_times_sizes_and_blocks() -> None:
    entry = read()
    assert (entry.at, entry.prompt_tokens, entry.output_tokens) == (2.5, 1100, 7)
    assert list(entry.blocks) == [*range(32), *range(9 * 32, 10 * 32), *range(4 * 32, 4 * 32 + 4)]
    assert read(output_length=0).output_tokens == 1


def test_keys_part_where_ids_do() -> None:
    """Four characters to a token: block 0 ends at 2,048, block 1 at 4,096."""
    one, other = read(hash_ids=[0, 9, 4]), read(hash_ids=[0, 9, 5])
    third = read(hash_ids=[0, 8, 4])
    assert one.key(2048) == other.key(2048) == third.key(2048)
    assert one.key(4096) == other.key(4096) != third.key(4096)
    assert one.key(4112) != other.key(4112)
    text = mooncake.text_of([0, 9, 4], 1100)
    assert len(text) == 4400
    assert one.key(4100) == chat_key(Chat(text, None, False, None), 4100)


def test_a_text_is_no_longer_than_a_key_can_see() -> None:
    assert len(mooncake.text_of(list(range(100)), 51_200)) == 65_536
    assert len(mooncake.text_of([10**15 - 1, 1], 1024)) == 4096


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hash_ids": [0]}, "hash_ids has 1 ids, and input_length 1100 means 3 blocks of 512 tokens"),
        ({"hash_ids": ["a"]}, r"Expected `int`, got `str` - at `\$.hash_ids"),
        ({"hash_ids": []}, "length >= 1"),
        ({"timestamp": "x"}, r"\$.timestamp"),
        ({"timestamp": -1}, r"\$.timestamp"),
        ({"input_length": 0}, r"\$.input_length"),
    ],
)
def test_a_line_that_is_none_says_what_is_wrong(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        read(**changes)


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"timestamp": 1}', b"\xff"])
def test_other_lines_are_refused(line: bytes) -> None:
    with pytest.raises(BadLine):
        mooncake.read(line)


def test_made_up_traces_are_of_the_form() -> None:
    assert all(mooncake.read(line.encode()) for line in trace_lines(20))

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmroute.advise.spool import Kept, Spool


def kept(number: int, keys: int = 2) -> Kept:
    return Kept(100 + number, 5, [number + place for place in range(keys)], array("Q", [2**64 - 1 - number] * number))


@given(st.integers(1, 20), st.integers(0, 60))
def test_the_last_requests_are_kept_whatever_their_number(most: int, count: int) -> None:
    with Spool(most) as spool:
        for number in range(count):
            spool.add(float(number), kept(number))
        last = list(range(count))[-most:]
        assert spool.times() == last
        assert len(spool) < most + 2 * -(-most // 4)
        back = list(spool.read(range(len(last)), 2))
    assert [(one.prompt_tokens, list(one.keys), one.blocks) for one in back] == [
        (100 + number, [number, number + 1], array("Q", [2**64 - 1 - number] * number)) for number in last
    ]


def test_requests_come_back_in_any_order_and_as_often_as_asked() -> None:
    with Spool(10) as spool:
        for number in range(5):
            spool.add(None, kept(number, keys=0 if number == 3 else 2))
        for _ in range(2):
            assert [one.prompt_tokens for one in spool.read([4, 0, 3], 2)] == [104, 100, 103]
        assert [list(one.keys) for one in spool.read([3, 4], 2)] == [[], [4, 5]]
        assert spool.times() == [None] * 5


def test_nothing_stays_on_the_disk() -> None:
    with Spool(4) as spool:
        for number in range(30):
            spool.add(0.0, kept(number))
        files = [file for file, _ in spool._parts]
        assert len(files) <= 5
    assert all(file.closed for file in files)
    with pytest.raises(ValueError, match="closed"):
        next(spool.read([0], 2))

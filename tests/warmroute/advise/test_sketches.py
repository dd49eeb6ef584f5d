import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmroute.advise.sketches import Groups, Largest

KEYS = st.lists(st.integers(0, 40).map(lambda number: number * 0x5851F42D4C957F2D % 2**64), max_size=300)


@given(KEYS)
def test_few_groups_are_counted_exactly(keys: list[int]) -> None:
    groups, counts = Groups(), Counter(keys)
    for key in keys:
        groups.add(key)
    assert groups.is_exact
    assert groups.number == len(counts)
    assert groups.largest_share == max(counts.values(), default=0) / max(1, len(keys))
    assert groups.alone == sum(count == 1 for count in counts.values()) / max(1, len(counts))


def test_many_groups_are_estimated_in_bounded_memory() -> None:
    dice = random.Random(2)
    names = [dice.getrandbits(64) for _ in range(20_000)]
    groups = Groups(kept=2_048)
    for _ in range(3):
        for name in names:
            groups.add(name)
    for _ in range(20_000):
        groups.add(names[7])
    assert not groups.is_exact
    assert len(groups._counts) <= 2_048
    assert groups.number == pytest.approx(20_000, rel=0.1)
    assert groups.alone == 0
    assert groups.largest_share == pytest.approx(20_003 / 80_000, abs=1 / 1_024)


@given(KEYS, st.integers(1, 20), st.integers(0, 100))
def test_the_largest_count_is_never_too_high_and_too_low_by_the_bound_at_most(
    keys: list[int], kept: int, first: int
) -> None:
    """Also when what came first was counted exactly."""
    largest = Largest.of(dict(Counter(keys[:first])), kept)
    for key in keys[first:]:
        largest.add(key)
    most = max(Counter(keys).values(), default=0)
    assert len(largest._counts) <= kept
    assert most - len(keys) / (kept + 1) <= largest.most <= most

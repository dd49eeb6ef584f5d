from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.routing.variant import choose_variant


@dataclass(frozen=True)
class Weighted:
    name: str
    weight: float


def variants(*weights: float) -> list[Weighted]:
    return [Weighted(f"v{number}", weight) for number, weight in enumerate(weights)]


def chosen(weights: list[float], dice: float, target: str | None = None) -> str | None:
    found = choose_variant(variants(*weights), target, dice)
    return found.name if found else None


weights_of_many = st.lists(st.just(0.0) | st.floats(0.001, 1e6), min_size=1, max_size=6)
dice = st.floats(0, 1, exclude_max=True)


@given(weights_of_many, dice)
def test_a_weight_of_zero_gets_no_traffic(weights: list[float], throw: float) -> None:
    name = chosen(weights, throw)
    if any(weights):
        assert name is not None
        assert weights[int(name[1:])] > 0
    else:
        assert name is None


@given(weights_of_many, st.data())
def test_a_target_beats_weights(weights: list[float], data: st.DataObject) -> None:
    """Zero included: that is how a variant is tried before it gets traffic."""
    name = f"v{data.draw(st.integers(0, len(weights) - 1))}"
    assert chosen(weights, data.draw(dice), name) == name


def test_an_unknown_target_is_none() -> None:
    assert chosen([1, 1], 0.5, "v2") is None
    assert chosen([1, 1], 0.5, "") is None


@pytest.mark.parametrize("weights", [[1.0, 1.0], [3.0, 1.0], [0.0, 2.0, 0.0, 6.0], [1e-3, 1e3], [1.0]])
def test_shares_are_weights_over_their_sum(weights: list[float]) -> None:
    throws = 20_000
    found = Counter(chosen(weights, (throw + 0.5) / throws) for throw in range(throws))
    for number, weight in enumerate(weights):
        assert found[f"v{number}"] == pytest.approx(throws * weight / sum(weights), abs=1)


def test_the_highest_throw_still_finds_one() -> None:
    """Sums of floats may fall short of their parts."""
    weights = [0.1] * 10 + [0.0]
    assert chosen(weights, 1 - 2**-53) == "v9"

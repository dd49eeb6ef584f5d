from hypothesis import given
from hypothesis import strategies as st

from contract.routing_table import Instance, Strategy, Variant
from dataplane.routing.candidates import candidates
from dataplane.routing.routes import VariantRoutes

COUNT = 12
VARIANT = VariantRoutes(
    Variant(
        "v", 1.0, tuple(Instance(f"h{n}", n, f"http://h{n}:1") for n in range(COUNT)), Strategy.PREFIX_AWARE, 1024, 1
    )
)
ALL = VARIANT.numbers
subsets = st.sets(st.integers(0, COUNT - 1))


def names(numbers: set[int]) -> set[str]:
    return {f"h{number}" for number in numbers}


@given(st.permutations(ALL), subsets, subsets)
def test_set_aside_instances_are_asked_only_when_all_are(order: list[int], tried: set[int], out: set[int]) -> None:
    found = candidates(VARIANT, tuple(order), tried, names(out))
    untried = [number for number in order if number not in tried]
    healthy = [number for number in untried if number not in out]
    assert list(found) == (healthy or untried)


@given(st.permutations(ALL), st.integers(1, COUNT - 1), subsets, subsets)
def test_of_the_first_ranks_none_that_is_set_aside_is_asked(
    order: list[int], ranks: int, tried: set[int], out: set[int]
) -> None:
    """There may be healthy ones further down."""
    found = candidates(VARIANT, tuple(order[:ranks]), tried, names(out))
    assert list(found) == [number for number in order[:ranks] if number not in tried | out]


def test_a_healthy_fleet_costs_nothing() -> None:
    assert candidates(VARIANT, ALL, (), set()) is ALL

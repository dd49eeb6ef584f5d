import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.overflow import rules
from benchmarks.overflow.fleet import Load, Size, draw, simulate
from benchmarks.overflow.grid import PROFILE
from benchmarks.overflow.rules import (
    IN_FORCE,
    OVERFLOW,
    SATURATED,
    compose,
    keeps_constraints,
    meets_load,
    rule_of,
    twelve_at_once,
)
from benchmarks.overflow.tables import COLLAPSED
from dataplane.routing.admission import Outcome, pick

counts = st.lists(st.integers(0, 200), min_size=2, max_size=9)
thresholds = st.integers(1, 220)
dice = st.integers(0, 2**30)
ALL = [rule_of(overflow, saturated) for overflow in OVERFLOW for saturated in SATURATED]


@given(counts, thresholds, dice)
def test_the_rule_named_in_force_is_the_products(counts: list[int], threshold: int, dice: int) -> None:
    overflow, saturated = IN_FORCE
    assert compose(OVERFLOW[overflow], SATURATED[saturated])(counts, threshold, dice) == pick(counts, threshold)
    assert rule_of(*IN_FORCE) is rules.in_force
    assert rules.in_force(counts, threshold, dice) == pick(counts, threshold)


@given(counts, thresholds, dice, st.sampled_from(ALL))
def test_a_rule_passes_the_threshold_only_when_all_are_at_it(
    counts: list[int], threshold: int, dice: int, rule: rules.Rule
) -> None:
    rank, outcome = rule(counts, threshold, dice)
    assert (counts[rank] < threshold) == (min(counts) < threshold)
    assert (outcome is Outcome.HOME) == (counts[0] < threshold)
    assert (outcome is Outcome.ALL_SATURATED) == (min(counts) >= threshold)
    assert outcome is not Outcome.HOME or rank == 0


@given(
    counts,
    st.sampled_from(["bounded 1.25", "mix 1.1", "home 1.25, else least loaded", "home 1.25, else first at the mean"]),
)
def test_bounded_rules_keep_their_bound(counts: list[int], name: str) -> None:
    share = 1.1 if name == "mix 1.1" else 1.25
    assert counts[SATURATED[name](counts)] <= share * sum(counts) / len(counts) + 1e-9


@given(counts)
def test_home_keeps_what_is_within_its_bound(counts: list[int]) -> None:
    least, mean = rules.home_else_least(counts), rules.home_else_mean(counts)
    if 4 * counts[0] * len(counts) <= 5 * sum(counts):
        assert least == mean == 0
    else:
        assert counts[least] == min(counts)
        assert counts[mean] * len(counts) <= sum(counts)
        assert all(count * len(counts) > sum(counts) for count in counts[:mean])


@given(counts, dice)
def test_random_free_reaches_every_free_rank(counts: list[int], dice: int) -> None:
    free = list(range(len(counts)))
    assert {rules.random_free(counts, free, dice + step) for step in free} == set(free)


# --- what any rule in force must keep ---------------------------------------------------------------------------------


def test_the_rule_in_force_keeps_the_constraints() -> None:
    assert keeps_constraints(rules.in_force)


def test_twelve_at_once_end_level() -> None:
    after = twelve_at_once(rules.in_force)
    assert sum(after) == 12
    assert max(after) - min(after) <= 2


@pytest.mark.parametrize("dice", range(12))
def test_overflow_goes_to_the_lighter_of_two_others(dice: int) -> None:
    # Home and next at the threshold of 2, one of the others has one request and one has none.
    assert rules.in_force([2, 2, 1, 0], 2, dice)[0] == 3
    assert rules.in_force([2, 2, 0, 1], 2, dice)[0] == 2


def test_the_constraints_tell_rules_apart() -> None:
    assert twelve_at_once(rule_of(IN_FORCE[0], "home")) == [8, 2, 2]
    assert not keeps_constraints(rule_of(IN_FORCE[0], "home"))
    assert not meets_load(rule_of("first free rank", IN_FORCE[1]))
    assert not meets_load(rule_of("random free", IN_FORCE[1]))


@pytest.mark.parametrize("skew", [0.0, 1.4])
def test_a_saturated_fleet_does_not_collapse(skew: float) -> None:
    size = Size(prefixes=350, requests=2_400, warm_up=1_200)
    workload = draw(Load(skew, 36.0), size, 1)
    kept = simulate(rules.in_force, workload, 4, size, PROFILE)
    best = max(simulate(rule_of(IN_FORCE[0], name), workload, 4, size, PROFILE).hit_rate for name in SATURATED)
    assert kept.saturated > 0.9
    assert kept.hit_rate >= COLLAPSED * best
    if not skew:
        cold = simulate(rule_of(IN_FORCE[0], "least loaded"), workload, 4, size, PROFILE)
        assert cold.hit_rate < COLLAPSED * best, "this load no longer tells a collapse"

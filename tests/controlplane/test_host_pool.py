"""Assignment of hosts against a brute force that tries everything."""

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from controlplane.host_pool import assign

VARIANTS = "abc"


@st.composite
def problems(draw: st.DrawFn) -> tuple[dict[str, int], dict[int, str], dict[str, list[list[int]]]]:
    names = VARIANTS[: draw(st.integers(1, 3))]
    hosts = list(range(draw(st.integers(0, 5))))
    tiers = {}
    for name in names:
        options = draw(st.permutations(hosts))[: draw(st.integers(0, len(hosts)))]
        cut = draw(st.integers(0, len(options)))
        tiers[name] = [list(options[:cut]), list(options[cut:])]
    held = {}
    for host in hosts:
        holders = [name for name in names if host in tiers[name][0] + tiers[name][1]]
        if holders and draw(st.booleans()):
            held[host] = draw(st.sampled_from(holders))
    needs = {name: draw(st.integers(0, 4)) for name in names}
    return needs, held, tiers


def met(needs: dict[str, int], owner: dict[int, str | None]) -> int:
    counts = Counter(name for name in owner.values() if name)
    return sum(min(counts[name], need) for name, need in needs.items())


@given(problems())
def test_every_host_goes_to_one_that_may_have_it_and_none_held_is_lost(
    problem: tuple[dict[str, int], dict[int, str], dict[str, list[list[int]]]],
) -> None:
    needs, held, tiers = problem
    owner = assign(needs, held, tiers)
    assert held.keys() <= owner.keys()
    for host, name in owner.items():
        assert host in tiers[name][0] + tiers[name][1]
    before, after = Counter(held.values()), Counter(owner.values())
    for name in needs:
        assert after[name] <= max(needs[name], before[name])


@given(problems())
def test_as_many_needs_are_met_as_any_assignment_meets(
    problem: tuple[dict[str, int], dict[int, str], dict[str, list[list[int]]]],
) -> None:
    needs, held, tiers = problem
    # What is held beyond a need stays where it is unless another needs it; brute force may move it as well.
    hosts = sorted({host for each in tiers.values() for tier in each for host in tier})
    choices = [[None, *(name for name in needs if host in tiers[name][0] + tiers[name][1])] for host in hosts]
    best = max((met(needs, dict(zip(hosts, pick, strict=True))) for pick in product(*choices)), default=0)
    surplus = any(count > needs[name] for name, count in Counter(held.values()).items())
    found = met(needs, dict(assign(needs, held, tiers)))
    assert found == best or surplus


def test_better_tiers_come_first_and_order_is_kept() -> None:
    assert assign({"a": 2}, {}, {"a": [[7], [3, 5]]}) == {7: "a", 3: "a"}


def test_a_host_moves_on_where_that_meets_another_need() -> None:
    assert assign({"a": 1, "b": 1}, {}, {"a": [[1, 2]], "b": [[1]]}) == {1: "b", 2: "a"}


def test_a_held_host_moves_on_too() -> None:
    assert assign({"a": 1, "b": 1}, {1: "a"}, {"a": [[1, 2]], "b": [[1]]}) == {1: "b", 2: "a"}

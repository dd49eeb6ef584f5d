from array import array
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.routing.admission import Outcome, pick
from dataplane.routing.instance_order import InstanceOrder
from simulator.calibration import LLAMA_3_1_70B_8XH100 as PROFILE
from warmroute.advise.fleet import (
    Route,
    arrive,
    at_random,
    least_outstanding,
    percentile,
    pooled_hit_rate,
    prefix_aware,
    replay,
)
from warmroute.advise.spool import Kept

ORDER = InstanceOrder([f"host-{host}" for host in range(12)], range(12))


def request(group: int, own: int, shared: int = 100) -> Kept:
    """A prompt of ``shared`` blocks of its group and ten of its own."""
    first = 1 + 1_000 * group
    blocks = array("Q", [*range(first, first + shared), *range(10**9 + own * 10, 10**9 + own * 10 + 10)])
    return Kept(16 * len(blocks), 20, [group * 2_654_435_761 % 2**64], blocks)


def home(hosts: int, threshold: int) -> Route:
    order = InstanceOrder([f"host-{host}" for host in range(hosts)], range(hosts))
    return prefix_aware(order, 0, threshold, hosts)


def load(count: int, groups: int, gap: float = 0.5) -> list[tuple[float, Kept]]:
    return [(number * gap, request(number * 11 % groups, number)) for number in range(count)]


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 4), min_size=2, max_size=7), st.integers(1, 5))
def test_prefix_aware_is_the_products_order_and_pick(key: int, in_flight: list[int], threshold: int) -> None:
    hosts = len(in_flight)
    order = InstanceOrder([f"host-{host}" for host in range(hosts)], range(hosts))
    ranked = order.all(key)
    rank, outcome = pick([in_flight[host] for host in ranked], threshold)
    assert prefix_aware(order, 1, threshold, hosts)(in_flight, [0, key]) == (ranked[rank], outcome)


def test_more_hosts_than_ranks_are_all_asked_once_the_first_are_full() -> None:
    first = ORDER.first(5)
    route = prefix_aware(ORDER, 0, 1, 12)
    in_flight = [int(host in first) for host in range(12)]
    host, outcome = route(in_flight, [5])
    assert outcome is Outcome.OVERFLOW
    assert host not in first
    assert route([1] * 12, [5]) == (first[0], Outcome.ALL_SATURATED)


def test_a_request_without_a_key_goes_to_the_idlest() -> None:
    assert prefix_aware(ORDER, 0, 1, 3)([1, 0, 1], []) == (1, Outcome.NO_KEY)
    assert prefix_aware(ORDER, 0, 1, 1)([5], [1]) == (0, Outcome.SINGLE)


def test_other_strategies_repeat_with_their_seed() -> None:
    for make in (at_random, least_outstanding):
        one, two = make(1), make(1)
        assert [one([0] * 7, []) for _ in range(50)] == [two([0] * 7, []) for _ in range(50)]
    assert {at_random(1)([9, 0], [])[0] for _ in range(1)} <= {0, 1}
    assert least_outstanding(1)([2, 1, 2], []) == (1, Outcome.LEAST_OUTSTANDING)


def test_home_finds_what_was_there_and_chance_does_not() -> None:
    requests = load(210, 21)
    kept = replay(requests, home(7, 100), 7, PROFILE)
    # The first request of each group finds nothing; of the others 100 of 110 blocks are there.
    assert kept.hit_rate == pytest.approx(100 / 110 * (1 - 21 / 210))
    assert (kept.requests, kept.overflow, kept.saturated) == (210, 0, 0)
    assert kept.hit_rate > replay(requests, at_random(1), 7, PROFILE).hit_rate + 0.2
    assert pooled_hit_rate(iter(requests), 7, PROFILE) == pytest.approx(kept.hit_rate)


def test_a_threshold_at_what_a_home_reaches_changes_nothing_and_one_below_does() -> None:
    requests = load(200, 3, gap=0.05)
    calm = replay(requests, home(3, 1024), 3, PROFILE)
    assert calm.at_home > 2
    assert replay(requests, home(3, calm.at_home), 3, PROFILE) == calm
    below = replay(requests, home(3, calm.at_home - 1), 3, PROFILE)
    assert below.overflow > 0
    assert replay(requests, home(3, 1), 3, PROFILE).saturated > 0.1


def test_a_small_cache_finds_less_and_a_pooled_one_is_as_large_as_all() -> None:
    requests = load(300, 60)
    small = replace(PROFILE, kv_blocks=1_000)
    assert replay(requests, home(3, 100), 3, small).hit_rate < 0.4
    assert pooled_hit_rate(requests, 1, small) < 0.1 < pooled_hit_rate(requests, 7, small)


def test_prompts_that_no_host_takes_are_left_out() -> None:
    small = replace(PROFILE, kv_blocks=105)
    requests = [(0.0, request(1, 1)), (1.0, request(1, 2, shared=50))]
    found = replay(requests, home(3, 9), 3, small)
    assert (found.refused, found.requests) == (1, 1)
    assert found.busiest == 1


def test_the_busiest_host_is_the_one_with_the_most_requests() -> None:
    assert replay(load(50, 1), home(7, 100), 7, PROFILE).busiest == 1
    assert replay(load(70, 7), at_random(3), 7, PROFILE).busiest < 0.5


# --- arrivals ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=50))
def test_arrivals_are_in_order_of_time_whatever_the_order_of_the_log(times: list[float]) -> None:
    found = arrive(times, None, 7)
    assert [at for at, _ in found] == sorted(at - min(times) for at in times)
    assert sorted(number for _, number in found) == list(range(len(times)))
    assert all(times[number] - min(times) == at for at, number in found)


@pytest.mark.parametrize("rate", [0.5, 40.0])
def test_a_rate_stretches_the_logs_times(rate: float) -> None:
    found = arrive([float(number * number) for number in range(100)], rate, 7)
    assert found[-1][0] == pytest.approx(100 / rate)
    assert found[10][0] / found[20][0] == pytest.approx(1 / 4)
    assert arrive([5.0, 5.0], rate, 7) == [(0.0, 0), (0.0, 1)]


def test_a_log_without_times_has_arrivals_of_a_rate() -> None:
    times: Sequence[float | None] = [None] * 4_000
    assert arrive(times, None, 7)[-1][0] == pytest.approx(4_000 / 7, rel=0.1)
    assert arrive(times, 50.0, 7)[-1][0] == pytest.approx(80, rel=0.1)
    assert arrive(times, 50.0, 7) == arrive(times, 50.0, 3)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_a_value_that_the_share_does_not_exceed(values: list[float], share: float) -> None:
    values.sort()
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= int(share * len(values))

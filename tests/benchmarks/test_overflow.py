import pytest

from benchmarks.fleet.fleet import Fleet
from benchmarks.fleet.strategies import in_force, random_rank
from benchmarks.overflow.fleet import (
    OWN_TOKENS,
    SHARED_TOKENS,
    WINDOW,
    Load,
    Size,
    copies,
    draw,
    natural_concurrency,
    simulate,
    warm_after,
)
from benchmarks.overflow.rules import rule_of
from dataplane.routing.admission import Outcome
from simulator.calibration import LLAMA_3_1_70B_8XH100 as PROFILE

SMALL = Size(prefixes=30, requests=300, warm_up=100)
CEILING = SHARED_TOKENS / (SHARED_TOKENS + OWN_TOKENS)


def test_the_same_draw_gives_the_same_figures() -> None:
    first, second = (simulate(in_force, draw(Load(1.0, 30.0), SMALL, 7), 6, SMALL, PROFILE) for _ in range(2))
    assert first == second
    assert first != simulate(in_force, draw(Load(1.0, 30.0), SMALL, 8), 6, SMALL, PROFILE)


def test_a_draw_has_the_loads_rate_skew_and_orders_of_all_hosts() -> None:
    size = Size(prefixes=50, requests=4_000)
    workload = draw(Load(1.0, 40.0), size, 1)
    assert workload.arrivals == sorted(workload.arrivals)
    assert size.requests / workload.arrivals[-1] == pytest.approx(40, rel=0.1)
    harmonic = sum(1 / rank for rank in range(1, size.prefixes + 1))
    assert workload.prefixes.count(0) / size.requests == pytest.approx(1 / harmonic, rel=0.15)
    assert all(sorted(order) == list(range(size.hosts)) for order in workload.orders)
    assert len({order[0] for order in workload.orders}) == size.hosts


def test_copies_are_the_hosts_that_hold_a_whole_prefix() -> None:
    fleet = Fleet(3, PROFILE)
    prefixes = [range(1, 501), range(501, 1001), range(1001, 1501)]
    for number, (host, prefix) in enumerate([(0, 0), (1, 0), (2, 1)]):
        fleet.send(host, number, prefixes[prefix], SHARED_TOKENS, 1, 0.0)
    fleet.finish()
    assert copies(fleet, prefixes) == 1.5


def test_a_warm_fleet_meets_the_ceiling_and_a_scattered_one_does_not() -> None:
    workload = draw(Load(0.0, 10.0), SMALL, 1)
    home = simulate(in_force, workload, 10_000, SMALL, PROFILE)
    assert home.hit_rate == pytest.approx(CEILING, abs=0.03)
    assert home.copies == 1
    assert home.overflow == home.saturated == 0
    scattered = simulate(random_rank, workload, 1, SMALL, PROFILE)
    assert scattered.hit_rate < home.hit_rate - 0.1
    assert scattered.copies > 2


def test_a_run_tells_saturation_from_overflow() -> None:
    workload = draw(Load(1.4, 20.0), SMALL, 1)
    low = simulate(in_force, workload, 1, SMALL, PROFILE)
    assert low.saturated > 0.5
    high = simulate(in_force, workload, 8, SMALL, PROFILE)
    assert high.overflow > 0
    assert high.saturated < low.saturated


def test_the_share_and_the_peak_are_of_the_busiest_host() -> None:
    workload = draw(Load(0.0, 5.0), SMALL, 1)
    one = simulate(lambda counts, threshold, dice: (0, Outcome.HOME), workload, 1,
                   Size(hosts=7, prefixes=30, requests=300, warm_up=0), PROFILE)  # fmt: skip
    assert 1 / 7 <= one.share_max < 0.5
    least = simulate(rule_of("least loaded of the free", "least loaded"), workload, 1, SMALL, PROFILE)
    assert least.peak_to_mean < one.peak_to_mean
    assert least.peak >= least.in_flight


def test_natural_concurrency_grows_with_the_rate() -> None:
    low, high = (natural_concurrency(rate, PROFILE, 7) for rate in (10.0, 45.0))
    # A request of 200 tokens runs for 200 steps of at least step_seconds.
    assert low >= 10 / 7 * 200 * PROFILE.step_seconds
    assert high > 4 * low


def test_a_fleet_is_warm_when_so_many_in_a_row_find_their_prefix() -> None:
    arrivals = [float(number) for number in range(2_000)]
    tokens = [0] * 700 + [SHARED_TOKENS] * 1_300
    assert warm_after(arrivals, tokens) == 700 + 0.95 * WINDOW - 1
    assert warm_after(arrivals, [0, SHARED_TOKENS] * 1_000) == arrivals[-1]
    assert warm_after(arrivals, [SHARED_TOKENS] * 2_000) == WINDOW - 1

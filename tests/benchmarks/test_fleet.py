import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fleet.fleet import Fleet, percentile
from benchmarks.fleet.strategies import STRATEGIES
from dataplane.routing.admission import Outcome, pick, pick_least
from simulator.calibration import LLAMA_3_1_70B_8XH100 as PROFILE
from simulator.request import Kind

COUNTS = st.lists(st.integers(0, 6), min_size=1, max_size=8)


def test_what_is_in_flight_is_what_the_engines_hold() -> None:
    fleet, dice = Fleet(3, PROFILE), random.Random(1)
    now = 0.0
    ended = 0
    for number in range(200):
        now += dice.expovariate(20)
        events = fleet.settle(now)
        assert [event.at for event in events] == sorted(event.at for event in events)
        ended += sum(event.kind is Kind.FINISHED for event in events)
        assert fleet.in_flight == [engine.running + engine.waiting for engine in fleet.engines]
        assert sum(fleet.in_flight) == number - ended
        host = dice.randrange(3)
        fleet.send(host, number, range(1 + host * 500, 501 + host * 500), 8_250, 200, now)
    fleet.settle(now + 1e6)
    assert fleet.in_flight == [0, 0, 0]
    assert fleet.next_change_at() is None
    assert sum(engine.counters.finished for engine in fleet.engines) == 200


def test_the_next_change_is_the_first_of_all_hosts() -> None:
    fleet = Fleet(2, PROFILE)
    assert fleet.next_change_at() is None
    fleet.send(0, 0, range(500), 8_000, 10, 0.0)
    fleet.send(1, 1, [], 16, 10, 0.0)
    at = fleet.next_change_at()
    assert at is not None
    assert [(event.kind, event.request.id) for event in fleet.settle(at)] == [(Kind.FIRST_TOKEN, 1)]


def test_a_host_that_is_added_is_cold() -> None:
    fleet = Fleet(1, PROFILE)
    warm = fleet.send(0, 0, range(500), 8_000, 1, 0.0)
    fleet.settle(1.0)
    assert fleet.add() == 1
    cold, again = (fleet.send(host, 1, range(500), 8_000, 1, 1.0) for host in (1, 0))
    assert fleet.in_flight == [1, 1]
    fleet.finish()
    assert [request.cached_tokens for request in (warm, cold, again)] == [0, 0, 7_984]


@given(counts=COUNTS, threshold=st.integers(1, 6), dice=st.integers(0, 2**30))
def test_strategies_are_the_products_decisions(counts: list[int], threshold: int, dice: int) -> None:
    assert STRATEGIES["PREFIX_AWARE"](counts, threshold, dice) == pick(counts, threshold)
    assert STRATEGIES["LEAST_OUTSTANDING_REQUESTS"](counts, threshold, dice) == pick_least(counts, dice)
    rank, outcome = STRATEGIES["RANDOM"](counts, threshold, dice)
    assert (0 <= rank < len(counts), outcome) == (True, Outcome.RANDOM)


def test_random_takes_every_host_alike() -> None:
    dice = random.Random(1)
    taken = [STRATEGIES["RANDOM"]([0] * 7, 1, dice.getrandbits(30))[0] for _ in range(7_000)]
    assert min(taken.count(rank) for rank in range(7)) > 900


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_the_least_value_that_the_share_does_not_exceed(values: list[float], share: float) -> None:
    values.sort()
    found = percentile(values, share)
    assert sum(value <= found for value in values) >= math.floor(share * len(values))
    assert sum(value < found for value in values) < share * len(values) or found == values[0]


def test_a_percentile_of_few_is_one_of_them() -> None:
    assert [percentile([1.0, 2.0, 3.0], share) for share in (0.01, 0.5, 0.99)] == [1.0, 2.0, 3.0]
    assert percentile([5.0], 0.5) == pytest.approx(5.0)

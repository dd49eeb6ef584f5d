import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dataplane.routing.admission import Outcome, pick, pick_alone, pick_least

counts_of_many = st.lists(st.integers(0, 12), min_size=1, max_size=12)
thresholds = st.integers(1, 10)


@given(counts_of_many, thresholds)
def test_never_at_the_threshold_while_another_is_under_it(counts: list[int], threshold: int) -> None:
    rank, outcome = pick(counts, threshold)
    assert (outcome is Outcome.ALL_SATURATED) == (min(counts) >= threshold)
    assert (counts[rank] < threshold) == (min(counts) < threshold)


@given(counts_of_many, thresholds)
def test_home_is_taken_exactly_while_it_is_under_the_threshold(counts: list[int], threshold: int) -> None:
    rank, outcome = pick(counts, threshold)
    assert (outcome is Outcome.HOME) == (counts[0] < threshold)
    assert outcome is not Outcome.HOME or rank == 0


@given(counts_of_many, thresholds)
def test_overflow_goes_to_the_fewest_in_flight_of_the_free(counts: list[int], threshold: int) -> None:
    rank, outcome = pick(counts, threshold)
    if outcome is Outcome.OVERFLOW:
        free = [free for free, count in enumerate(counts) if count < threshold]
        assert rank in free
        assert counts[rank] == min(counts[free] for free in free)
        assert all(counts[better] > counts[rank] for better in range(rank)), "a tie stays with the better rank"


@given(counts_of_many, st.integers(1, 3))
def test_a_saturated_fleet_is_kept_level(counts: list[int], threshold: int) -> None:
    """Home is kept up to a quarter above the mean; what leaves it goes to an instance at or below the mean."""
    counts = [count + threshold for count in counts]
    rank, outcome = pick(counts, threshold)
    assert outcome is Outcome.ALL_SATURATED
    total, n = sum(counts), len(counts)
    if 4 * n * counts[0] <= 5 * total:
        assert rank == 0
    else:
        assert n * counts[rank] <= total
        assert all(n * better > total for better in counts[:rank])


def test_home_is_kept_up_to_exactly_a_quarter_above_the_mean() -> None:
    assert pick([25, 15], 9) == (0, Outcome.ALL_SATURATED)
    assert pick([26, 15], 9) == (1, Outcome.ALL_SATURATED)
    assert pick([125, 101, 74], 9) == (0, Outcome.ALL_SATURATED)
    assert pick([126, 100, 74], 9) == (1, Outcome.ALL_SATURATED), "a rank at the mean takes it"
    assert pick([126, 101, 73], 9) == (2, Outcome.ALL_SATURATED), "one above it does not"


@given(st.integers(0, 100), thresholds)
def test_a_single_instance_takes_everything(count: int, threshold: int) -> None:
    assert pick([count], threshold)[0] == 0
    assert pick_alone([count], [count], threshold)[0] == 0
    assert pick_least([count], 5)[0] == 0


def test_overflow_looks_at_load() -> None:
    """Two at home, two on the next, one, none: it goes to the idle one, and without that to the one with one."""
    for rest in itertools.permutations([2, 1, 0]):
        counts = [2, *rest]
        assert counts[pick(counts, 2)[0]] == 0
    for rest in itertools.permutations([2, 1]):
        counts = [2, *rest]
        assert counts[pick(counts, 2)[0]] == 1


def test_home_is_resumed_as_soon_as_it_has_room() -> None:
    counts = [1, 0, 0, 0]
    assert pick(counts, 1)[1] is Outcome.OVERFLOW
    counts[0] = 0
    assert [pick(counts, 1) for _ in range(20)] == [(0, Outcome.HOME)] * 20


@pytest.mark.parametrize(("instances", "threshold", "requests"), [(3, 2, 12), (4, 4, 100), (20, 1, 200), (2, 8, 64)])
def test_one_hot_key_fills_all_alike(instances: int, threshold: int, requests: int) -> None:
    """Twelve at once on three hosts with threshold 2: none refused, none piled on the home."""
    counts = [0] * instances
    for number in range(requests):
        rank, _ = pick(counts, threshold)
        if number < threshold:
            assert rank == 0
        counts[rank] += 1
        assert max(counts) <= max(threshold, 1.25 * sum(counts) / instances + 1)
    assert min(counts) >= threshold
    assert (instances, threshold, requests) != (3, 2, 12) or max(counts) - min(counts) <= 2


def test_a_saturated_fleet_keeps_most_requests_at_home() -> None:
    """All at the threshold must not mean that every key is everywhere: affinity is what the product is for."""
    dice = random.Random(11)
    instances, threshold = 8, 4
    counts, running, at_home, arrived = [0] * instances, [], 0, 4_000
    for _ in range(arrived):
        home = dice.randrange(instances)
        order = [(home + step) % instances for step in range(instances)]
        rank, _ = pick([counts[instance] for instance in order], threshold)
        counts[order[rank]] += 1
        running.append(order[rank])
        at_home += rank == 0
        if len(running) > 48:
            counts[running.pop(dice.randrange(len(running)))] -= 1
    assert at_home > 0.7 * arrived
    assert max(counts) - min(counts) <= 4


@given(counts_of_many, st.integers(0, 2**30))
def test_least_outstanding_takes_one_of_the_fewest(counts: list[int], dice: int) -> None:
    position, outcome = pick_least(counts, dice)
    assert outcome is Outcome.LEAST_OUTSTANDING
    assert counts[position] == min(counts)


@given(counts_of_many)
def test_ties_go_to_each_of_the_tied_alike(counts: list[int]) -> None:
    tied = [position for position, count in enumerate(counts) if count == min(counts)]
    assert [pick_least(counts, dice)[0] for dice in range(len(tied))] == tied


def test_a_newcomer_is_filled_to_the_others_level_only() -> None:
    """Four hosts with 20 each, a fifth joins, 60 requests at once: 28 each."""
    dice = random.Random(3)
    counts = [20, 20, 20, 20, 0]
    for _ in range(60):
        counts[pick_least(counts, dice.getrandbits(30))[0]] += 1
    assert counts == [28] * 5


# --- without the store -----------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=8), st.integers(1, 6))
def test_alone_the_workers_own_counts_decide(pairs: list[tuple[int, int]], share: int) -> None:
    """However old the fleet's counts are, a key stays on its home while this worker's share of it has room."""
    own = [mine for mine, _ in pairs]
    known = [mine + others for mine, others in pairs]
    rank, outcome = pick_alone(own, known, share)
    free = [free for free, count in enumerate(own) if count < share]
    if own[0] < share:
        assert (rank, outcome) == (0, Outcome.HOME)
    elif free:
        assert outcome is Outcome.OVERFLOW
        assert rank in free
        assert known[rank] == min(known[free] for free in free)
    else:
        assert outcome is Outcome.ALL_SATURATED
        assert known[rank] * 4 * len(known) <= 5 * sum(known)


@given(counts_of_many, thresholds)
def test_one_worker_alone_decides_as_the_store_would(counts: list[int], threshold: int) -> None:
    assert pick_alone(counts, counts, threshold) == pick(counts, threshold)


@example(1, 1, [0] * 60)
@given(st.integers(1, 5), st.integers(1, 12), st.lists(st.integers(0, 4), max_size=60))
def test_shares_keep_the_home_near_the_threshold(workers: int, threshold: int, arrivals: Sequence[int]) -> None:
    """Without the store, W workers put at most W x ceil(T / W) on a home while others have room."""
    share = -(-threshold // workers)
    # So many instances that there is room to the last arrival.
    held = [[0] * (len(arrivals) + 1) for _ in range(workers)]
    for arrival in arrivals:
        own = held[arrival % workers]
        own[pick_alone(own, own, share)[0]] += 1
    assert sum(own[0] for own in held) <= workers * share < threshold + workers

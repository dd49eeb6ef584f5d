"""The script against a real Redis; its twin in Python is the oracle of its choices."""

import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataplane.routing.admission import Outcome, pick, pick_least
from dataplane.routing.instance_order import RANKS
from tests.dataplane.state.script import DONE, RESTATE, STALE, Store, admit
from tests.services import PrivateServer
from tests.waiting import wait_until

# The server is shared by all examples of a test; each example begins by emptying its endpoint.
with_store = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

counts_of_many = st.lists(st.integers(0, 9), min_size=1, max_size=12)
thresholds = st.integers(1, 8)


@pytest.fixture
def settled(store: Store) -> Store:
    """A store that knows worker ``a``."""
    store.call("a", held={}, renew=True)
    return store


def load(store: Store, counts: list[int]) -> None:
    """Begin anew with these counts, spread over two workers; ``a`` is the one that will ask."""
    store.lose_everything()
    store.call("b", held={number: count // 2 for number, count in enumerate(counts)})
    store.call("a", held={number: count - count // 2 for number, count in enumerate(counts)})
    assert store.load == {number: count for number, count in enumerate(counts) if count}


# --- the choice ------------------------------------------------------------------------------------------------------


@given(counts_of_many, thresholds, st.randoms(use_true_random=False))
@with_store
def test_the_script_picks_as_its_twin_does(
    store: Store, counts: list[int], threshold: int, dice: random.Random
) -> None:
    load(store, counts)
    order = list(range(len(counts)))
    dice.shuffle(order)
    in_order = [counts[number] for number in order]
    reply = store.call("a", admits=[admit(order, threshold)])
    assert reply.choices == [pick(in_order, threshold)]
    chosen = order[reply.choices[0][0]]
    assert store.load == {n: c + (n == chosen) for n, c in enumerate(counts) if c + (n == chosen)}


@given(counts_of_many, st.integers(0, 2**30 - 1))
@with_store
def test_the_script_picks_the_fewest_as_its_twin_does(store: Store, counts: list[int], dice: int) -> None:
    load(store, counts)
    reply = store.call("a", admits=[admit(range(len(counts)), 0, dice)])
    assert reply.choices == [pick_least(counts, dice)]


@given(st.lists(st.integers(0, 3), min_size=4, max_size=12), st.integers(0, 2**30 - 1))
@with_store
def test_a_few_decide_who_has_fewest_when_one_of_them_is_idle(store: Store, counts: list[int], dice: int) -> None:
    """Nobody has less than none. Else the script asks for all and counts nothing."""
    load(store, counts)
    before = store.load
    reply = store.call("a", admits=[admit(range(3), 0, dice, complete=False)])
    if min(counts[:3]) == 0:
        assert reply.choices == [pick_least(counts[:3], dice)]
        assert counts[reply.choices[0][0]] == min(counts)
    else:
        assert [position for position, _ in reply.choices] == [-1]
        assert store.load == before


@given(st.lists(st.integers(0, 4), min_size=RANKS + 1, max_size=20), st.integers(1, 4))
@with_store
def test_the_first_ranks_decide_when_one_of_them_is_free(store: Store, counts: list[int], threshold: int) -> None:
    """Else the script asks for all ranks and counts nothing; the answer over all of them is the twin's."""
    load(store, counts)
    before = store.load
    reply = store.call("a", admits=[admit(range(RANKS), threshold, complete=False)])
    if min(counts[:RANKS]) < threshold:
        assert reply.choices == [pick(counts[:RANKS], threshold)]
    else:
        assert reply.choices == [(-1, Outcome.ALL_SATURATED)]
        assert store.load == before
        again = store.call("a", admits=[admit(range(len(counts)), threshold)])
        assert again.choices == [pick(counts, threshold)]


@given(st.lists(st.integers(0, 3), min_size=2, max_size=5), st.lists(st.tuples(thresholds, st.booleans()), max_size=12))
@with_store
def test_a_batch_is_as_good_as_one_after_the_other(
    store: Store, counts: list[int], asked: list[tuple[int, bool]]
) -> None:
    """Requests of one turn of the event loop share a call; each sees those before it."""
    load(store, counts)
    numbers = list(range(len(counts)))
    orders = [numbers if forward else numbers[::-1] for _, forward in asked]
    reply = store.call("a", admits=[admit(o, threshold) for o, (threshold, _) in zip(orders, asked, strict=True)])
    expected = list(counts)
    for order, (threshold, _), choice in zip(orders, asked, reply.choices, strict=True):
        assert choice == pick([expected[number] for number in order], threshold)
        expected[order[choice[0]]] += 1
    assert store.load == {number: count for number, count in enumerate(expected) if count}


def test_releases_of_a_call_come_before_its_admissions(settled: Store) -> None:
    """A request that ended in the same turn makes room for the next one at home."""
    settled.call("a", admits=[admit([1, 2], 1)])
    reply = settled.call("a", deltas={1: -1}, admits=[admit([1, 2], 1), admit([1, 2], 1)])
    assert reply.choices == [(0, Outcome.HOME), (1, Outcome.OVERFLOW)]


def test_twelve_at_once_over_two_workers_never_pass_the_threshold(settled: Store) -> None:
    settled.call("b", held={})
    for _ in range(6):
        for worker in "ab":
            settled.call(worker, admits=[admit([1, 2, 3], 4)])
    assert settled.load == {1: 4, 2: 4, 3: 4}
    settled.call("a", admits=[admit([1, 2, 3], 4)])
    assert settled.load[1] == 5, "all at the threshold: home, within a tenth of the mean"


def test_instances_are_told_apart_however_large_their_numbers(settled: Store) -> None:
    numbers = [10**9, 10**9 + 1, 2**31 - 1, 2**40]
    reply = settled.call("a", admits=[admit(numbers, 1) for _ in numbers], renew=True)
    assert [position for position, _ in reply.choices] == [0, 1, 2, 3]
    assert reply.load == dict.fromkeys(numbers, 1)


# --- counting --------------------------------------------------------------------------------------------------------


@given(st.lists(st.dictionaries(st.integers(1, 3), st.integers(-3, 3), max_size=3), max_size=8))
@with_store
def test_a_share_never_falls_below_zero(store: Store, changes: list[dict[int, int]]) -> None:
    """A release that finds nothing is a correction, and takes nothing from another worker."""
    store.lose_everything()
    store.call("b", held={1: 2, 2: 2, 3: 2})
    store.call("a", held={})
    mine = {1: 0, 2: 0, 3: 0}
    for change in changes:
        missing = 0
        for number, delta in change.items():
            missing += max(0, -(mine[number] + delta))
            mine[number] = max(0, mine[number] + delta)
        assert store.call("a", deltas=change).corrections == missing
        assert store.load == {number: count + 2 for number, count in mine.items()}
    store.check()


def test_what_comes_to_zero_leaves_no_field(settled: Store) -> None:
    settled.call("a", deltas={1: 2, 2: 1})
    settled.call("a", deltas={1: -2, 2: -1})
    assert settled.load == {}
    assert settled.shares == {"a": {}}


def test_a_call_that_was_overtaken_does_nothing(settled: Store) -> None:
    settled.call("a", sequence=10, deltas={1: 1})
    for sequence in (9, 10):
        reply = settled.call("a", sequence=sequence, deltas={1: 1}, admits=[admit([1], 5)], renew=True)
        assert (reply.status, reply.choices, reply.load) == (STALE, [], {})
        assert settled.call("a", sequence=sequence, held={7: 7}).status == STALE
    assert settled.load == {1: 1}
    assert settled.call("a", sequence=11, deltas={1: 1}).status == DONE


def test_an_unknown_worker_is_asked_to_restate_and_nothing_is_done(store: Store) -> None:
    reply = store.call("a", deltas={1: 1}, admits=[admit([1], 5)])
    assert (reply.status, reply.choices) == (RESTATE, [])
    assert store.load == {}
    assert store.leases == set()
    assert store.call("a", held={1: 1}, admits=[admit([1], 5)]).choices == [(0, Outcome.HOME)]
    assert store.load == {1: 2}


def test_restating_replaces_what_was_known(settled: Store) -> None:
    settled.call("b", held={1: 1})
    settled.call("a", deltas={1: 3, 2: 1})
    reply = settled.call("a", held={1: 1, 3: 2})
    assert reply.corrections == 0
    assert settled.shares == {"a": {1: 1, 3: 2}, "b": {1: 1}}
    assert settled.load == {1: 2, 3: 2}


def test_a_worker_whose_name_begins_with_anothers_keeps_its_share(settled: Store) -> None:
    for worker in ("a1", "a-1", "a."):
        settled.call(worker, held={1: 1})
    settled.lapse("a")
    settled.call("a1", deltas={})
    assert settled.load == {1: 3}


# --- leases ----------------------------------------------------------------------------------------------------------


def test_a_dead_workers_share_is_struck_by_any_other(settled: Store) -> None:
    settled.call("b", held={1: 2, 2: 1})
    settled.call("a", deltas={1: 1})
    settled.lapse("b")
    reply = settled.call("a", admits=[admit([1, 2], 2)], renew=True)
    assert reply.choices == [(0, Outcome.HOME)], "its share is gone before the choice"
    assert (reply.live_workers, reply.load) == (1, {1: 2})
    assert settled.leases == {"a"}
    assert settled.shares == {"a": {1: 2}}


def test_a_lease_ends_by_the_clock_of_redis(settled: Store) -> None:
    """No worker's own clock is asked."""
    settled.call("b", held={1: 1}, lease_ms=60)
    assert settled.load == {1: 1}

    def is_struck() -> bool:
        settled.call("a")
        return settled.load == {}

    wait_until(is_struck, 2.0)
    assert settled.leases == {"a"}


def test_any_call_renews_the_lease(settled: Store) -> None:
    settled.call("a", lease_ms=50_000)
    end = settled.redis.zscore(settled.leases_key, "a")
    assert 49_000 < end - settled.now_ms() <= 50_000
    settled.call("a", lease_ms=90_000, deltas={1: 1})
    assert settled.redis.zscore(settled.leases_key, "a") > end


def test_a_worker_past_its_lease_that_nobody_struck_goes_on(settled: Store) -> None:
    """It was paused while the others were idle: its share still stands, so nothing needs saying again."""
    settled.call("a", deltas={1: 2})
    settled.lapse("a")
    assert settled.call("a", deltas={1: -1}).status == DONE
    assert settled.load == {1: 1}


def test_a_worker_that_was_struck_restates(settled: Store) -> None:
    """Paused past its lease, it wakes with its streams still open."""
    settled.call("a", deltas={1: 2})
    settled.call("b", held={})
    settled.lapse("a")
    settled.call("b")
    assert settled.load == {}
    assert settled.call("a", deltas={1: -1}).status == RESTATE
    assert settled.call("a", held={1: 1}).status == DONE
    assert settled.load == {1: 1}


def test_after_the_store_lost_everything_each_worker_restates(settled: Store) -> None:
    settled.call("a", deltas={1: 2})
    settled.call("b", held={1: 1})
    settled.lose_everything()
    assert settled.call("a", admits=[admit([1], 9)]).status == RESTATE
    assert settled.call("b", deltas={1: -1}).status == RESTATE
    settled.call("a", held={1: 2})
    assert settled.call("b", held={}).status == DONE
    assert settled.load == {1: 2}


def test_live_workers_are_counted_when_renewing(settled: Store) -> None:
    for live, worker in enumerate("bcd", start=2):
        assert settled.call(worker, held={}, renew=True).live_workers == live
    settled.lapse("d")
    assert settled.call("a", renew=True).live_workers == 3
    assert settled.call("a").live_workers == 0, "a call that does not renew is spared the count"


# --- what stays behind -----------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["renew", "admit", "release", "restate"]), max_size=6))
@with_store
def test_every_key_ends_by_itself(store: Store, steps: list[str]) -> None:
    """Nothing of a deleted endpoint, or of a fleet that died whole, stays behind, and no key without its leases.

    A count that outlived the ledger could never be struck: nobody would know whose it was.
    """
    store.lose_everything()
    store.call("a", held={}, renew=True)
    held = 0
    for step in steps:
        if step == "admit":
            store.call("a", admits=[admit([1], 100)])
            held += 1
        elif step == "release" and held:
            store.call("a", deltas={1: -1})
            held -= 1
        elif step == "restate":
            store.call("a", held={1: held}, renew=True)
        else:
            store.call("a", renew=True)
        ends = {key: store.redis.pttl(key) for key in store.keys if store.redis.exists(key)}
        assert all(0 < end <= 4 * 600_000 for end in ends.values()), ends


def test_a_fleet_that_died_whole_leaves_no_count(store: Store) -> None:
    """Killed just after a first request on an idle endpoint, and away until every lease is over."""
    store.call("a", held={}, renew=True, lease_ms=40)
    store.call("a", admits=[admit([1], 100)], lease_ms=40)
    wait_until(lambda: not store.redis.exists(store.ledger_key, store.leases_key), 2.0)
    store.call("b", held={}, renew=True)
    assert store.load == {}


def test_a_call_runs_few_commands_and_no_more_for_more_of_the_same(
    private_redis: Callable[..., PrivateServer],
) -> None:
    """A command costs the server more than all that the script does itself."""
    store = Store(private_redis().url)

    def commands_of(admits: int) -> int:
        before = commands_run(store)
        store.call("a", deltas={1: -1}, admits=[admit([1, 2, 3], 900)] * admits)
        # Less the INFO that counts them.
        return commands_run(store) - before - 1

    store.call("a", held={1: 9})
    assert commands_of(1) == commands_of(32) <= 10
    store.close()


def commands_run(store: Store) -> int:
    """Return how many commands the server has run, those in scripts included."""
    return sum(stat["calls"] for stat in store.redis.info("commandstats").values())

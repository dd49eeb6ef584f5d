"""InFlight in virtual time, where the test says when answers come; below, against servers that freeze and forget."""

import asyncio
import contextlib
import itertools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator

import msgspec
import pytest
import redis

from dataplane.routing.admission import Outcome
from dataplane.state import store as real_store
from dataplane.state.inflight import InFlight
from dataplane.state.ledger import FEW
from dataplane.state.link import BACKOFF_SECONDS, GIVE_UP_SECONDS, State
from tests.dataplane.state.script import Store
from tests.dataplane.state.virtual import (
    BUDGET_SECONDS,
    LEASE_SECONDS,
    Observer,
    VirtualLoop,
    Wire,
    Worker,
    virtual_loop,
)
from tests.services import PrivateServer
from tests.waiting import wait_until_async

BUDGET_MARGIN_SECONDS = BUDGET_SECONDS / 2


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    with virtual_loop() as loop:
        yield loop


@pytest.fixture
def worker(loop: VirtualLoop, store: Store) -> Worker:
    """A worker whose first, restating call is behind it."""
    return known(Worker(loop, store))


def known(worker: Worker) -> Worker:
    worker.count(99)
    worker.loop.settle()
    worker.deliver()
    worker.release(0)
    worker.loop.settle()
    worker.deliver()
    worker.observer.admits_by_call.clear()
    return worker


def mend(worker: Worker) -> None:
    """The store can be reached again; let the worker find out and say what it holds."""
    worker.wire.is_up = True
    began = worker.loop.now
    while not worker.wire.calls:
        worker.loop.advance(0.01)
        assert worker.loop.now - began < BACKOFF_SECONDS[-1] + 0.1, "tried at least so often"
    worker.deliver()


# --- calls -----------------------------------------------------------------------------------------------------------


def test_requests_of_one_turn_share_a_call(worker: Worker) -> None:
    for _ in range(12):
        worker.admit([1, 2, 3], 4)
    worker.loop.settle()
    assert len(worker.wire.calls) == 1
    worker.deliver()
    assert Counter(number for number, _, _ in worker.granted) == {1: 4, 2: 4, 3: 4}
    assert worker.observer.admits_by_call == [12]
    assert not any(degraded for _, _, degraded in worker.granted)


def test_one_call_is_on_its_way_at_a_time(worker: Worker) -> None:
    """What comes meanwhile goes out together when it is answered."""
    for _ in range(3):
        worker.admit([1], 9)
        worker.loop.settle()
    assert worker.observer.admits_by_call == [1]
    worker.deliver()
    assert worker.observer.admits_by_call == [1, 2]
    worker.deliver()
    assert worker.holding == [1, 1, 1]


def test_a_request_that_is_counted_needs_no_answer(worker: Worker) -> None:
    """RANDOM sends without a round trip, and counts."""
    worker.count(5)
    worker.loop.settle()
    assert worker.in_flight.held(worker.store.endpoint_id) == {5: 1}
    worker.deliver()
    assert worker.store.load == {5: 1}


def test_nothing_to_say_is_no_call(worker: Worker) -> None:
    worker.count(5)
    worker.release(0)
    worker.loop.settle()
    assert worker.wire.calls == [] or not worker.wire.calls


def test_the_whole_order_is_asked_for_when_the_first_ranks_are_busy(worker: Worker) -> None:
    worker.admit([1, 2], 1, everything=[1, 2, 3, 4])
    worker.admit([1, 2], 1, everything=[1, 2, 3, 4])
    worker.admit([1, 2], 1, everything=[1, 2, 3, 4])
    worker.loop.settle()
    worker.deliver()
    assert worker.holding == [1, 2], "the third finds none of the first two free"
    worker.deliver()
    assert worker.holding == [1, 2, 3]


def test_a_large_idle_fleet_is_asked_for_a_few_and_all_of_it_when_these_are_busy(worker: Worker) -> None:
    fleet = range(40)
    worker.store.call("other", held=dict.fromkeys(range(FEW), 1))
    worker.admit(fleet, 0)
    worker.loop.settle()
    (call,) = worker.wire.calls
    assert msgspec.msgpack.decode(call.argument)[-1] == [[0, 0, 0, *range(FEW)]]
    worker.deliver()
    assert worker.holding == [], "nobody knows yet whether another has less"
    worker.deliver()
    ((number, outcome, degraded),) = worker.granted
    assert number in range(FEW, 40)
    assert (outcome, degraded) == (Outcome.LEAST_OUTSTANDING, False)


def test_endpoints_do_not_wait_for_each_other(worker: Worker) -> None:
    granted: list[int] = []
    for endpoint_id in ("a", "b"):
        worker.in_flight.admit(endpoint_id, (1,), 9, 0, lambda number, outcome, degraded: granted.append(number))
    worker.loop.settle()
    assert {call.keys[0] for call in worker.wire.calls} == {b"warmroute:{a}:load", b"warmroute:{b}:load"}


# --- slow ------------------------------------------------------------------------------------------------------------


def test_past_the_budget_a_request_is_decided_alone(worker: Worker) -> None:
    worker.admit([1, 2], 4)
    worker.loop.advance(BUDGET_SECONDS - BUDGET_MARGIN_SECONDS)
    assert worker.granted == []
    worker.loop.advance(BUDGET_SECONDS)
    assert worker.granted == [(1, Outcome.HOME, True)]
    assert worker.in_flight.state is State.SLOW


def test_a_request_sent_between_two_looks_at_the_clock_waits_no_longer(worker: Worker) -> None:
    worker.admit([1, 2], 4)
    worker.loop.advance(BUDGET_SECONDS / 2)
    worker.deliver()
    worker.admit([1, 2], 4)
    worker.loop.settle()
    worker.loop.advance(BUDGET_SECONDS + BUDGET_MARGIN_SECONDS / 2)
    assert worker.granted == [(1, Outcome.HOME, False), (1, Outcome.HOME, True)]


def test_while_the_store_is_slow_nobody_waits_for_it(worker: Worker) -> None:
    worker.admit([1, 2], 4)
    worker.loop.advance(2 * BUDGET_SECONDS)
    for _ in range(3):
        worker.admit([1, 2], 4)
    assert worker.granted == [(1, Outcome.HOME, True)] * 4


def test_alone_a_key_keeps_its_home_and_its_threshold(worker: Worker) -> None:
    worker.wire.is_up = False
    worker.wire.lose()
    for _ in range(6):
        worker.admit([1, 2, 3], 2)
    assert worker.holding == [1, 1, 2, 3, 2, 3]


def test_alone_an_endpoint_never_heard_of_is_shared_as_others_are(worker: Worker) -> None:
    rival = known(Worker(worker.loop, worker.store))
    worker.renew()
    while worker.wire.calls or rival.wire.calls:
        (worker if worker.wire.calls else rival).deliver()
    worker.wire.is_up = False
    worker.wire.lose()
    granted: list[int] = []
    for _ in range(3):
        worker.in_flight.admit("new", (1, 2), 4, 0, lambda number, outcome, alone: granted.append(number))
    assert granted == [1, 1, 2], "half of the threshold is this worker's"


def test_a_grant_that_comes_too_late_is_handed_back(worker: Worker) -> None:
    """The store counted the request on 1; the worker had sent it to another before."""
    rival = known(Worker(worker.loop, worker.store))
    rival.count(2)
    rival.loop.settle()
    rival.deliver()
    worker.admit([2, 1], 1)
    worker.loop.advance(2 * BUDGET_SECONDS)
    assert worker.holding == [2], "it did not know of the rival's"
    worker.deliver()
    assert worker.store.load == {1: 1, 2: 1}
    assert worker.in_flight.state is State.UP
    worker.deliver()
    assert worker.store.load == {2: 2}
    assert worker.observer.corrections == 0


def test_after_a_slow_answer_admission_is_exact_again(worker: Worker) -> None:
    worker.admit([1], 9)
    worker.loop.advance(2 * BUDGET_SECONDS)
    while worker.wire.calls:
        worker.deliver()
    worker.admit([1, 2], 1)
    worker.loop.settle()
    assert worker.waiting == 1
    worker.deliver()
    assert worker.granted[-1] == (2, Outcome.OVERFLOW, False)


def test_a_connection_without_an_answer_is_given_up(worker: Worker) -> None:
    worker.observer.states.clear()
    worker.admit([1], 9)
    worker.loop.advance(GIVE_UP_SECONDS - 4 * BUDGET_SECONDS)
    assert worker.wire.opened == 1
    worker.loop.advance(GIVE_UP_SECONDS - worker.loop.now + 1_000 + 2 * BUDGET_SECONDS)
    assert worker.observer.states == ["slow", "down"]
    mend(worker)
    assert worker.observer.states == ["slow", "down", "up"]
    assert worker.wire.opened == 2
    assert worker.store.load == {1: 1}, "all was said again"


# --- away ------------------------------------------------------------------------------------------------------------


def test_a_lost_connection_decides_what_waits_at_once(worker: Worker) -> None:
    worker.admit([1], 9)
    worker.loop.settle()
    worker.admit([1], 9)
    worker.wire.lose()
    assert worker.granted == [(1, Outcome.HOME, True)] * 2


def test_reconnecting_backs_off_and_then_restates(worker: Worker) -> None:
    worker.count(1)
    worker.wire.is_up = False
    worker.wire.lose()
    worker.release(0)
    worker.count(2)
    worker.loop.advance(30.0, step=0.05)
    assert worker.wire.refused < 40, "once a second, not for each request"
    mend(worker)
    assert worker.in_flight.state is State.UP
    assert worker.store.load == {2: 1}


def test_a_release_that_was_lost_is_made_good_at_once_after_reconnecting(worker: Worker) -> None:
    """Nothing is held any more, and yet there is something to say; not only with the next renewal."""
    worker.count(1)
    worker.loop.settle()
    worker.deliver()
    worker.release(0)
    worker.loop.settle()
    worker.wire.lose()
    assert worker.store.load == {1: 1}
    mend(worker)
    assert worker.store.load == {}
    worker.loop.settle()
    assert not worker.wire.calls, "once is enough"


def test_a_worker_that_holds_nothing_restates_at_once_where_its_slot_has_moved(loop: VirtualLoop, store: Store) -> None:
    worker = known(Worker(loop, store))
    target = Wire(loop, "the target")
    worker.wire.nodes = {"target:1": target, "source:1": worker.wire}
    (link,) = worker.in_flight._links.values()
    for _ in range(2):
        loop.call_soon(worker.in_flight.topology, link, [[0, 16_383, [b"target", 1]]])
        loop.settle()
    worker.deliver(target)
    assert store.shares == {worker.name: {}}
    assert not worker.wire.calls


def test_each_change_of_state_is_told_and_logged_once(worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    """An outage does not fill the log, however many requests pass by."""
    caplog.set_level(logging.INFO)
    worker.observer.states.clear()
    worker.wire.is_up = False
    worker.wire.lose()
    for _ in range(500):
        worker.admit([1, 2], 4)
    worker.loop.advance(10.0, step=0.05)
    mend(worker)
    assert worker.observer.states == ["down", "up"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "WARMROUTE_REDIS_URL" in caplog.text


def test_a_worker_starts_without_the_store(loop: VirtualLoop, store: Store, caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker(loop, store, is_up=False)
    assert worker.in_flight.state is State.DOWN
    worker.admit([1, 2], 4)
    assert worker.granted == [(1, Outcome.HOME, True)]
    assert "Redis is not reachable (refused)" in caplog.text
    mend(worker)
    assert store.load == {1: 1}


# --- leases and rest -------------------------------------------------------------------------------------------------


def test_leases_are_renewed_three_times_each(worker: Worker) -> None:
    worker.count(1)
    worker.loop.settle()
    worker.deliver()
    for _ in range(3):
        worker.store.age(LEASE_SECONDS / 3 - 1)
        worker.renew()
        worker.deliver()
    assert worker.store.leases == {worker.name}
    assert worker.store.load == {1: 1}, "a stream longer than a lease stays counted"


def test_endpoints_out_of_use_are_forgotten(worker: Worker) -> None:
    """No more calls are made for them; one in use is kept, however long it has held its requests."""
    worker.count(1)
    worker.loop.settle()
    worker.deliver()
    for _ in range(6):
        worker.renew()
        worker.deliver()
    worker.release(0)
    worker.loop.settle()
    worker.deliver()
    worker.renew()
    while worker.wire.calls:
        worker.deliver()
    for _ in range(4):
        worker.renew()
    assert not worker.wire.calls
    assert worker.in_flight.held(worker.store.endpoint_id) == {}
    worker.count(7)
    worker.loop.settle()
    worker.deliver()
    assert worker.store.load == {7: 1}


def test_a_struck_worker_says_again_what_it_holds(worker: Worker) -> None:
    """It was paused past its lease, and another has struck it."""
    rival = known(Worker(worker.loop, worker.store))
    worker.count(1)
    worker.loop.settle()
    worker.deliver()
    worker.store.lapse(worker.name)
    rival.renew()
    rival.deliver()
    assert worker.store.load == {}
    while worker.wire.calls:
        worker.deliver()
    worker.admit([1, 2], 1)
    worker.loop.settle()
    while worker.wire.calls:
        worker.deliver()
    assert worker.granted == [(2, Outcome.OVERFLOW, False)]
    assert worker.store.load == {1: 1, 2: 1}
    assert worker.observer.corrections == 0


def test_releases_that_find_nothing_are_reported(worker: Worker) -> None:
    worker.count(1)
    worker.loop.settle()
    worker.deliver()
    worker.store.redis.hdel(worker.store.ledger_key, f"{worker.name}/1")
    worker.store.redis.hdel(worker.store.load_key, 1)
    worker.release(0)
    worker.loop.settle()
    worker.deliver()
    assert worker.observer.corrections == 1


# --- real servers ----------------------------------------------------------------------------------------------------

BUDGET = 0.2
"""More than a busy machine holds these tests up."""
LEASE = 1.0


class Live:
    """One worker's counts over a real connection."""

    _numbers = itertools.count(1)

    def __init__(self, server_url: str, endpoint_id: str) -> None:
        self.name = f"live{next(self._numbers)}"
        self.endpoint_id = endpoint_id
        self.observer = Observer()
        self.in_flight = InFlight(real_store.Address.of(server_url), self.name, LEASE, BUDGET, self.observer)
        self.loop = asyncio.get_running_loop()
        self.background: set[asyncio.Task[object]] = set()

    async def admit(self, order: tuple[int, ...] = (1, 2, 3), threshold: int = 4) -> tuple[int, Outcome, bool]:
        granted: asyncio.Future[tuple[int, Outcome, bool]] = self.loop.create_future()
        self.in_flight.admit(self.endpoint_id, order, threshold, 0, lambda *how: granted.set_result(how))
        return await granted

    def release(self, number: int) -> None:
        self.in_flight.release(self.endpoint_id, number)


@contextlib.asynccontextmanager
async def fleet(store: Store, url: str, count: int = 1) -> AsyncIterator[list[Live]]:
    workers = [Live(url, store.endpoint_id) for _ in range(count)]
    for worker in workers:
        before = asyncio.all_tasks()
        await worker.in_flight.start()
        worker.background = asyncio.all_tasks() - before
    try:
        yield workers
    finally:
        for worker in workers:
            await worker.in_flight.stop()


@pytest.fixture
def own(private_redis: Callable[..., PrivateServer]) -> Iterator[tuple[PrivateServer, Store]]:
    """A server of the test's own and the counts of one endpoint in it."""
    server = private_redis()
    store = Store(server.url)
    yield server, store
    store.close()


async def test_two_workers_at_once_are_exact(store: Store, redis_url: str) -> None:
    """Twelve simultaneous requests of one key over two workers: the home's peak is exactly the threshold, always."""
    async with fleet(store, redis_url, 2) as workers:
        for _ in range(25):
            granted = await asyncio.gather(*(workers[number % 2].admit() for number in range(12)))
            assert Counter(number for number, _, _ in granted) == {1: 4, 2: 4, 3: 4}
            assert not any(degraded for _, _, degraded in granted)
            for index, (number, _, _) in enumerate(granted):
                workers[index % 2].release(number)
            await wait_until_async(lambda: store.load == {})


async def test_a_frozen_store_costs_the_budget_once(own: tuple[PrivateServer, Store]) -> None:
    server, store = own
    async with fleet(store, server.url) as (worker,):
        held = [(await worker.admit())[0]]
        server.pause()
        try:
            began = worker.loop.time()
            number, outcome, degraded = await worker.admit()
            assert worker.loop.time() - began < 4 * BUDGET
            assert (number, outcome, degraded) == (1, Outcome.HOME, True)
            held.append(number)
            began = worker.loop.time()
            for _ in range(100):
                held.append((await worker.admit(threshold=200))[0])
            assert worker.loop.time() - began < BUDGET
            await wait_until_async(lambda: worker.in_flight.state is State.DOWN, 3.0)
        finally:
            server.resume()
        await wait_until_async(lambda: worker.in_flight.state is State.UP, 3.0)
        await wait_until_async(lambda: store.load == {1: 102}, LEASE)
        assert set(held) == {1}
        assert (await worker.admit())[2] is False
        assert worker.observer.states == ["up", "slow", "down", "up"]


async def test_a_store_that_answers_late_is_put_to_use(own: tuple[PrivateServer, Store]) -> None:
    server, store = own
    async with fleet(store, server.url) as (worker,):
        await worker.admit()
        server.pause()
        try:
            assert (await worker.admit())[2] is True
        finally:
            server.resume()
        await wait_until_async(lambda: worker.in_flight.state is State.UP and store.load == {1: 2})
        assert worker.observer.states == ["up", "slow", "up"], "on the same connection"


async def test_a_closed_connection_is_made_anew(own: tuple[PrivateServer, Store]) -> None:
    server, store = own
    async with fleet(store, server.url) as (worker,):
        await worker.admit()
        with redis.Redis.from_url(server.url) as client:
            client.client_kill_filter(_type="normal", skipme=True)
        assert (await worker.admit())[0] == 1
        await wait_until_async(lambda: store.load == {1: 2} and worker.in_flight.state is State.UP)
        assert (await worker.admit())[2] is False


async def test_a_restarted_store_is_told_the_truth(own: tuple[PrivateServer, Store]) -> None:
    """Killed, and back without data and without the script."""
    server, store = own
    async with fleet(store, server.url, 2) as workers:
        for worker in workers:
            await worker.admit()
        server.kill()
        await wait_until_async(lambda: all(worker.in_flight.state is State.DOWN for worker in workers))
        assert (await workers[0].admit())[2] is True
        server.start()
        await wait_until_async(lambda: all(worker.in_flight.state is State.UP for worker in workers))
        await wait_until_async(lambda: store.load == {1: 3}, LEASE)
        await wait_until_async(lambda: workers[1].in_flight.state is State.UP)
        assert (await workers[1].admit())[2] is False


async def test_forgotten_scripts_are_sent_again(store: Store, redis_url: str) -> None:
    async with fleet(store, redis_url) as (worker,):
        await worker.admit()
        store.redis.script_flush()
        assert await worker.admit() == (1, Outcome.HOME, False)
        assert store.load == {1: 2}


async def test_forgotten_counts_are_restated_within_a_lease(store: Store, redis_url: str) -> None:
    async with fleet(store, redis_url, 2) as workers:
        for worker in workers:
            await worker.admit()
        store.redis.flushdb()
        await wait_until_async(lambda: store.load == {1: 2}, LEASE)
        await wait_until_async(lambda: workers[0].in_flight.state is State.UP)
        assert await workers[0].admit((1, 2), 2) == (2, Outcome.OVERFLOW, False)


async def test_a_vanished_workers_counts_end_with_its_lease(store: Store, redis_url: str) -> None:
    async with fleet(store, redis_url, 2) as (one, other):
        await one.admit((1, 2), 1)
        await other.admit((1, 2), 1)
        for task in other.background:
            task.cancel()
        await wait_until_async(lambda: store.load == {1: 1}, LEASE + 1)


async def test_stopping_tells_the_last_releases(store: Store, redis_url: str) -> None:
    async with fleet(store, redis_url) as (worker,):
        numbers = [(await worker.admit())[0] for _ in range(6)]
        for number in numbers:
            worker.release(number)
    assert store.load == {}
    assert not any(store.shares.values())


async def test_stopping_does_not_wait_for_a_store_that_is_away(own: tuple[PrivateServer, Store]) -> None:
    server, store = own
    async with fleet(store, server.url) as (worker,):
        number, _, _ = await worker.admit()
        server.pause()
        worker.release(number)
        began = worker.loop.time()
        await worker.in_flight.stop()
        assert worker.loop.time() - began < GIVE_UP_SECONDS + 0.5
        server.resume()


async def test_a_store_that_refuses_the_script_is_no_reason_to_refuse_requests(
    own: tuple[PrivateServer, Store], caplog: pytest.LogCaptureFixture
) -> None:
    server, store = own
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "default", "-eval", "-evalsha")
    async with fleet(store, server.url) as (worker,):
        assert (await worker.admit())[::2] == (1, True)
        assert "did not run the admission script" in caplog.text
        with redis.Redis.from_url(server.url) as client:
            client.execute_command("ACL", "SETUSER", "default", "+@all")
        await wait_until_async(lambda: store.load == {1: 1} and worker.in_flight.state is State.UP)
        assert (await worker.admit())[2] is False

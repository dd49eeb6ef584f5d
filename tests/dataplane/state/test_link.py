"""What a link does with a node's refusals; its slowness and loss are tested in test_inflight."""

import logging
from collections import Counter
from collections.abc import Iterator

import hiredis
import pytest

from dataplane.routing.admission import Outcome
from dataplane.state.link import AGAIN_SECONDS, GIVE_UP_SECONDS, STEADY_SECONDS, State
from tests.dataplane.state.script import Store
from tests.dataplane.state.virtual import BUDGET_SECONDS, Wire, Worker, virtual_loop


@pytest.fixture
def worker(store: Store) -> Iterator[Worker]:
    """A worker that holds one request on instance 1, and a second node of its cluster, ``b:2``."""
    with virtual_loop() as loop:
        worker = Worker(loop, store)
        other = Wire(loop, "b:2")
        worker.wire.nodes = other.nodes = {"a:1": worker.wire, "b:2": other}
        other.slots = [[0, 16_383, [b"b", 2]]]
        worker.count(1)
        loop.settle()
        worker.deliver()
        yield worker


def other_node(worker: Worker) -> Wire:
    return worker.wire.nodes["b:2"]


def refuse(worker: Worker, said: str, wire: Wire | None = None) -> None:
    """Answer the oldest call with an error."""
    call = (wire or worker.wire).calls.popleft()
    worker.loop.call_soon(call.reply, hiredis.ReplyError(said))
    worker.loop.settle()


def connect_other(worker: Worker) -> None:
    """Let the worker know the other node, as it would from an earlier redirection."""
    other_node(worker).slots = [[0, 16_383, [b"a", 1]]]
    worker.admit([9], 9)
    worker.loop.settle()
    refuse(worker, "ASK 1 b:2")
    worker.loop.advance(AGAIN_SECONDS * 1.5)
    while worker.wire.calls:
        worker.deliver()
    assert other_node(worker).opened == 1
    assert not other_node(worker).calls
    worker.granted.clear()


def test_a_slot_that_moved_is_followed_and_told_everything(worker: Worker) -> None:
    """The request waits for its new node, which knows nothing of this worker; from then on all calls go there."""
    connect_other(worker)
    worker.admit([2], 9)
    worker.loop.settle()
    refuse(worker, "MOVED 1 b:2")
    assert worker.waiting == 1
    call, _ = worker.deliver(other_node(worker))
    held = call.words[4]
    assert dict(zip(held[::2], held[1::2], strict=True)) == {1: 1, 9: 1}
    assert worker.granted == [(2, Outcome.HOME, False)]
    assert "CLUSTER" in [str(word, "ascii") for word in other_node(worker).commands if isinstance(word, bytes)]
    worker.admit([2], 9)
    worker.loop.settle()
    assert not worker.wire.calls
    worker.deliver(other_node(worker))
    assert worker.store.load == {1: 1, 2: 2, 9: 1}


def test_a_move_to_a_node_out_of_reach_keeps_nobody_waiting(worker: Worker) -> None:
    other_node(worker).is_up = False
    worker.admit([2], 9)
    worker.loop.settle()
    refuse(worker, "MOVED 1 b:2")
    assert worker.granted == [(2, Outcome.HOME, True)]
    assert worker.in_flight.state is State.DOWN
    other_node(worker).is_up = True
    worker.loop.advance(0.5)
    worker.deliver(other_node(worker))
    assert worker.store.load == {1: 1, 2: 1}


def test_a_slot_on_its_way_is_asked_for_at_both_ends(worker: Worker) -> None:
    """ASK holds for one call, announced by ASKING; the next one goes to the old node again."""
    connect_other(worker)
    other_node(worker).commands.clear()
    worker.admit([2], 9)
    worker.loop.settle()
    refuse(worker, "ASK 1 b:2")
    assert other_node(worker).commands == [b"ASKING", "EVALSHA"]
    worker.deliver(other_node(worker))
    assert worker.granted == [(2, Outcome.HOME, False)]
    worker.admit([2], 9)
    worker.loop.settle()
    assert len(worker.wire.calls) == 1


def test_keys_that_are_torn_between_nodes_are_asked_for_again(worker: Worker) -> None:
    worker.admit([2], 9)
    worker.loop.settle()
    refuse(worker, "TRYAGAIN Multiple keys request during rehashing of slot")
    assert not worker.wire.calls
    worker.loop.advance(AGAIN_SECONDS * 1.5)
    worker.deliver()
    assert worker.granted == [(2, Outcome.HOME, False)]


def test_a_slot_that_stays_torn_keeps_nobody_waiting(worker: Worker) -> None:
    """Each repetition is a call of its own; together they must not take longer than the budget."""
    worker.admit([2], 9)
    worker.loop.settle()
    for _ in range(20):
        if worker.wire.calls:
            refuse(worker, "TRYAGAIN Multiple keys request during rehashing of slot")
        worker.loop.advance(0.005)
    assert worker.granted == [(2, Outcome.HOME, True)]


@pytest.mark.parametrize(
    "said",
    [
        "READONLY You can't write against a read only replica.",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "LOADING Redis is loading the dataset in memory",
        "CLUSTERDOWN The cluster is down",
        "NOPERM User default has no permissions to run the 'evalsha' command",
    ],
)
def test_any_other_refusal_is_decided_alone_and_tried_anew(
    worker: Worker, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A primary that became a replica is left; whoever is behind the address by then is told everything."""
    worker.admit([2], 9)
    worker.loop.settle()
    refuse(worker, said)
    assert worker.granted == [(2, Outcome.HOME, True)]
    assert said in caplog.text
    worker.loop.advance(0.3)
    assert worker.wire.opened == 2
    worker.deliver()
    assert worker.store.load == {1: 1, 2: 1}


def test_a_node_that_goes_on_refusing_is_tried_with_growing_waits_and_said_once(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """Connecting works all the time, so only a script that ran makes the node up again."""
    caplog.set_level(logging.INFO)
    worker.observer.states.clear()
    for _ in range(300):
        worker.admit([2], 9)
        for _ in range(10):
            worker.loop.advance(0.01)
            while worker.wire.calls:
                refuse(worker, "OOM command not allowed when used memory > 'maxmemory'.")
    assert worker.waiting == 0
    assert worker.wire.opened < 40, "about once a second"
    assert worker.observer.states == ["down"]
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    while worker.in_flight.state is not State.UP:
        worker.loop.advance(0.01)
        while worker.wire.calls:
            worker.deliver()
    assert worker.store.load == {1: 1, 2: 300}
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING", "INFO"]


def test_a_node_that_is_always_too_slow_is_not_waited_for_again_and_again(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """Its answers, 50 ms late, are put to use; requests stop waiting for them after the second time."""
    caplog.set_level(logging.INFO)
    waited = 0
    for _ in range(200):
        worker.admit([2], 99)
        waited += worker.waiting
        worker.loop.advance(0.05)
        while worker.wire.calls:
            worker.deliver()
            worker.loop.advance(0.05)
    assert waited == 2
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]
    assert worker.store.load == {1: 1, 2: 200}
    worker.loop.advance(5.0, step=0.05)
    worker.admit([2], 99)
    worker.loop.settle()
    while worker.wire.calls:
        worker.deliver()
    assert worker.in_flight.state is State.UP, "an answer in time, after a while"


def test_a_node_that_is_late_now_and_then_is_exact_in_between_and_does_not_fill_the_log(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """Every tenth answer is 30 ms late: only what waits for it, and what comes next, is decided alone."""
    caplog.set_level(logging.INFO)
    for number in range(301):
        worker.admit([2], 999)
        worker.loop.settle()
        if number % 10 == 9:
            worker.loop.advance(0.05)
        while worker.wire.calls:
            worker.deliver()
        worker.loop.advance(0.05)
    alone = sum(degraded for _, _, degraded in worker.granted)
    assert 30 <= alone <= 60
    assert len(caplog.records) <= 2 * 15.0 / STEADY_SECONDS + 2
    assert worker.in_flight.state is State.UP


def test_a_worker_that_was_held_up_itself_does_not_blame_the_node(worker: Worker) -> None:
    """SIGSTOP and SIGCONT of the worker: the answer is there, and is read before the clock is looked at."""
    worker.observer.states.clear()
    worker.admit([2], 9)
    worker.loop.settle()
    worker.loop.now += 60
    worker.loop.settle()
    worker.deliver()
    worker.loop.advance(0.1)
    assert worker.granted == [(2, Outcome.HOME, False)]
    assert worker.observer.states == []
    assert worker.wire.opened == 1


def test_a_node_just_heard_of_is_connected_to_before_anything_is_decided(worker: Worker) -> None:
    """A new primary after a failover: the first request that follows it there is counted exactly."""
    worker.admit([2], 9)
    worker.loop.settle()
    refuse(worker, "MOVED 1 b:2")
    worker.deliver(other_node(worker))
    assert worker.granted == [(2, Outcome.HOME, False)]
    assert worker.store.load == {1: 1, 2: 1}


def test_nodes_that_send_a_call_in_circles_are_not_asked_without_pause(worker: Worker) -> None:
    """Right after a failover nodes may each take the other for the slot's primary."""
    connect_other(worker)
    worker.admit([2], 9)
    worker.loop.settle()
    worker.wire.commands.clear()
    for _ in range(1_000):
        if worker.wire.calls:
            refuse(worker, "MOVED 1 b:2")
        elif other_node(worker).calls:
            refuse(worker, "MOVED 1 a:1", other_node(worker))
        else:
            worker.loop.advance(AGAIN_SECONDS / 5)
    assert worker.granted == [(2, Outcome.HOME, True)]
    assert worker.wire.commands.count("EVALSHA") < 200


def test_a_node_that_left_the_cluster_does_not_make_it_forgotten(worker: Worker) -> None:
    """It answers that nobody serves any slot, which says nothing of the others."""
    worker.wire.slots = [[0, 16_383, [b"b", 2]]]
    worker.wire.lose()
    worker.loop.advance(0.2)
    other_node(worker).calls.clear()
    worker.wire.slots = []
    worker.wire.lose()
    worker.loop.advance(0.5)
    assert worker.wire.opened == 3
    assert not worker.wire.calls


def test_a_call_that_hangs_at_the_other_end_of_a_move_is_given_up_there(worker: Worker) -> None:
    """The node that takes the slot over freezes: it is hung up on, the endpoint's own node is not, nobody waits."""
    connect_other(worker)
    worker.admit([2], 9)
    worker.loop.settle()
    refuse(worker, "ASK 1 b:2")
    assert len(other_node(worker).calls) == 1
    for _ in range(int(GIVE_UP_SECONDS / BUDGET_SECONDS) + 5):
        worker.admit([2], 9)
        worker.loop.advance(BUDGET_SECONDS)
    assert worker.waiting == 0
    assert (worker.wire.opened, other_node(worker).opened) == (1, 1)
    assert (worker.wire.on_lost is None, other_node(worker).on_lost is None) == (False, True)
    while worker.wire.calls:
        worker.deliver()
    assert worker.store.load == Counter(worker.holding)

"""What a link does with a node's refusals; its slowness and loss are tested in test_inflight."""

from collections.abc import Iterator

import hiredis
import pytest

from dataplane.routing.admission import Outcome
from dataplane.state.link import AGAIN_SECONDS, State
from tests.dataplane.state.script import Store
from tests.dataplane.state.virtual import Wire, Worker, virtual_loop


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
    worker.loop.advance(0.1)
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
    """C91: a primary that became a replica is left; whoever is behind the address by then is told everything."""
    worker.admit([2], 9)
    worker.loop.settle()
    refuse(worker, said)
    assert worker.granted == [(2, Outcome.HOME, True)]
    assert said in caplog.text
    worker.loop.advance(0.3)
    assert worker.wire.opened == 2
    worker.deliver()
    assert worker.store.load == {1: 1, 2: 1}

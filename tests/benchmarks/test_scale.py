import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.scale import measure, messages, tables
from benchmarks.scale.host import Clock, Stream
from benchmarks.scale.load import Caller, Closed, Reader, Served, Streams
from benchmarks.scale.measure import Cost, Held, Setting
from benchmarks.scale.site import Site, site
from benchmarks.scale.study import INSTANCES, STREAMS, plan
from contract.routing_table import Strategy

COST = Cost(Setting("instances"), (60.0, 50.0, 70.0), (9.0, 8.0, 10.0), (9e3, 8e3, 1e4), 0.9, 0.4, 3, 0, 50.0)
HELD = Held(0, 50.0, 50.0, (1.0, 0.9, 1.1), (2.0, 1.9, 2.1), (1.0, 0.9, 1.1), 0, (0.01, 0.01, 0.01))


@pytest.fixture(scope="module")
def around() -> Iterator[Site]:
    with site() as found:
        yield found


# --- what is sent and answered ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("events", [0, 24])
def test_a_request_is_read_as_it_was_written(events: int) -> None:
    body = messages.body(messages.prefix(1_999), 123_456, events)
    assert len(body) == messages.BODY_BYTES
    assert messages.read_body(body) == (123_456, events)


@pytest.mark.parametrize("at", range(0, messages.BODY_BYTES, 97))
def test_a_request_with_another_byte_is_refused(at: int) -> None:
    body = bytearray(messages.body(messages.prefix(7), 1))
    body[at] ^= 1
    # A digit that became another one is a request that somebody might have sent, but not the one of this turn.
    try:
        assert messages.read_body(bytes(body)) != (1, 0)
    except ValueError:
        return
    raise AssertionError


def test_an_answer_is_its_turns_and_names_its_instance() -> None:
    answer = messages.answer(5, b"i17")
    assert len(answer) == messages.ANSWER_BYTES
    assert messages.read_answer(answer, 5) == b"i17"
    for other in (messages.answer(6, b"i17"), answer[:-1], answer.replace(b"aaa", b"aba", 1)):
        with pytest.raises(ValueError, match="not the answer"):
            messages.read_answer(other, 5)


# --- the load does not believe what it did not see -------------------------------------------------------------------


class Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.sent.append(data)

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self

    def setsockopt(self, *arguments: object) -> None:
        pass


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % messages.ANSWER_BYTES


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        (HEAD + messages.answer(3, b"i1"), True),
        (HEAD + messages.answer(4, b"i1"), False),
        (HEAD + messages.answer(3, b"i1") + b"x", False),
        (b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n", False),
    ],
    ids=["right", "of another turn", "a byte more", "not 200"],
)
@pytest.mark.parametrize("cut", [10, 70, 10_000])
def test_a_caller_takes_only_its_answer(answer: bytes, is_right: bool, cut: int) -> None:
    failed: list[Exception] = []
    done: list[bytes] = []
    caller = Caller(failed.append)
    caller.connection_made(Wire())
    caller.ask(b"", 3, lambda _, instance: done.append(instance))
    for part in (answer[:cut], answer[cut:]):
        if part:
            caller.data_received(part)
    assert done == ([b"i1"] if is_right else [])
    assert bool(failed) is not is_right


def _told(parts: list[bytes], events: int) -> list[str]:
    told: list[str] = []
    reader = Reader(9, b"", events, lambda _, what: told.append(what))
    reader.connection_made(Wire())
    reader.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    for part in parts:
        reader.data_received(b"%x\r\n%b\r\n" % (len(part), part))
    reader.data_received(b"0\r\n\r\n")
    return told


def test_a_reader_knows_a_whole_stream_however_it_is_cut() -> None:
    data = b"".join(messages.event(9, number) for number in range(3))
    assert _told([data[:5], data[5:150], data[150:]], 3) == ["open", "whole"]


@pytest.mark.parametrize("change", ["byte", "missing", "twice", "short", "other stream"])
def test_a_reader_sees_every_difference(change: str) -> None:
    events = [messages.event(9, number) for number in range(3)]
    if change == "byte":
        events[1] = events[1].replace(b"word", b"worb")
    elif change == "missing":
        del events[1]
    elif change == "twice":
        events.insert(1, events[0])
    elif change == "short":
        events[2] = events[2][:-1]
    else:
        events[0] = messages.event(8, 0)
    assert _told(events, 3)[-1] not in ("open", "whole")


def test_a_host_sends_what_a_reader_wants() -> None:
    wire = Wire()
    stream = Stream(wire, 9, 2)
    assert [stream.next(), stream.next()] == [True, False]
    told: list[str] = []
    reader = Reader(9, b"", 2, lambda _, what: told.append(what))
    reader.connection_made(Wire())
    reader.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"".join(wire.sent))
    assert told == ["open", "whole"]
    assert Clock()


# --- measuring -------------------------------------------------------------------------------------------------------


def test_a_closed_loop_reaches_all_instances_of_all_endpoints(around: Site) -> None:
    found = measure.cost(around, Setting("endpoints", 3, 4), 2, 0.3, 300)
    assert found.reached == 12
    assert found.worker_us[0] > 5
    assert 0 < found.busy <= 1.5
    assert found.memory_mb > 10


def test_every_worker_is_accounted_for(around: Site) -> None:
    with around.data_plane(Setting("workers").table(around.ports[0]), 3) as plane:
        assert len(plane.workers) == 3


def test_an_instance_that_is_set_aside_gets_nothing(around: Site) -> None:
    assert measure.cost(around, Setting("instances", 10, is_one_down=True), 1, 0.3, 300).reached == 9


def test_a_wrong_answer_ends_the_run(around: Site) -> None:
    """The endpoint's name is not in the table: 400 is not an answer."""
    with around.data_plane(Setting("instances").table(around.ports[0])) as plane:
        loop = Closed(plane.port, 2, ["nobody"], 10, 1, 0.2, 10, plane.workers, around.redis_pid)
        with pytest.raises(BenchmarkError, match=r"answered b'HTTP/1\.1 400"):
            around.result(around.start(loop), Served)
        with pytest.raises(BenchmarkError, match="answered 400"):
            around.result(around.start(Streams(plane.port, "nobody", 2, 3, 100.0)), Served)


def test_the_load_is_a_program_of_its_own() -> None:
    ended = subprocess.run([sys.executable, "-m", "benchmarks.scale.load", "{}"], capture_output=True, text=True)
    assert ended.returncode != 0
    assert "RESULT" not in ended.stdout


# --- what is made of it ----------------------------------------------------------------------------------------------


def test_the_plan_has_every_axis() -> None:
    listed = plan(quick=False)
    assert len(set(listed)) == len(listed)
    for strategy in Strategy:
        assert {s.instances for s in listed if s.strategy is strategy and s.axis == "instances"} == set(INSTANCES)
    assert {s.endpoints for s in listed if s.axis == "endpoints"} == {1, 1_000}
    assert {s.workers for s in listed if s.axis == "workers"} == {1, 2, 3, 4}
    assert STREAMS[0] == 0
    assert STREAMS[-1] == 4_000


@pytest.mark.parametrize(("us", "word"), [(89.0, "within"), (91.0, "over")])
def test_the_instances_target_is_said_as_it_is_met(us: float, word: str) -> None:
    many = replace(COST, setting=Setting("instances", 1_000), worker_us=(us, us, us))
    (said, *_) = tables.findings([COST, many], [HELD, replace(HELD, streams=4_000)])
    assert said == f"PREFIX_AWARE: 1,000 instances cost {us / 60:.2f} x what 3 cost, {word} the target of 1.5."


@pytest.mark.parametrize(
    ("megabytes", "p95", "words"), [(399, 6.9, ("below", "unharmed")), (401, 7.1, ("over", "harmed"))]
)
def test_the_streams_targets_are_said_as_they_are_met(megabytes: float, p95: float, words: tuple[str, str]) -> None:
    most = replace(HELD, streams=4_000, events=80_000, memory_mb=megabytes, through_p95=(p95, p95, p95))
    memory, others = tables.findings([COST, COST], [HELD, most])[1:3]
    assert f"{words[0]} the target of 400" in memory
    assert f", {words[1]};" in others


def test_every_measurement_is_in_tables_records_and_plot() -> None:
    costs = [replace(COST, setting=setting) for setting in plan(quick=False)]
    holds = [replace(HELD, streams=count) for count in STREAMS]
    assert sum(len(table.rows) for table in tables.all_of(costs, holds)) == len(costs) + len(holds)
    assert len(tables.records(costs, holds)) == len(costs) + len(holds)
    panels = tables.plot(costs, holds).panels
    assert [len(panel.curves) for panel in panels] == [4, 2, 2]


@pytest.mark.parametrize(("busy", "shown"), [((0.11, 0.1, 0.12), "25"), ((0.02, 0.01, 0.03), "")])
def test_the_cost_of_an_event_is_told_where_it_can_be(busy: tuple[float, float, float], shown: str) -> None:
    held = replace(HELD, streams=4_000, busy=busy)
    (streams,) = [table for table in tables.all_of([COST], [HELD, held]) if table.name == "streams"]
    column = streams.columns.index("CPU of an event, us")
    assert [row[column] for row in streams.rows] == ["", shown]

"""Release exactly once: whatever callers and hosts do, at whatever phase, no count is left behind and none is lost.

On each endpoint some requests stay open throughout. A count that is released twice would take one of theirs, one that
is never released would add to them.
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.dataplane_e2e.stage import Fleet, Stage, chat_body, invoke, prefix
from tests.fakes.answers import Answer, Flood, Gate, Raw, Script, echo, sse
from tests.fakes.data_plane import DataPlane
from tests.fakes.model_host import ModelHost
from tests.fakes.raw_client import RawClient, request_bytes
from tests.fleet.stage import JSON, SETTINGS, counted, held, wait_true, working
from tests.waiting import wait_until

ROUTES = ("invocations", "stream", "chat")
LIMIT_SECONDS = 2.0
FLOOD_BYTES = 2**26
HALF_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
HALF_CHUNK = HEAD + b"5\r\nfirst\r\n" + b"400\r\n" + b"x" * 100


def read_head(client: RawClient) -> None:
    client.read_head()


def read_some(client: RawClient) -> None:
    client.read_head()
    next(client.chunks())


def read_nothing(client: RawClient) -> None:
    """Leave at once."""


@dataclass(frozen=True)
class Phase:
    """Where in a request's life its caller leaves."""

    name: str
    host: Callable[[], Script]
    """What the host does with it."""
    reads: Callable[[RawClient], None] = read_nothing
    sends: float = 1.0
    """Share of the request that is sent."""
    arrives: bool = True
    """The host has it before the caller leaves."""


PHASES = [
    Phase("in its head", lambda: echo, sends=0.01, arrives=False),
    Phase("in its body", lambda: echo, sends=0.5, arrives=False),
    Phase("right after sending", lambda: echo, arrives=False),
    Phase("delivered, before the head", lambda: Answer(before=Gate())),
    Phase("in the answer's head", lambda: Raw([HALF_HEAD, Gate()])),
    Phase("between head and body", lambda: Raw([HEAD, Gate()]), read_head),
    Phase("in the middle of a chunk", lambda: Raw([HALF_CHUNK, Gate()]), read_some),
    Phase("between two events", lambda: sse(b"data: 1\n\n", Gate()), read_some),
    Phase("reading too slowly", lambda: Flood(FLOOD_BYTES), read_head),
    Phase("at the end", lambda: echo, read_head, arrives=False),
]


def leave(client: RawClient, number: int) -> None:
    """Leave by FIN or by RST."""
    client.close() if number % 2 else client.reset()


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
def test_callers_that_leave_leave_nothing_behind(planes: list[DataPlane], fleet: Fleet, phase: Phase) -> None:
    """10 callers leave at each of 10 phases (the rest of 120 below), on every route, by FIN and by RST."""
    deployed = fleet.deploy(2, threshold=2)
    body = prefix(0, 20_000)
    with held(planes, deployed, [(deployed.invocations, body)] * 3):
        before = working(deployed)
        for host in deployed.hosts:
            host.answer = phase.host()
        clients = []
        for number in range(10):
            target = getattr(deployed, ROUTES[number % 3])
            request = request_bytes(target, chat_body("x" * 20_000) if "chat" in target else body, JSON)
            client = planes[number % 2].client(receive_buffer=65_536)
            client.send(request[: int(len(request) * phase.sends)])
            clients.append(client)
        if phase.arrives:
            wait_until(lambda: deployed.in_flight == 13, what="all have reached a host")
        for client in clients:
            phase.reads(client)
        for number, client in enumerate(clients):
            leave(client, number)
        wait_until(
            lambda: working(deployed) == counted(fleet, deployed) == before,
            LIMIT_SECONDS,
            f"only {before} is left: {working(deployed)} on the hosts, {counted(fleet, deployed)} in Redis",
        )
    if phase.arrives:
        found = [delivery for host in deployed.hosts for delivery in host.deliveries]
        # A host in the middle of writing learns of the end by that.
        cut = [one for one in found if one.peer_left is not None or 2**16 < one.bytes_sent < FLOOD_BYTES]
        assert len(cut) == 10, "each host was told by the end of its connection"


def test_callers_that_leave_while_a_connection_is_made(planes: list[DataPlane], fleet: Fleet) -> None:
    """10 more: the host takes no connection."""
    deployed = fleet.deploy(1)
    (host,) = deployed.hosts
    host.die()
    host.stall()
    clients = [planes[number % 2].client().ask(deployed.invocations, b"x") for number in range(10)]
    wait_until(lambda: sum(counted(fleet, deployed).values()) == 10)
    for number, client in enumerate(clients):
        leave(client, number)
    wait_until(lambda: not counted(fleet, deployed), LIMIT_SECONDS)
    host.die()
    host.start()
    with planes[0].client() as client:
        wait_until(lambda: client.request(deployed.invocations, b"x").status == 200)


def test_callers_that_leave_a_worker_that_drains(stage: Stage, planes: list[DataPlane], fleet: Fleet) -> None:
    """The last 10: the worker was told to stop, its requests are still open; then it ends at once."""
    plane = stage.start(settings=SETTINGS)
    deployed = fleet.deploy(2)
    with held(planes, deployed, [(deployed.invocations, b"x")] * 2):
        before = working(deployed)
        for host in deployed.hosts:
            host.answer = sse(b"data: 1\n\n", Gate())
        clients = [plane.client().ask(getattr(deployed, ROUTES[number % 3]), chat_body("x")) for number in range(10)]
        for client in clients:
            client.read_head()
        assert plane.process is not None
        plane.signal(signal.SIGTERM)
        wait_until(lambda: plane.status("/health/live") == 0, what="the plane takes nothing more")
        wait_until(lambda: sum(counted(fleet, deployed).values()) == 12)
        for number, client in enumerate(clients):
            leave(client, number)
        wait_until(lambda: working(deployed) == before, LIMIT_SECONDS)
        wait_until(lambda: counted(fleet, deployed) == before, LIMIT_SECONDS)
        assert plane.process.wait(LIMIT_SECONDS + 2) == 0
        plane.process = None
    stage.planes.remove(plane)


def refuse(host: ModelHost) -> None:
    host.die()


def stall(host: ModelHost) -> None:
    host.die()
    host.stall()


FAILURES: dict[str, Callable[[ModelHost], object] | Script] = {
    "refuses": refuse,
    "stalls": stall,
    "closes before its head": Raw(),
    "resets before its head": Raw(ending="reset"),
    "closes in its head": Raw([HALF_HEAD]),
    "resets in its head": Raw([HALF_HEAD], ending="reset"),
    "no HTTP": Raw([b"220 mail.example ESMTP\r\n"]),
    "head too long": Raw([b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"]),
    "closes after its head": Raw([HEAD]),
    "closes in a chunk": Raw([HALF_CHUNK]),
    "resets in a chunk": Raw([HALF_CHUNK], ending="reset"),
    "ends too early": Answer(body=b"half", ending="cut"),
    "resets in its body": Answer(body=b"half", ending="reset"),
    "500": Answer(status=500),
    "503": Answer(status=503),
    "500 without an end": Answer(status=500, body=[b"x" * 1000] * 100, ending="cut"),
    "429": Answer(status=429),
    "silent before its head": Answer(before=Gate()),
    "silent in its body": sse(b"data: 1\n\n", Gate()),
}
PATIENCE = {
    **SETTINGS,
    "INVOKE_TIMEOUT_SECONDS": 0.5,
    "FIRST_BYTE_TIMEOUT_SECONDS": 0.5,
    "IDLE_TIMEOUT_SECONDS": 0.5,
    "CONNECT_TIMEOUT_SECONDS": 0.3,
}


@pytest.fixture(scope="module")
def hasty(stage: Stage) -> DataPlane:
    """A worker whose time limits a test can wait for."""
    return stage.start(settings=PATIENCE)


@pytest.mark.parametrize("failure", FAILURES)
def test_a_host_that_fails_leaves_nothing_behind(
    planes: list[DataPlane], hasty: DataPlane, fleet: Fleet, failure: str
) -> None:
    """6 requests meet a host that fails; afterwards nothing of them is counted, and home is free again."""
    deployed = fleet.deploy(2, threshold=2)
    script = FAILURES[failure]
    with held(planes, deployed, [(deployed.invocations, prefix(0))]):
        before = counted(fleet, deployed)
        (busy,) = before
        for host in deployed.hosts:
            if script in (refuse, stall):
                # The one with the held request stays: its connections are the test's measure.
                if host.name != busy:
                    script(host)  # type: ignore[operator]
            else:
                host.answer = script  # type: ignore[assignment]
        clients = [hasty.client().ask(getattr(deployed, route), chat_body("x")) for route in ROUTES * 2]
        statuses = [client.outcome() for client in clients]
        for client in clients:
            client.close()
        assert all(statuses), statuses
        wait_until(lambda: counted(fleet, deployed) == before, LIMIT_SECONDS)
        for host in deployed.hosts:
            host.answer = echo
            host.start()
        wait_true(fleet, deployed, LIMIT_SECONDS)
    assert hasty.metric("warmroute_in_flight_corrections_total") == 0
    with planes[0].client() as client:
        home = invoke(client, deployed, prefix(0))
        wait_until(lambda: not counted(fleet, deployed))
        assert invoke(client, deployed, prefix(0)) == home

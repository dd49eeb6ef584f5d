"""Callers that leave, at every phase: the host's connection is closed, the count returns, nobody else notices."""

import time

import pytest

from tests.dataplane_e2e.stage import Deployed, Fleet, asking, chat_body, invoke, prefix
from tests.fakes.answers import Answer, Flood, Gate, Script, echo, sse
from tests.fakes.data_plane import DataPlane
from tests.fakes.raw_client import RawClient, request_bytes
from tests.waiting import wait_until

ROUTES = ["invocations", "stream", "chat"]


def leave(client: RawClient, how: str) -> None:
    """Leave by FIN or by RST."""
    client.reset() if how == "reset" else client.close()


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("route", ROUTES)
def test_a_caller_that_leaves_before_the_head_frees_the_host(
    plane: DataPlane, fleet: Fleet, route: str, how: str
) -> None:
    """The host sees its connection closed within a second."""
    deployed = fleet.deploy(2)
    gates = [host.hold() for host in deployed.hosts]
    client = plane.client()
    client.ask(getattr(deployed, route), chat_body("x"))
    wait_until(lambda: deployed.in_flight == 1)
    leave(client, how)
    wait_until(lambda: deployed.in_flight == 0, 1.0)
    (delivery,) = (delivery for host in deployed.hosts for delivery in host.deliveries)
    assert delivery.peer_left is not None
    fleet.expect_idle(2.0)
    for gate in gates:
        gate.open()


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("route", ROUTES)
def test_a_caller_that_leaves_in_the_middle_frees_the_host(
    plane: DataPlane, fleet: Fleet, route: str, how: str
) -> None:
    """After the first event."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = sse(b"data: 1\n\n", Gate())
    client = plane.client()
    client.ask(getattr(deployed, route), chat_body("x", stream=True))
    client.until(b"data: 1")
    leave(client, how)
    wait_until(lambda: deployed.in_flight == 0, 1.0)
    assert deployed.hosts[0].deliveries[0].peer_left is not None
    fleet.expect_idle(2.0)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_caller_that_stopped_reading_and_leaves_frees_the_host(plane: DataPlane, fleet: Fleet, how: str) -> None:
    """Nothing can be written, the leaving is seen all the same."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = Flood(64 * 2**20)
    client = plane.client(receive_buffer=65_536)
    client.ask(deployed.chat, chat_body("x"))
    client.read_head()
    wait_until(lambda: deployed.in_flight == 1)
    leave(client, how)
    wait_until(lambda: deployed.in_flight == 0, 2.0)
    fleet.expect_idle(2.0)


def test_a_caller_that_leaves_in_its_own_body_reaches_no_host(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    for how in ("close", "reset"):
        client = plane.client()
        client.send(request_bytes(deployed.invocations, b"x" * 10_000)[:-1])
        leave(client, how)
    with plane.client() as client:
        invoke(client, deployed, b"last")
    assert deployed.hosts[0].bodies == [b"last"]


def test_a_caller_that_shuts_only_its_sending_side_gets_its_answer_or_is_let_go(plane: DataPlane, fleet: Fleet) -> None:
    """Half-close after a whole request: a caller that is still there is answered or closed, never left hanging."""
    deployed = fleet.deploy(1)
    with plane.client() as client:
        client.ask(deployed.invocations, b"x")
        client.shut()
        data = client.rest()
    assert data == b"" or data.startswith(b"HTTP/1.1 200 ")


def test_120_callers_that_leave_at_every_phase_leave_nothing_behind(
    plane: DataPlane, second_plane: DataPlane, fleet: Fleet
) -> None:
    """Counts at zero and the host's connections closed within 2 s; then the threshold is as exact as before."""
    deployed = fleet.deploy(3, threshold=2)
    body = prefix(0, 20_000)
    with plane.client() as client:
        home = invoke(client, deployed, body)
    scripts: list[Script] = [Answer(before=Gate()), sse(b"data: 1\n\n", Gate()), Flood(2**24), echo]
    for number in range(120):
        script = scripts[number % 4]
        for host in deployed.hosts:
            host.answer = script
        client = (plane, second_plane)[number % 2].client()
        target = getattr(deployed, ROUTES[number % 3])
        request = request_bytes(target, body if target != deployed.chat else chat_body("x" * 2_000))
        cut = number // 12
        client.send(request[: len(request) * cut // 5] if cut < 5 else request)
        if cut == 6:
            wait_until(lambda: deployed.in_flight > 0 or deployed.delivered > 0)
        if cut > 6 and script is not scripts[0]:
            client.read_head()
        leave(client, ("close", "reset")[number % 2])
    wait_until(lambda: deployed.in_flight == 0, 2.0)
    fleet.expect_idle(2.0)
    for host in deployed.hosts:
        host.clear()
    gates = [host.hold() for host in deployed.hosts]
    targets = [(deployed.invocations, body)] * 2
    with asking(plane, targets) as one, asking(second_plane, targets) as two:
        wait_until(lambda: deployed.in_flight == 4)
        assert deployed.busy()[home] == 2
        for gate in gates:
            gate.open()
        assert {client.read().status for client in [*one, *two]} == {200}


def test_callers_that_leave_while_connections_are_made_do_not_use_up_the_pool(plane: DataPlane, fleet: Fleet) -> None:
    """A host that accepts nothing for a while, 300 callers that give up; then it recovers and 50 are served."""
    deployed = fleet.deploy(1)
    host = deployed.hosts[0]
    host.die()
    host.stall()
    clients = []
    for _ in range(300):
        client = plane.client()
        clients.append(client.ask(deployed.invocations, b"x"))
    for number, client in enumerate(clients):
        leave(client, ("close", "reset")[number % 2])
    host.die()
    host.start()
    with plane.client() as client:
        wait_until(lambda: client.request(deployed.invocations, b"x").status == 200)
    started = time.monotonic()
    with asking(plane, [(deployed.invocations, b"x")] * 50) as waiting:
        assert [client.read().status for client in waiting] == [200] * 50
    assert time.monotonic() - started < 1.5
    wait_until(lambda: host.open_connections <= 50)
    fleet.expect_idle(2.0)


def test_a_pipelined_caller_that_leaves_ends_what_waits_behind(plane: DataPlane, fleet: Fleet) -> None:
    """The requests behind the open one are not sent to a host after the caller has gone."""
    deployed = fleet.deploy(1)
    host = deployed.hosts[0]
    gate = host.hold()
    client = plane.client()
    for _ in range(5):
        client.ask(deployed.invocations, b"x")
    wait_until(lambda: host.in_flight == 1)
    client.close()
    wait_until(lambda: host.in_flight == 0, 1.0)
    gate.open()
    fleet.expect_idle()
    with plane.client() as other:
        invoke(other, deployed, b"y")
    assert len(host.deliveries) <= 2


def test_a_caller_that_leaves_is_marked_in_the_log(plane: DataPlane, fleet: Fleet) -> None:
    """One line that says 499, no traceback."""
    deployed: Deployed = fleet.deploy(1)
    deployed.hosts[0].hold()
    at = len(plane.output)
    client = plane.client()
    client.ask(deployed.invocations, b"x")
    wait_until(lambda: deployed.in_flight == 1)
    client.close()
    lines = wait_until(lambda: [line for line in plane.output[at:].splitlines() if deployed.name in line])
    assert len(lines) == 1
    assert '"status":499' in lines[0]

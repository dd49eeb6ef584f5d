"""Hosts that refuse, die, lie or come back: retries by evidence, health, and counts that return to zero."""

import json
import time

import openai
import pytest

from tests.dataplane_e2e.stage import (
    Deployed,
    Fleet,
    asking,
    chat_body,
    error_of,
    homes,
    invoke,
    native_error,
    openai_client,
    prefix,
    runtime,
)
from tests.fakes.answers import Answer, Gate, Raw, Script, echo
from tests.fakes.data_plane import DataPlane
from tests.fakes.raw_client import RawClient
from tests.waiting import wait_until


def recovered(client: RawClient, deployed: Deployed, body: bytes, home: str) -> None:
    """Wait until a prefix is served at home, and check that it stays there."""
    wait_until(lambda: invoke(client, deployed, body) == home, 5.0, f"the prefix is back at {home}")
    assert {invoke(client, deployed, body) for _ in range(5)} == {home}


def test_a_refused_connection_is_tried_elsewhere(plane: DataPlane, fleet: Fleet) -> None:
    """Nothing was sent, so another instance may have it; home is resumed when the host is back."""
    deployed = fleet.deploy(3)
    with plane.client() as client:
        home = invoke(client, deployed, prefix(0))
        deployed.host(home).die()
        for target in (deployed.invocations, deployed.stream, deployed.chat):
            assert client.request(target, b'{"messages":[]}').status == 200
        found = {invoke(client, deployed, prefix(0)) for _ in range(10)}
        assert len(found) == 1, "one key has one stand-in"
        assert found != {home}
        deployed.host(home).start()
        recovered(client, deployed, prefix(0), home)


def test_no_reachable_host_is_answered_fast_and_healed_by_itself(plane: DataPlane, fleet: Fleet) -> None:
    """503 within the connect timeout and a second; first success within a second of the hosts' return."""
    deployed = fleet.deploy(2)
    with plane.client() as client:
        before = homes(client, deployed, [prefix(number) for number in range(20)])
        for host in deployed.hosts:
            host.die()
        for _ in range(10):
            started = time.monotonic()
            answer = client.request(deployed.invocations, prefix(0))
            assert native_error(answer)[:2] == (503, "ServiceUnavailable")
            assert "AllTraffic" in json.loads(answer.body)["Message"]
            assert time.monotonic() - started < 1.5
        for host in deployed.hosts:
            host.start()
        back = time.monotonic()
        wait_until(lambda: client.request(deployed.invocations, prefix(0)).status == 200, 1.5)
        assert time.monotonic() - back < 1.0
        wait_until(lambda: homes(client, deployed, [prefix(number) for number in range(20)]) == before)


def test_an_unreachable_host_that_does_not_refuse_is_given_up_in_time(plane: DataPlane, fleet: Fleet) -> None:
    """CONNECT_TIMEOUT_SECONDS (0.5 here), then another instance."""
    deployed = fleet.deploy(2)
    with plane.client() as client:
        home = invoke(client, deployed, prefix(0))
        deployed.host(home).die()
        deployed.host(home).stall()
        # The kernel itself takes one connection for a stalled host; that request is held until its caller leaves.
        with asking(plane, [(deployed.invocations, prefix(0))]):
            wait_until(lambda: fleet.stage.routes.in_flight(deployed.endpoint) != {})
            started = time.monotonic()
            assert invoke(client, deployed, prefix(0)) != home
            assert time.monotonic() - started < 1.5


@pytest.mark.parametrize("route", ["invocations", "stream", "chat"])
@pytest.mark.parametrize(
    "script",
    [Raw(), Raw(ending="reset"), Raw([0.05], ending="reset")],
    ids=["closes", "resets", "resets later"],
)
def test_a_request_that_was_sent_is_never_delivered_twice(
    plane: DataPlane, fleet: Fleet, route: str, script: Script
) -> None:
    """The host took it all and answered nothing: it may have worked on it. The caller is told."""
    deployed = fleet.deploy(3)
    for host in deployed.hosts:
        host.answer = script
    with plane.client() as client:
        answer = client.request(getattr(deployed, route), chat_body("x"))
    if route == "chat":
        assert answer.status == 502
        assert error_of(answer)["message"]
    else:
        assert native_error(answer)[:2] == (424, "ModelError")
        assert json.loads(answer.body)["OriginalStatusCode"] == 0
    assert deployed.delivered == 1


def test_an_idle_connection_that_the_host_closed_is_not_noticed_by_anyone(plane: DataPlane, fleet: Fleet) -> None:
    """Stale pool: FIN or RST on idle connections, then a request: one delivery, no error."""
    deployed = fleet.deploy(1)
    host = deployed.hosts[0]
    with plane.client() as client:
        for number in range(20):
            invoke(client, deployed, b"%d" % number)
            host.drop_connections(idle_only=True, reset=bool(number % 2))
    assert host.bodies == [b"%d" % number for number in range(20)]


def test_a_host_that_breaks_its_promise_to_keep_the_connection_does_no_harm(plane: DataPlane, fleet: Fleet) -> None:
    """Closed right after each answer: the next request meets the closing connection or a new one, and succeeds."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = Answer(ending="drop")
    with plane.client() as client:
        for number in range(30):
            answer = client.request(deployed.invocations, b"%d" % number)
            assert answer.status == 200, answer
    assert deployed.hosts[0].bodies == [b"%d" % number for number in range(30)]


@pytest.mark.parametrize(
    "script",
    [
        Raw([b"HTTP/1.1 abc What\r\nContent-Length: 2\r\n\r\n{}"]),
        Raw([b"garbage\r\n\r\n"]),
        Raw([b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 300_000 + b"\r\nContent-Length: 2\r\n\r\n{}"]),
        Raw([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]),
        Raw([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x"]),
        Raw([b"HTTP/1.1 200 OK\r\n"]),
    ],
    ids=["status line", "no http", "long header", "chunk size", "two lengths", "half a head"],
)
def test_a_host_that_does_not_speak_http_is_a_model_error(plane: DataPlane, fleet: Fleet, script: Raw) -> None:
    """The reason is in the message; nothing of the garbage reaches the caller as an answer."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = script
    with plane.client() as client:
        client.ask(deployed.invocations, b"{}")
        head = client.read_head()
        if head.status == 200:
            assert not client.rest().endswith(b"0\r\n\r\n")
        else:
            assert head.status == 424
    with plane.client() as client:
        client.ask(deployed.chat, chat_body("x"))
        assert client.read_head().status in (200, 502)
    assert deployed.delivered == 2


def test_bytes_after_an_answer_do_not_become_the_next_one(plane: DataPlane, fleet: Fleet) -> None:
    """A host that sends too much: its connection is not used again."""
    deployed = fleet.deploy(1)
    smuggled = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled"
    deployed.hosts[0].queue.append(Raw([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + smuggled], "keep"))
    with plane.client() as client:
        assert client.request(deployed.invocations, b"1").body == b"ok"
        for number in range(5):
            assert b"smuggled" not in client.request(deployed.invocations, b"%d" % number).body


FAULTS: dict[str, Script] = {
    "closes": Raw(),
    "resets": Raw(ending="reset"),
    "500": Answer(body=b"boom", status=500),
    "status line": Raw([b"HTTP/1.1 abc What\r\n\r\n"]),
    "long header": Raw([b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 300_000]),
    "cut": Answer(body=b"half", ending="cut"),
    "never": Answer(before=Gate()),
}


def test_every_fault_gives_its_place_back(quick_plane: DataPlane, fleet: Fleet) -> None:
    """Threshold 1; refused, timed out, 500, garbage: 3 each; then home takes the prefix again."""
    deployed = fleet.deploy(2, threshold=1)
    with quick_plane.client() as client:
        home = invoke(client, deployed, prefix(0))
    host = deployed.host(home)
    for name, script in FAULTS.items():
        for other in deployed.hosts:
            other.answer = script
        rounds = 1 if name == "never" else 2
        for target in (deployed.invocations, deployed.stream, deployed.chat) * rounds:
            with quick_plane.client() as client:
                client.ask(target, prefix(0) if target != deployed.chat else chat_body("x")).outcome()
        fleet.expect_idle(2.0)
    for other in deployed.hosts:
        other.answer = echo
    host.die()
    with quick_plane.client() as client:
        for _ in range(5):
            assert invoke(client, deployed, prefix(0)) != home
        host.start()
        fleet.expect_idle(2.0)
        recovered(client, deployed, prefix(0), home)
    wait_until(lambda: quick_plane.metric("warmroute_in_flight", endpoint=deployed.name) == 0, 3.0)


@pytest.mark.parametrize("status", [400, 404, 422, 429])
def test_client_errors_do_not_set_a_host_aside(plane: DataPlane, fleet: Fleet, status: int) -> None:
    """50 of them, then every prefix is still served by its home."""
    deployed = fleet.deploy(3)
    bodies = [prefix(number) for number in range(12)]
    with plane.client() as client:
        before = homes(client, deployed, bodies)
        for host in deployed.hosts:
            host.answer = Answer(body=b"no", status=status)
        for number in range(50):
            target = (deployed.invocations, deployed.chat)[number % 2]
            assert client.request(target, b'{"messages":[]}').status in (424, status)
        for host in deployed.hosts:
            host.answer = echo
        assert homes(client, deployed, bodies) == before


def test_client_errors_do_not_heal_a_host_nor_hide_its_faults(plane: DataPlane, fleet: Fleet) -> None:
    """A host that mixes resets with 400s is set aside all the same."""
    deployed = fleet.deploy(2)
    with plane.client() as client:
        home = invoke(client, deployed, prefix(0))
        host = deployed.host(home)
        host.ping = Raw(ending="reset")
        for _ in range(12):
            host.queue += [Raw(ending="reset"), Answer(body=b"no", status=400)]
        host.answer = Raw(ending="reset")
        for _ in range(24):
            client.request(deployed.invocations, prefix(0))
        assert len(host.deliveries) < 25
        assert invoke(client, deployed, prefix(0)) != home
        host.queue.clear()
        host.answer, host.ping = echo, Answer(body=b"")
        recovered(client, deployed, prefix(0), home)


def test_a_host_that_fails_fast_is_not_the_favourite(plane: DataPlane, fleet: Fleet) -> None:
    """LEAST_OUTSTANDING: a host that resets at once is always the least loaded; it is set aside."""
    deployed = fleet.deploy(3, "LEAST_OUTSTANDING_REQUESTS")
    bad = deployed.hosts[0]
    bad.answer = bad.ping = Raw(ending="reset")
    with plane.client() as client:
        statuses = [client.request(deployed.invocations, b"x").status for _ in range(200)]
    assert statuses.count(200) > 180
    assert len(bad.deliveries) < 20


def test_a_host_that_died_with_requests_open_fails_only_those(plane: DataPlane, fleet: Fleet) -> None:
    """In the middle of 6 requests: these are told, the next ones are served elsewhere at once."""
    deployed = fleet.deploy(2, threshold=16)
    with plane.client() as client:
        home = invoke(client, deployed, prefix(0))
        host = deployed.host(home)
        host.hold()
        with asking(plane, [(deployed.invocations, prefix(0))] * 6) as held:
            wait_until(lambda: host.in_flight == 6)
            host.die()
            assert {native_error(one.read())[:2] for one in held} == {(424, "ModelError")}
        assert {invoke(client, deployed, prefix(0)) for _ in range(10)} == {deployed.others(home)[0].name}
        host.answer = echo
        host.start()
        recovered(client, deployed, prefix(0), home)


def test_retries_are_the_clients_alone_when_all_hosts_are_slow(quick_plane: DataPlane, fleet: Fleet) -> None:
    """Botocore with 3 attempts and openai with 2 retries ask once: the host may be at work on it."""
    deployed = fleet.deploy(3)
    for host in deployed.hosts:
        host.hold()
    client = runtime(quick_plane, retries={"mode": "standard", "total_max_attempts": 3})
    with pytest.raises(client.exceptions.ModelError):
        client.invoke_endpoint(EndpointName=deployed.name, Body=b"{}")
    client.close()
    assert deployed.delivered == 1
    with openai_client(f"{quick_plane.url}/v1", max_retries=2) as chat, pytest.raises(openai.InternalServerError):
        chat.chat.completions.create(model=deployed.name, messages=[{"role": "user", "content": "x"}])
    assert deployed.delivered == 2
    with quick_plane.client() as raw:
        answer = raw.request(deployed.chat, chat_body("x"))
    assert answer.header("retry-after") is None


def test_what_failed_is_logged_with_reason_host_and_time(quick_plane: DataPlane, fleet: Fleet) -> None:
    """No empty reasons, in the log or to the client."""
    deployed = fleet.deploy(1)
    (one,) = deployed.endpoint.variants
    identity = one.instances[0].identity
    for script in (Answer(before=Gate()), Raw(ending="reset"), Raw([b"garbage\r\n\r\n"])):
        deployed.hosts[0].answer = script
        at = len(quick_plane.output)
        with quick_plane.client() as client:
            answer = client.request(deployed.invocations, b"{}")
        assert json.loads(answer.body)["OriginalMessage"] or json.loads(answer.body)["Message"]
        wait_until(lambda start=at: identity in quick_plane.output[start:], 2.0, "a line that names the host")


def test_a_recovering_host_gets_one_probe_not_a_flood(plane: DataPlane, fleet: Fleet) -> None:
    """A host set aside that still fails is not asked by every request in turn."""
    deployed = fleet.deploy(2)
    with plane.client() as client:
        home = invoke(client, deployed, prefix(0))
        host = deployed.host(home)
        host.answer = host.ping = Raw(ending="reset")
        started = time.monotonic()
        while time.monotonic() - started < 1.0:
            client.request(deployed.invocations, prefix(0))
        # EJECT_SECONDS is 0.3, doubling: a handful to find out, then a few probes.
        assert len(host.deliveries) < 20


def test_prefixes_of_other_homes_do_not_move_when_one_host_is_away(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(4)
    bodies = [prefix(number) for number in range(60)]
    with plane.client() as client:
        before = homes(client, deployed, bodies)
        deployed.host("h1").die()
        during = homes(client, deployed, bodies)
        assert all(old == new for old, new in zip(before, during, strict=True) if old != "h1")
        assert len({new for old, new in zip(before, during, strict=True) if old == "h1"}) > 1
        deployed.host("h1").start()
        recovered(client, deployed, bodies[before.index("h1")], "h1")
        assert homes(client, deployed, bodies) == before

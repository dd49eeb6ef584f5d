"""Starting, stopping, draining and crashing of a data plane; and what its health says meanwhile."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from dataplane.descriptors import PER_CLIENT, RESERVE
from tests.dataplane_e2e.conftest import SHARED
from tests.dataplane_e2e.stage import Fleet, Stage, chat_body, frames, invoke, read_broken
from tests.fakes.answers import Gate, sse
from tests.fakes.data_plane import DataPlane
from tests.fakes.plane_process import ROOT, clean_environ, command
from tests.fakes.raw_client import ConnectionEnded
from tests.services import PrivateServer
from tests.waiting import wait_until

EVENTS = [b"data: %d\n\n" % number for number in range(4)]


def test_a_drain_finishes_streams_and_takes_nothing_new(own_fleet: Fleet) -> None:
    """Readiness off at once, 6 streams end whole, the endless one with its error, counts gone, exit code 0."""
    stage = own_fleet.stage
    plane = stage.start(settings={**SHARED, "DRAIN_SECONDS": 2})
    deployed = own_fleet.deploy(1, threshold=20)
    host = deployed.hosts[0]
    gate = Gate()
    finite = [plane.client() for _ in range(6)]
    host.answer = sse(EVENTS[0], gate, *EVENTS[1:])
    for number, client in enumerate(finite):
        client.ask((deployed.stream, deployed.chat)[number % 2], chat_body("x", stream=True))
        client.until(b"data: 0")
    host.answer = sse(EVENTS[0], Gate())
    endless = [plane.client() for _ in range(2)]
    for client, target in zip(endless, (deployed.stream, deployed.chat), strict=True):
        client.ask(target, chat_body("x", stream=True))
    wait_until(lambda: host.in_flight == 8)
    idle = plane.client()
    assert idle.request(deployed.invocations + "x", b"").status == 404
    process = plane.process
    assert process is not None
    started = time.monotonic()
    plane.signal(signal.SIGTERM)

    wait_until(lambda: plane.status("/health/ready") in (0, 503), 1.0)
    assert host.in_flight == 8
    gate.open()
    for client in finite:
        with contextlib.suppress(ConnectionEnded):
            client.until(b"data: 3\n\n")
            client.rest()
    frames_of = endless[0].read().body
    last = frames(frames_of)[-1]
    assert last.headers[":message-type"] == "exception"
    assert read_broken(endless[1]).rstrip() == EVENTS[0].rstrip()
    assert process.wait(5) == 0
    assert 1.5 < time.monotonic() - started < 5
    assert stage.routes.in_flight(deployed.endpoint) == {}
    assert stage.routes.applied() == {}
    for client in [*finite, *endless, idle]:
        client.close()
    assert all(delivery.peer_left is None for delivery in host.deliveries[:6])


def test_an_idle_worker_stops_at_once(own_fleet: Fleet) -> None:
    """Open connections without a request do not hold up the end, whatever DRAIN_SECONDS is."""
    plane = own_fleet.stage.start(settings=SHARED, workers=2)
    deployed = own_fleet.deploy(1)
    clients = [plane.client() for _ in range(5)]
    for client in clients:
        invoke(client, deployed, b"x")
    started = time.monotonic()
    assert plane.stop() == 0
    assert time.monotonic() - started < 3
    for client in clients:
        client.close()


def test_a_request_that_was_open_at_the_end_is_answered_and_its_connection_closed(own_fleet: Fleet) -> None:
    """Keep-alive is not offered by a worker that stops."""
    plane = own_fleet.stage.start(settings={**SHARED, "DRAIN_SECONDS": 5})
    deployed = own_fleet.deploy(1)
    gate = deployed.hosts[0].hold()
    with plane.client() as client:
        client.ask(deployed.invocations, b"x")
        wait_until(lambda: deployed.in_flight == 1)
        plane.signal(signal.SIGTERM)
        wait_until(lambda: not _connects(plane.port), 2.0)
        gate.open()
        answer = client.read()
        assert answer.status == 200
        assert client.is_ended(2.0)
    assert plane.process is not None
    assert plane.process.wait(3) == 0


def _connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_a_second_signal_ends_it_now(own_fleet: Fleet) -> None:
    """An operator who will not wait for the drain."""
    plane = own_fleet.stage.start(settings={**SHARED, "DRAIN_SECONDS": 60})
    deployed = own_fleet.deploy(1)
    deployed.hosts[0].hold()
    with plane.client() as client:
        client.ask(deployed.invocations, b"x")
        wait_until(lambda: deployed.in_flight == 1)
        plane.signal(signal.SIGTERM)
        wait_until(lambda: not _connects(plane.port), 2.0)
        plane.signal(signal.SIGTERM)
        assert plane.process is not None
        plane.process.wait(5)
    wait_until(lambda: plane.pids() == [])


def test_a_crashed_worker_is_replaced(own_fleet: Fleet) -> None:
    """Two workers on one port: one is killed; requests go on and both are back."""
    plane = own_fleet.stage.start(settings={**SHARED, "LEASE_SECONDS": 1}, workers=2)
    deployed = own_fleet.deploy(2)
    assert len(own_fleet.stage.routes.applied()) == 2
    known = plane.pids()
    victim = known[1]
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: victim not in plane.pids() and len(plane.pids()) == len(known))
    wait_until(lambda: len(own_fleet.stage.routes.applied()) == 2)
    for _ in range(20):
        with plane.client() as client:
            assert invoke(client, deployed, b"x") in ("h1", "h2")


def test_no_worker_outlives_a_killed_parent(own_fleet: Fleet) -> None:
    plane = own_fleet.stage.start(settings=SHARED, workers=2)
    assert len(plane.pids()) >= 3
    assert plane.process is not None
    os.kill(plane.process.pid, signal.SIGKILL)
    plane.process.wait(5)
    wait_until(lambda: plane.pids() == [], 5.0, "the workers end with their parent")
    plane.process = None


def test_readiness_waits_for_routes_and_liveness_does_not(own_stage: Stage, own_redis: PrivateServer) -> None:
    """(c) routes never loaded; (b) Redis dead: alive, and as ready as before."""
    plane = DataPlane(own_redis.url, own_stage.directory / "bare", settings={**SHARED, "RESYNC_SECONDS": 0.5})
    own_stage.planes.append(plane)
    plane.start(wait=False)
    assert plane.status("/health/live") == 200
    assert plane.status("/health/ready") == 503
    assert httpx.post(f"{plane.url}/endpoints/e/invocations").status_code == 503
    own_stage.routes.publish()
    wait_until(plane.is_ready)
    own_redis.kill()
    with plane.client() as client:
        for kind in ("live", "ready"):
            waits = []
            for _ in range(5):
                started = time.monotonic()
                assert client.request(f"/health/{kind}", method="GET").status == 200
                waits.append(time.monotonic() - started)
            assert sorted(waits)[2] < 0.1
    wait_until(lambda: plane.metric("warmroute_store_up") == 0, 5.0)


def test_dead_hosts_show_in_the_metrics_not_in_readiness(plane: DataPlane, fleet: Fleet) -> None:
    """(a) all hosts of an endpoint dead: the worker is ready, the read-out says 0 available."""
    deployed = fleet.deploy(2)
    for host in deployed.hosts:
        host.die()
    with plane.client() as client:
        for _ in range(6):
            client.request(deployed.invocations, b"x")
        assert client.request("/health/ready", method="GET").status == 200
        assert client.request("/health/live", method="GET").status == 200
        wait_until(lambda: plane.metric("warmroute_instances_available", endpoint=deployed.name) == 0)
        for host in deployed.hosts:
            host.start()
        wait_until(lambda: plane.metric("warmroute_instances_available", endpoint=deployed.name) == 2)


def run(environ: dict[str, str], tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a data plane that is expected to end by itself."""
    line = command("dataplane", "--data-dir", str(tmp_path), *options)
    return subprocess.run(line, cwd=ROOT, env=clean_environ() | environ, capture_output=True, text=True, timeout=15)


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({}, "WARMROUTE_REDIS_URL"),
        ({"WARMROUTE_REDIS_URL": "redis://127.0.0.1:1/0", "WARMROUTE_DRAIN_SECOND": "5"}, "WARMROUTE_DRAIN_SECONDS"),
        (
            {"WARMROUTE_REDIS_URL": "redis://127.0.0.1:1/0", "WARMROUTE_LEASE_SECONDS": "soon"},
            "WARMROUTE_LEASE_SECONDS",
        ),
        ({"WARMROUTE_REDIS_URL": "http://user:hunter2@127.0.0.1/"}, "WARMROUTE_REDIS_URL"),
    ],
    ids=["missing", "typo", "not a number", "scheme"],
)
def test_a_wrong_setting_is_one_plain_sentence(tmp_path: Path, environ: dict[str, str], named: str) -> None:
    """It names the setting, shows no secret and no traceback, and the exit code says so."""
    ended = run(environ, tmp_path, "--port", "0")
    assert ended.returncode != 0
    assert named in ended.stderr + ended.stdout
    assert "Traceback" not in ended.stderr + ended.stdout
    assert "hunter2" not in ended.stderr + ended.stdout


def test_a_port_in_use_is_one_plain_sentence(own_redis: PrivateServer, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = run({"WARMROUTE_REDIS_URL": own_redis.url}, tmp_path, "--port", str(port))
    assert ended.returncode != 0
    assert str(port) in ended.stderr + ended.stdout
    assert "Traceback" not in ended.stderr + ended.stdout


@pytest.mark.parametrize("limit", ["setting", "descriptors"])
def test_more_connections_than_there_is_room_for_are_answered_503(own_fleet: Fleet, limit: str) -> None:
    """CONNECTIONS_MAX, or what the system lets a process have: a clear answer, and room again when others have left."""
    if limit == "setting":
        room = 5
        plane = own_fleet.stage.start(settings={**SHARED, "CONNECTIONS_MAX": room})
    else:
        room = 8
        plane = own_fleet.stage.start(settings=SHARED, descriptors_max=RESERVE + PER_CLIENT * room)
        wait_until(lambda: "raise the limit" in plane.output)
    deployed = own_fleet.deploy(1)
    wait_until(lambda: plane.metric("warmroute_client_connections") <= 1)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(plane.client()) for _ in range(room)]
        for client in clients:
            wait_until(lambda one=client: one.request(deployed.invocations, b"x").status == 200)
        with plane.client() as extra:
            assert extra.ask(deployed.invocations, b"x").outcome() == 503

    def has_room() -> bool:
        with plane.client() as client:
            return client.ask(deployed.invocations, b"x").outcome() == 200

    wait_until(has_room)

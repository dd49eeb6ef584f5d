"""Counts that heal themselves: workers killed, paused, with a wrong clock; a Redis that forgets. A lease is 2 s."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.dataplane_e2e.stage import Deployed, Fleet, Stage, asking, chat_body, invoke, prefix
from tests.fakes.answers import Gate, echo, sse
from tests.fakes.data_plane import DataPlane
from tests.fakes.model_host import HostThread
from tests.fleet.load import Load, Shot
from tests.fleet.stage import (
    LEASE_SECONDS,
    PATIENT,
    counted,
    held,
    hold_all,
    is_true_under_load,
    wait_true,
    worker_pid,
    working,
)
from tests.services import PrivateServer
from tests.waiting import wait_until


@pytest.fixture
def trio(own_stage: Stage) -> list[DataPlane]:
    """Three data planes of one worker each on a Redis of the test's own."""
    return [own_stage.start(settings=PATIENT) for _ in range(3)]


def shots(deployed: Deployed) -> list[Shot]:
    return [
        Shot(deployed.invocations, prefix(0)),
        Shot(deployed.chat, chat_body("x")),
        Shot(deployed.chat, chat_body("x", stream=True)),
    ]


def expect_exact(fleet: Fleet, planes: list[DataPlane], deployed: Deployed) -> None:
    """Check that 12 at once over all planes level at the threshold, 4, on each of 3 hosts."""
    wait_until(lambda: not counted(fleet, deployed))
    with held(planes, deployed, [(deployed.invocations, prefix(0))] * 12):
        assert list(deployed.busy().values()) == [4, 4, 4]


def test_a_killed_worker_takes_its_counts_with_it(
    own_fleet: Fleet, trio: list[DataPlane], hosts_thread: HostThread
) -> None:
    """SIGKILL of one of three under 100 req/s: true within LEASE_SECONDS + 1, nothing failed on the others."""
    deployed = own_fleet.deploy(3, threshold=4)
    survivors, victim = trio[:2], trio[2]
    load = Load(hosts_thread, trio, shots(deployed), rate=100)
    with held(survivors, deployed, [(deployed.invocations, prefix(0))] * 4):
        alive = working(deployed)
        gates = hold_all(deployed)
        with asking(victim, [(deployed.invocations, prefix(0))] * 3):
            wait_until(lambda: deployed.in_flight == 7)
            for host in deployed.hosts:
                host.answer = echo
            load.start()
            load.wait(40)
            wait_until(lambda: sum(counted(own_fleet, deployed).values()) >= 7)
            killed = time.monotonic()
            os.kill(worker_pid(victim), signal.SIGKILL)
        # The survivors' calls strike it. Compared without load, some of which is always open on a busy machine.
        load.wait(int(100 * LEASE_SECONDS))
        load.stop()
        wait_until(lambda: counted(own_fleet, deployed) == alive, 1.0)
        for gate in gates:
            gate.open()
        wait_true(own_fleet, deployed, 0.5)
        assert working(deployed) == alive
    assert load.failed(lambda plane: plane != 2) == []
    # Its own requests fail while it dies, none before or after: connections wait for its successor.
    assert all(result.began < killed + 0.5 and result.ended >= killed for result in load.failed())
    wait_until(lambda: victim.status("/health/ready") == 200)
    expect_exact(own_fleet, trio, deployed)


def test_a_killed_worker_of_one_data_plane_fails_only_what_it_had(
    own_fleet: Fleet, own_stage: Stage, hosts_thread: HostThread
) -> None:
    """Three workers on one port under 100 req/s: what comes after the SIGKILL waits for a worker, none of it fails."""
    plane = own_stage.start(settings=PATIENT, workers=3)
    deployed = own_fleet.deploy(3, threshold=4)
    load = Load(hosts_thread, [plane], shots(deployed), rate=100)
    with load.running():
        load.wait(50)
        _, victim, *_ = plane.pids()
        killed = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len(plane.pids()) == 4 and victim not in plane.pids())
        load.wait(50)
        wait_until(lambda: is_true_under_load(own_fleet, deployed, {}), LEASE_SECONDS + 1)
    assert all(result.began < killed + 0.1 and result.ended >= killed for result in load.failed()), load.failed()
    expect_exact(own_fleet, [plane], deployed)


def test_a_worker_that_slept_past_its_lease_says_again_what_it_holds(own_fleet: Fleet, trio: list[DataPlane]) -> None:
    """SIGSTOP for longer than a lease: its share is given up, and is back when it wakes, less what ended meanwhile."""
    sleeper, *others = trio
    deployed = own_fleet.deploy(3, threshold=4)
    gates = [Gate(), Gate(), Gate()]
    clients = []
    for gate in gates:
        for host in deployed.hosts:
            host.answer = sse(b"data: 1\n\n", gate, b"data: [DONE]\n\n")
        clients.append(sleeper.client().ask(deployed.chat, chat_body("x", stream=True)))
        wait_until(lambda: deployed.in_flight == len(clients))
    for host in deployed.hosts:
        host.answer = echo
    pid = worker_pid(sleeper)
    with held(others, deployed, [(deployed.invocations, prefix(0))] * 2), others[0].client() as client:
        wait_true(own_fleet, deployed, 1.0)
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(
                lambda: invoke(client, deployed, b"z") and sum(counted(own_fleet, deployed).values()) == 2,
                LEASE_SECONDS + 1,
            )
            gates[0].open()
            clients[1].reset()
            wait_until(lambda: deployed.in_flight <= 4)
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: sum(counted(own_fleet, deployed).values()) == deployed.in_flight == 3, LEASE_SECONDS)
        wait_true(own_fleet, deployed, 0.5)
    gates[2].open()
    for client in (clients[0], clients[2]):
        client.read_head()
        assert b"".join(client.chunks()) == b"data: 1\n\ndata: [DONE]\n\n"
        client.close()
    assert [plane.metric("warmroute_in_flight_corrections_total") for plane in trio] == [0, 0, 0]
    expect_exact(own_fleet, trio, deployed)


def test_redis_forgets_everything_under_load(own_fleet: Fleet, trio: list[DataPlane], hosts_thread: HostThread) -> None:
    """SCRIPT FLUSH, then FLUSHALL, at 100 req/s: nothing fails, the truth is back within a lease."""
    deployed = own_fleet.deploy(3, threshold=4)
    redis = own_fleet.stage.routes.redis
    at = [len(plane.output) for plane in trio]
    with held(trio, deployed, [(deployed.invocations, prefix(0))] * 6):
        alive = working(deployed)
        load = Load(hosts_thread, trio, shots(deployed), rate=100)
        with load.running():
            for _ in range(5):
                load.wait(10)
                redis.script_flush()
            load.wait(10)
            redis.flushall()
            own_fleet.stage.routes.write()
            wait_until(lambda: is_true_under_load(own_fleet, deployed, alive), LEASE_SECONDS)
        assert load.failed() == []
        wait_true(own_fleet, deployed, LEASE_SECONDS)
    assert [plane.metric("warmroute_route_degraded_total") for plane in trio] == [0, 0, 0]
    assert [plane.output[before:].count("Redis") for plane, before in zip(trio, at, strict=True)] == [0, 0, 0]
    expect_exact(own_fleet, trio, deployed)


def test_redis_restarts_without_data_under_load(
    own_fleet: Fleet, own_redis: PrivateServer, trio: list[DataPlane], hosts_thread: HostThread
) -> None:
    """Killed and back empty with streams open: nothing fails, the truth is back within a lease."""
    deployed = own_fleet.deploy(3, threshold=12)
    with held(trio, deployed, [(deployed.chat, chat_body("x", stream=True))] * 6):
        alive = working(deployed)
        load = Load(hosts_thread, trio, shots(deployed), rate=60)
        with load.running():
            load.wait(20)
            own_redis.kill()
            load.wait(60)
            own_redis.start()
            back = time.monotonic()
            own_fleet.stage.routes.write()
            wait_until(lambda: is_true_under_load(own_fleet, deployed, alive), LEASE_SECONDS)
            assert time.monotonic() - back < LEASE_SECONDS
        assert load.failed() == []
        wait_true(own_fleet, deployed, LEASE_SECONDS)
    wait_until(lambda: all(plane.metric("warmroute_store_up") == 1 for plane in trio))


def test_workers_that_crash_in_a_loop_add_no_ghosts(own_fleet: Fleet, trio: list[DataPlane]) -> None:
    """Threshold 4, a worker takes 3 and is killed, 3 times over; a lease later the home is free for 4 again."""
    deployed = own_fleet.deploy(3, threshold=4)
    victim, others = trio[0], trio[1:]
    for _ in range(3):
        gates = [host.hold() for host in deployed.hosts]
        pid = worker_pid(victim)
        with asking(victim, [(deployed.invocations, prefix(0))] * 3):
            wait_until(lambda: deployed.in_flight == 3)
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: deployed.in_flight == 0)
        for gate in gates:
            gate.open()
        for host in deployed.hosts:
            host.answer = echo
        wait_until(lambda old=pid: worker_pid(victim) != old and victim.is_ready())
    with others[0].client() as client:
        wait_until(lambda: invoke(client, deployed, prefix(0)) and not counted(own_fleet, deployed), LEASE_SECONDS + 1)
    expect_exact(own_fleet, others, deployed)


CLOCK = """
import os, time
skew, now, now_ns = float(os.environ["CLOCK_SKEW"]), time.time, time.time_ns
time.time = lambda: now() + skew
time.time_ns = lambda: now_ns() + int(skew * 1e9)
"""


@pytest.mark.parametrize("skew", [120, -120])
def test_a_worker_with_a_wrong_clock_counts_as_the_others_do(own_fleet: Fleet, tmp_path: Path, skew: int) -> None:
    """Threshold 1; what either holds is seen by the other, for longer than a lease."""
    directory = tmp_path / "clock"
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(CLOCK)
    environ = {"PYTHONPATH": str(directory), "CLOCK_SKEW": str(skew)}
    right = own_fleet.stage.start(settings={**PATIENT, "LEASE_SECONDS": 1})
    wrong = own_fleet.stage.start(settings={**PATIENT, "LEASE_SECONDS": 1}, environ=environ)
    assert abs(_clock_of(wrong) - _clock_of(right)) > 100, "the clock is really wrong"
    deployed = own_fleet.deploy(2, threshold=1)
    for holder, other in ((right, wrong), (wrong, right)):
        with other.client() as client:
            home = invoke(client, deployed, prefix(0))
            wait_until(lambda: not counted(own_fleet, deployed))
            with held([holder], deployed, [(deployed.invocations, prefix(0))]):
                began = time.monotonic()
                while time.monotonic() - began < 1.5:
                    assert invoke(client, deployed, prefix(0)) != home
                    wait_true(own_fleet, deployed, 0.5)


def _clock_of(plane: DataPlane) -> float:
    """Return the time of the worker's latest log line, in seconds."""
    line = wait_until(lambda: [line for line in plane.output.splitlines() if "worker-0 " in line])[-1]
    return time.mktime(time.strptime(line[:19], "%Y-%m-%d %H:%M:%S"))

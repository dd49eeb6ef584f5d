"""Redis frozen, refusing, silent or slow: requests go on, at home and at once, and are exact when it is back."""

import time
from collections.abc import Callable

import pytest
from redis import Redis

from tests.dataplane_e2e.stage import Fleet, Stage, homes
from tests.fakes.data_plane import DataPlane
from tests.fakes.model_host import HostThread
from tests.fleet.freeze import ADDED_SECONDS, PREFIXES, about_redis, freeze, strays, streaming
from tests.fleet.link import Link
from tests.fleet.load import Load, Shot, p95
from tests.fleet.stage import (
    LEASE_SECONDS,
    SETTINGS,
    counted,
    degraded,
    expect_exact,
    held,
    is_true_under_load,
    working,
)
from tests.services import PrivateServer
from tests.waiting import wait_until

FROZEN_SECONDS = 4.0
USUAL_SECONDS = 0.05
"""What is usual at least, on a machine that other tests share."""
BACK_SECONDS = LEASE_SECONDS + 0.5
"""Within a lease, and half a second for the same reason."""


@pytest.fixture
def pair(own_stage: Stage) -> list[DataPlane]:
    """Two data planes of one worker each on a Redis of the test's own."""
    return [own_stage.start(settings=SETTINGS) for _ in range(2)]


def test_a_frozen_redis_delays_fails_and_moves_nothing(
    own_fleet: Fleet, own_redis: PrivateServer, pair: list[DataPlane], hosts_thread: HostThread
) -> None:
    """SIGSTOP under 50 req/s with streams open: nothing fails or is cut or leaves its home; after 2 s no wait.

    After SIGCONT it is exact within a lease. For 20 s: docs/soak.md.
    """
    found = freeze(own_fleet, own_redis, pair, hosts_thread, FROZEN_SECONDS, BACK_SECONDS)
    print(found.table())
    assert found.wrong(usual_least=USUAL_SECONDS, lease=BACK_SECONDS) == []
    assert len(found.later) > 20


def test_grants_that_come_too_late_are_handed_back(
    own_fleet: Fleet, own_redis: PrivateServer, pair: list[DataPlane], hosts_thread: HostThread
) -> None:
    """Redis stops for a moment, again and again, with calls on their way: it grants what has long been decided."""
    deployed = own_fleet.deploy(3, threshold=2)
    shots = [Shot(deployed.invocations, PREFIXES[0])]
    load = Load(hosts_thread, pair, shots, rate=60)
    with held(pair, deployed, [(deployed.invocations, PREFIXES[0])] * 4):
        alive = working(deployed)
        with load.running():
            for _ in range(6):
                load.wait(15)
                own_redis.pause()
                load.wait(10)
                own_redis.resume()
        assert load.failed() == []
        wait_until(lambda: counted(own_fleet, deployed) == alive, BACK_SECONDS)
        assert degraded(pair, deployed) > 0
        assert [plane.metric("warmroute_in_flight_corrections_total") for plane in pair] == [0, 0]


def test_a_redis_that_is_gone_fails_and_moves_nothing(
    own_fleet: Fleet, own_redis: PrivateServer, pair: list[DataPlane], hosts_thread: HostThread
) -> None:
    """Killed for longer than a lease, connections are refused; then back without data, and exact in a lease."""
    outage(own_fleet, pair, hosts_thread, own_redis.kill, own_redis.start)


def fill(redis: Redis) -> None:
    redis.config_set("maxmemory", "1")


def free(redis: Redis) -> None:
    redis.config_set("maxmemory", "0")


def demote(redis: Redis) -> None:
    redis.replicaof("127.0.0.1", "1")


def promote(redis: Redis) -> None:
    redis.replicaof("NO", "ONE")


def forbid(redis: Redis) -> None:
    redis.execute_command("ACL", "SETUSER", "default", "-evalsha", "-eval")


def allow(redis: Redis) -> None:
    redis.execute_command("ACL", "SETUSER", "default", "+@all")


@pytest.mark.parametrize(
    ("begin", "end"), [(fill, free), (demote, promote), (forbid, allow)], ids=["full", "a replica", "forbidden"]
)
def test_a_redis_that_refuses_the_script_fails_and_moves_nothing(
    own_fleet: Fleet,
    pair: list[DataPlane],
    hosts_thread: HostThread,
    begin: Callable[[Redis], None],
    end: Callable[[Redis], None],
) -> None:
    """It takes connections and answers everything else."""
    redis = own_fleet.stage.routes.redis
    outage(own_fleet, pair, hosts_thread, lambda: begin(redis), lambda: end(redis))


def test_a_redis_behind_a_dead_link_fails_and_moves_nothing(
    own_fleet: Fleet, own_stage: Stage, hosts_thread: HostThread
) -> None:
    """The link takes connections, passes nothing on and closes nothing."""
    link = Link(hosts_thread, redis_port(own_stage))
    far = Stage(link.url, own_stage.directory / "far", own_stage.routes)
    try:
        planes = [far.start(settings=SETTINGS) for _ in range(2)]
        outage(Fleet(far, own_fleet.hosts, own_fleet.scope), planes, hosts_thread, link.cut, link.mend)
        for plane in planes:
            plane.stop()
            assert "Traceback" not in plane.output
    finally:
        for plane in far.planes:
            plane.kill()
        link.close()


def redis_port(stage: Stage) -> int:
    return int(stage.routes.redis.connection_pool.connection_kwargs["port"])


def outage(
    fleet: Fleet,
    planes: list[DataPlane],
    thread: HostThread,
    begin: Callable[[], object],
    end: Callable[[], object],
) -> None:
    """Check that nothing fails, moves or waits while there is no Redis for 1.5 leases, nor is said again and again."""
    deployed = fleet.deploy(4, threshold=8)
    with planes[0].client() as client:
        home = dict(zip(map(str, range(20)), homes(client, deployed, PREFIXES), strict=True))
    shots = [Shot(deployed.invocations, body, key=str(number)) for number, body in enumerate(PREFIXES)]
    since = [len(plane.output) for plane in planes]
    load = Load(thread, planes, shots, rate=40)
    with streaming(planes, deployed, 6):
        alive = working(deployed)
        with load.running():
            load.wait(40)
            usual = p95([result.seconds for result in load.results])
            begin()
            began = time.monotonic()
            load.wait(int(40 * LEASE_SECONDS * 1.5))
            ended = time.monotonic()
            assert {plane.status(f"/health/{probe}") for plane in planes for probe in ("live", "ready")} == {200}
            end()
            fleet.stage.routes.write()
            wait_until(lambda: all(plane.metric("warmroute_store_up") == 1 for plane in planes), BACK_SECONDS)
            wait_until(lambda: is_true_under_load(fleet, deployed, alive), BACK_SECONDS)
        assert load.failed() == []
        assert strays(load.results, home) == []
        later = [result.seconds for result in load.results if began + 1 < result.began < ended]
        assert p95(later) < max(usual, USUAL_SECONDS) + ADDED_SECONDS
    expect_exact(fleet, planes, deployed, (deployed.invocations, PREFIXES[0]), home["0"], 8)
    said = about_redis(planes, since)
    assert 0 < len(said) < 20, "\n".join(said)
    assert [plane.metric("warmroute_in_flight_corrections_total") for plane in planes] == [0, 0]


def test_a_distant_redis_costs_no_request_its_time(
    own_fleet: Fleet, own_stage: Stage, hosts_thread: HostThread
) -> None:
    """200 ms there and back, 500 callers who leave within 150 ms, then 50 who stay.

    All 50 are served as fast as without Redis; connections do not pile up; the log stays quiet.
    """
    link = Link(hosts_thread, redis_port(own_stage), delay_seconds=0.1)
    plane = DataPlane(link.url, own_stage.directory / "distant", settings=SETTINGS)
    try:
        own_stage.routes.publish()
        plane.start()
        deployed = own_fleet.deploy(4, threshold=8)
        wait_until(lambda: own_stage.routes.applied())
        with plane.client() as client:
            home = dict(zip(map(str, range(20)), homes(client, deployed, PREFIXES), strict=True))
        shots = [
            Shot(deployed.invocations, body, key=str(number), leaves_after=0.001 + 0.15 * number / 20)
            for number, body in enumerate(PREFIXES)
        ]
        leavers = Load(hosts_thread, [plane], shots, rate=250)
        with leavers.running():
            leavers.wait(500)
        stayers = Load(hosts_thread, [plane], [Shot(x.target, x.body, x.key) for x in shots], rate=50)
        with stayers.running():
            stayers.wait(50)
        assert stayers.failed() == []
        assert strays(stayers.results, home) == []
        assert p95([result.seconds for result in stayers.results]) < 0.25
        wait_until(lambda: not counted(own_fleet, deployed), LEASE_SECONDS * 2)
        # One for the counts, a few of redis-py's pool for the routes, and this test's own.
        assert len(own_stage.routes.redis.client_list()) < 8
        said = about_redis([plane], [0])
        assert len(said) < 20, "\n".join(said)
        assert plane.stop() == 0
    finally:
        plane.kill()
        link.close()

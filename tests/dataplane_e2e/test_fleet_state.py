"""Counts and routes that live in Redis: when it restarts, freezes, is slow or away, and when workers die.

Every test has a Redis of its own; LEASE_SECONDS and RESYNC_SECONDS are 1, so that a test can wait for them.
"""

import contextlib
import time
from collections.abc import Iterator

from contract import redis_keys
from tests.dataplane_e2e.conftest import SHARED
from tests.dataplane_e2e.stage import Deployed, Fleet, Stage, asking, chat_body, homes, invoke, prefix
from tests.fakes.answers import Gate, echo, sse
from tests.fakes.data_plane import DataPlane
from tests.fakes.model_host import HostThread
from tests.fakes.raw_client import RawClient
from tests.fakes.routes import Routes
from tests.fakes.slow_link import SlowLink
from tests.services import PrivateServer
from tests.waiting import wait_until

LEASE_SECONDS = 1.0
SETTINGS = {**SHARED, "LEASE_SECONDS": LEASE_SECONDS, "RESYNC_SECONDS": 1}
PREFIXES = [prefix(number) for number in range(40)]


def start(stage: Stage, count: int = 1) -> list[DataPlane]:
    """Start data planes of one worker each."""
    return [stage.start(settings=SETTINGS) for _ in range(count)]


@contextlib.contextmanager
def held(planes: list[DataPlane], deployed: Deployed, count: int, body: bytes) -> Iterator[list[RawClient]]:
    """Hold ``count`` equal invocations open, sent through the planes in turn; afterwards all must be whole."""
    gates = [host.hold() for host in deployed.hosts]
    clients = [planes[number % len(planes)].client() for number in range(count)]
    for client in clients:
        client.ask(deployed.invocations, body)
    wait_until(lambda: deployed.in_flight == count)
    try:
        yield clients
    finally:
        for host in deployed.hosts:
            host.answer = echo
        for gate in gates:
            gate.open()
    assert [client.read().status for client in clients] == [200] * count
    for client in clients:
        client.close()


def expect_exact(planes: list[DataPlane], deployed: Deployed, body: bytes, home: str, threshold: int) -> None:
    """Check that requests over all planes put exactly ``threshold`` on the home."""
    with held(planes, deployed, threshold + 3, body):
        assert deployed.busy()[home] == threshold


def count_at(fleet: Fleet, deployed: Deployed) -> int:
    """Return the requests in flight that Redis counts."""
    return sum(fleet.stage.routes.in_flight(deployed.endpoint).values())


def test_counts_of_a_removed_endpoint_leave_no_key(own_fleet: Fleet) -> None:
    """Its streams end, no key of it stays; made anew on the same hosts it starts at zero."""
    (plane,) = start(own_fleet.stage)
    deployed = own_fleet.deploy(3, threshold=2)
    redis = own_fleet.stage.routes.redis
    with held([plane], deployed, 2, prefix(0)):
        own_fleet.stage.routes.remove(deployed.name)
        own_fleet.stage.settle()
        again = own_fleet.deploy(deployed.hosts, threshold=2, name=deployed.name)
        assert own_fleet.stage.routes.in_flight(again.endpoint) == {}
        assert count_at(own_fleet, deployed) == 2
    own_fleet.expect_idle()
    old = [key(deployed.endpoint.id) for key in (redis_keys.load_key, redis_keys.ledger_key, redis_keys.leases_key)]
    wait_until(lambda: not redis.exists(*old), 4 * LEASE_SECONDS + 3, "no key of the removed endpoint is left")
    with plane.client() as client:
        home = invoke(client, again, prefix(0))
    expect_exact([plane], again, prefix(0), home, 2)


def test_a_flushed_script_cache_fails_nothing(own_fleet: Fleet) -> None:
    """SCRIPT FLUSH under traffic; the threshold is exact at once."""
    planes = start(own_fleet.stage, 2)
    deployed = own_fleet.deploy(3, threshold=2)
    with planes[0].client() as client:
        home = invoke(client, deployed, prefix(0))
        for number in range(30):
            if number % 5 == 0:
                own_fleet.stage.routes.redis.script_flush()
            assert invoke(client, deployed, prefix(0)) == home
    own_fleet.stage.routes.redis.script_flush()
    expect_exact(planes, deployed, prefix(0), home, 2)


def test_counts_are_true_again_after_redis_lost_everything(own_fleet: Fleet) -> None:
    """FLUSHALL while 4 are held: within a lease the 4 are counted again, no more, no less."""
    planes = start(own_fleet.stage, 2)
    deployed = own_fleet.deploy(3, threshold=2)
    with planes[0].client() as client:
        home = invoke(client, deployed, prefix(0))
    with held(planes, deployed, 4, prefix(0)):
        own_fleet.stage.routes.redis.flushall()
        own_fleet.stage.routes.write()
        wait_until(lambda: count_at(own_fleet, deployed) == 4, LEASE_SECONDS + 1)
        deployed.host(home).answer = echo
        with planes[1].client() as client:
            for other in deployed.others(home):
                other.answer = echo
            assert invoke(client, deployed, prefix(0)) != home
    own_fleet.expect_idle()
    expect_exact(planes, deployed, prefix(0), home, 2)


def test_a_restart_of_redis_without_data_fails_nothing(own_fleet: Fleet, own_redis: PrivateServer) -> None:
    """Requests go on while it is away for longer than a lease, open ones finish, counts converge."""
    planes = start(own_fleet.stage, 2)
    # While Redis is away each worker admits its share of the threshold, 4; so the held ones push nobody away.
    deployed = own_fleet.deploy(3, threshold=8)
    with planes[0].client() as client:
        before = homes(client, deployed, PREFIXES)
    home = before[0]
    with held(planes, deployed, 3, prefix(0)):
        own_redis.kill()
        for host in deployed.hosts:
            host.answer = echo
        away = time.monotonic()
        while time.monotonic() - away < LEASE_SECONDS * 1.5:
            for plane in planes:
                with plane.client() as client:
                    assert homes(client, deployed, PREFIXES[:12]) == before[:12]
                    assert client.request("/health/live", method="GET").status == 200
                    assert client.request("/health/ready", method="GET").status == 200
        own_redis.start()
        own_fleet.stage.routes.write()
        wait_until(lambda: count_at(own_fleet, deployed) == 3, LEASE_SECONDS * 2 + 1)
    own_fleet.expect_idle(LEASE_SECONDS + 2)
    wait_until(lambda: all(plane.metric("warmroute_store_up") == 1 for plane in planes))
    expect_exact(planes, deployed, prefix(0), home, 8)
    for plane in planes:
        assert "Traceback" not in plane.output
        # One line each way for routes, counts and what else watches it.
        assert len([line for line in plane.output.splitlines() if "Redis" in line]) < 20, plane.output


def test_a_frozen_redis_delays_nothing_for_long(own_fleet: Fleet, own_redis: PrivateServer) -> None:
    """SIGSTOP: nothing fails, keys stay at home, after the first second nothing waits; then exact again."""
    planes = start(own_fleet.stage, 2)
    deployed = own_fleet.deploy(3, threshold=2)
    with planes[0].client() as client:
        before = homes(client, deployed, PREFIXES)
    with planes[1].client() as client:
        assert homes(client, deployed, PREFIXES) == before
    at = [len(plane.output) for plane in planes]
    own_redis.pause()
    frozen = time.monotonic()
    waits: list[float] = []
    try:
        while time.monotonic() - frozen < 2.5:
            for plane in planes:
                with plane.client() as client:
                    for number in range(0, 40, 4):
                        started = time.monotonic()
                        assert invoke(client, deployed, PREFIXES[number]) == before[number]
                        if started - frozen > 1:
                            waits.append(time.monotonic() - started)
    finally:
        own_redis.resume()
    assert sorted(waits)[int(len(waits) * 0.95)] < 0.05
    wait_until(lambda: all(plane.metric("warmroute_store_up") == 1 for plane in planes), LEASE_SECONDS + 2)
    own_fleet.expect_idle(LEASE_SECONDS + 1)
    expect_exact(planes, deployed, PREFIXES[0], before[0], 2)
    for plane, start_at in zip(planes, at, strict=True):
        about = [line for line in plane.output[start_at:].splitlines() if "Redis" in line]
        assert 0 < len(about) < 10, about
        assert plane.metric("warmroute_route_degraded_total") > 0


def test_a_slow_redis_and_callers_that_leave_use_up_nothing(own_fleet: Fleet, hosts_thread: HostThread) -> None:
    """100 ms to Redis and back, 300 callers that leave at once; then 50 are served, and no count is left."""
    redis = own_fleet.stage.routes.redis
    link = SlowLink(hosts_thread, int(redis.connection_pool.connection_kwargs["port"]), delay_seconds=0.05)
    try:
        plane = DataPlane(f"redis://127.0.0.1:{link.port}/0", own_fleet.stage.directory / "slow", settings=SETTINGS)
        own_fleet.stage.routes.publish()
        own_fleet.stage.planes.append(plane)
        plane.start()
        deployed = own_fleet.deploy(2, threshold=2)
        for number in range(300):
            client = plane.client()
            client.ask(deployed.invocations, PREFIXES[number % 40])
            client.close()
        with asking(plane, [(deployed.invocations, body) for body in PREFIXES]) as clients:
            assert {client.read().status for client in clients} == {200}
        own_fleet.expect_idle(LEASE_SECONDS * 2 + 2)
        assert len(redis.client_list()) < 12
        plane.stop()
    finally:
        link.close()


def test_a_link_that_stops_without_closing_is_noticed(own_fleet: Fleet, hosts_thread: HostThread) -> None:
    """Routes changed while the worker was cut off are there within RESYNC_SECONDS of the link's return."""
    redis = own_fleet.stage.routes.redis
    link = SlowLink(hosts_thread, int(redis.connection_pool.connection_kwargs["port"]))
    try:
        plane = DataPlane(f"redis://127.0.0.1:{link.port}/0", own_fleet.stage.directory / "cut", settings=SETTINGS)
        own_fleet.stage.routes.publish()
        own_fleet.stage.planes.append(plane)
        plane.start()
        deployed = own_fleet.deploy(1)
        other = own_fleet.hosts.one()
        link.is_cut = True
        changed = own_fleet.variant([other])
        own_fleet.stage.routes.put(type(deployed.endpoint)(deployed.name, deployed.endpoint.id, 1, (changed,)))
        with plane.client() as client:
            assert invoke(client, deployed, b"x") == "h1"
            link.is_cut = False
            wait_until(lambda: invoke(client, deployed, b"x") == "h2", 4.0)
        plane.stop()
    finally:
        link.close()


def test_a_lost_notice_costs_one_resync(own_fleet: Fleet) -> None:
    """No notice at all: RESYNC_SECONDS bounds it, for a change and for a removal."""
    (plane,) = start(own_fleet.stage)
    deployed = own_fleet.deploy(1)
    routes = own_fleet.stage.routes
    other = own_fleet.hosts.one()
    routes.put(
        type(deployed.endpoint)(deployed.name, deployed.endpoint.id, 1, (own_fleet.variant([other]),)), notify=False
    )
    with plane.client() as client:
        wait_until(lambda: invoke(client, deployed, b"x") == "h2", 1.5)
        del routes.endpoints[deployed.name]
        routes.publish(notify=False)
        wait_until(lambda: client.request(deployed.invocations, b"x").status == 400, 1.5)


def test_an_older_table_is_not_taken(own_fleet: Fleet) -> None:
    """Generations only grow; a publisher that lags behind cannot bring back what was changed."""
    (plane,) = start(own_fleet.stage)
    deployed = own_fleet.deploy(1)
    routes = own_fleet.stage.routes
    newest = routes.generation
    routes.generation = newest - 1
    routes.endpoints.clear()
    routes.write()
    looks = _looks(routes)
    routes.redis.publish(redis_keys.ROUTES_NOTICE, b"")
    wait_until(lambda: _looks(routes) >= looks + 2)
    with plane.client() as client:
        for _ in range(20):
            assert invoke(client, deployed, b"x") == "h1"


def _looks(routes: Routes) -> int:
    """Return how often anybody has looked at the table."""
    return int(routes.redis.info("commandstats").get("cmdstat_hmget", {"calls": 0})["calls"])


def test_a_table_that_cannot_be_read_changes_nothing(own_fleet: Fleet) -> None:
    """A newer format or damage: the worker keeps what it has and says what to do."""
    (plane,) = start(own_fleet.stage)
    deployed = own_fleet.deploy(1)
    routes = own_fleet.stage.routes
    routes.redis.hset(redis_keys.ROUTES, mapping={"generation": "999999", "table": b"\x00damage"})
    routes.redis.publish(redis_keys.ROUTES_NOTICE, b"")
    wait_until(lambda: "cannot be read" in plane.output)
    with plane.client() as client:
        assert invoke(client, deployed, b"x") == "h1"


def test_a_killed_workers_share_is_gone_within_a_lease(own_fleet: Fleet) -> None:
    """Kill -9 with 3 held, twice; the other worker sees home free again, and its own share untouched."""
    planes = start(own_fleet.stage, 1)
    deployed = own_fleet.deploy(3, threshold=4)
    with planes[0].client() as client:
        home = invoke(client, deployed, prefix(0))
    with held(planes, deployed, 1, prefix(0)):
        for _ in range(2):
            victim = own_fleet.stage.start(settings=SETTINGS)
            with asking(victim, [(deployed.invocations, prefix(0))] * 3):
                wait_until(lambda: count_at(own_fleet, deployed) == 4)
                victim.kill()
            wait_until(lambda: count_at(own_fleet, deployed) == 1, LEASE_SECONDS + 1.5)
        wait_until(lambda: len(own_fleet.stage.routes.applied()) == 1, LEASE_SECONDS + 1)
    own_fleet.expect_idle()
    expect_exact(planes, deployed, prefix(0), home, 4)


def test_a_stream_longer_than_many_leases_stays_counted(own_fleet: Fleet) -> None:
    """An idle worker renews what it holds: after 3 leases the stream still counts, once."""
    planes = start(own_fleet.stage, 2)
    deployed = own_fleet.deploy(2, threshold=1)
    gate = Gate()
    with planes[0].client() as client:
        home = invoke(client, deployed, prefix(0))
        deployed.host(home).answer = sse(b"data: 1\n\n", gate, b"data: [DONE]\n\n")
        client.ask(deployed.invocations, prefix(0))
        client.until(b"data: 1")
        began = time.monotonic()
        with planes[1].client() as other:
            while time.monotonic() - began < 3 * LEASE_SECONDS:
                assert invoke(other, deployed, prefix(0)) != home
                wait_until(lambda: count_at(own_fleet, deployed) == 1, 1.0)
        gate.open()
        client.until(b"[DONE]")
    own_fleet.expect_idle()


def test_a_worker_starts_from_its_last_table_when_redis_is_away(own_fleet: Fleet, own_redis: PrivateServer) -> None:
    """The table under --data-dir; the same homes as before."""
    (plane,) = start(own_fleet.stage)
    deployed = own_fleet.deploy(4, threshold=2)
    with plane.client() as client:
        before = homes(client, deployed, PREFIXES)
    assert plane.stop() == 0
    own_redis.stop()
    plane.start()
    with plane.client() as client:
        assert homes(client, deployed, PREFIXES) == before
        assert client.request(deployed.chat, chat_body("x")).status == 200
    own_redis.start()
    own_fleet.stage.routes.write()
    wait_until(lambda: plane.metric("warmroute_store_up") == 1)

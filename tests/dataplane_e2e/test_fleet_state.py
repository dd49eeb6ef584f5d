"""What lasts in Redis: counts of removed endpoints and of long streams, and tables that are not to be taken.

Every test has a Redis of its own; LEASE_SECONDS and RESYNC_SECONDS are 1, so that a test can wait for them. What
befalls Redis and workers is in tests/fleet.
"""

import time

from contract import redis_keys
from tests.dataplane_e2e.conftest import SHARED
from tests.dataplane_e2e.stage import Deployed, Fleet, Stage, invoke, prefix
from tests.fakes.answers import Gate, sse
from tests.fakes.data_plane import DataPlane
from tests.fakes.routes import Routes
from tests.fleet.stage import expect_exact, held
from tests.waiting import wait_until

LEASE_SECONDS = 1.0
SETTINGS = {**SHARED, "LEASE_SECONDS": LEASE_SECONDS, "RESYNC_SECONDS": 1}


def start(stage: Stage, count: int = 1) -> list[DataPlane]:
    """Start data planes of one worker each."""
    return [stage.start(settings=SETTINGS) for _ in range(count)]


def count_at(fleet: Fleet, deployed: Deployed) -> int:
    """Return the requests in flight that Redis counts."""
    return sum(fleet.stage.routes.in_flight(deployed.endpoint).values())


def test_counts_of_a_removed_endpoint_leave_no_key(own_fleet: Fleet) -> None:
    """Its streams end, no key of it stays; made anew on the same hosts it starts at zero."""
    (plane,) = start(own_fleet.stage)
    deployed = own_fleet.deploy(3, threshold=2)
    redis = own_fleet.stage.routes.redis
    with held([plane], deployed, [(deployed.invocations, prefix(0))] * 2):
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
    expect_exact(own_fleet, [plane], again, (again.invocations, prefix(0)), home, 2)


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

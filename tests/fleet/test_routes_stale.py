"""Routes that cannot go stale in silence: whatever befalls notices and connections, RESYNC_SECONDS bounds it."""

import time
from collections.abc import Callable, Iterator

import pytest

from contract import redis_keys
from tests.dataplane_e2e.stage import Deployed, Fleet, Stage, homes, prefix
from tests.fakes.answers import Gate, sse
from tests.fakes.data_plane import DataPlane
from tests.fakes.model_host import HostThread
from tests.fleet.link import Link
from tests.fleet.load import Load, Shot
from tests.fleet.stage import SETTINGS
from tests.services import PrivateServer
from tests.waiting import wait_until

RESYNC_SECONDS = 2.0
MARGIN_SECONDS = 0.5
"""For this machine: the worker's own bound is RESYNC_SECONDS."""
QUIET = {**SETTINGS, "RESYNC_SECONDS": RESYNC_SECONDS}


@pytest.fixture
def link(own_stage: Stage, hosts_thread: HostThread) -> Iterator[Link]:
    """A link to the test's own Redis."""
    link = Link(hosts_thread, int(own_stage.routes.redis.connection_pool.connection_kwargs["port"]))
    yield link
    link.close()


@pytest.fixture
def far(own_stage: Stage, link: Link) -> Iterator[DataPlane]:
    """A worker at the other end of the link."""
    own_stage.routes.publish()
    plane = DataPlane(link.url, own_stage.directory / "far", settings=QUIET)
    plane.start()
    own_stage.planes.append(plane)
    yield plane
    own_stage.planes.remove(plane)
    plane.close()


def answerer(plane: DataPlane, deployed: Deployed) -> str:
    """Return which host answers now, or the status."""
    with plane.client() as client:
        response = client.request(deployed.invocations, b"x")
    return deployed_host(response.body) if response.status == 200 else str(response.status)


def deployed_host(body: bytes) -> str:
    return body.partition(b'"host": "')[2].partition(b'"')[0].decode()


def move(fleet: Fleet, deployed: Deployed, *, notify: bool = True) -> Deployed:
    """Move the endpoint to a new host, without waiting for anybody; return it as it is now."""
    host = fleet.hosts.one()
    variant = fleet.variant([host])
    found = type(deployed.endpoint)(deployed.name, deployed.endpoint.id, deployed.endpoint.created, (variant,))
    fleet.stage.routes.put(found, notify=notify)
    return Deployed(found, [host])


def expect_followed(fleet: Fleet, plane: DataPlane, deployed: Deployed, upset: Callable[[], object]) -> None:
    """Check that a change and then a removal, each while upset, reach the worker within the resync time."""
    upset()
    moved = move(fleet, deployed)
    wait_until(lambda: answerer(plane, moved) == moved.hosts[0].name, RESYNC_SECONDS + MARGIN_SECONDS, "it has moved")
    upset()
    fleet.stage.routes.remove(deployed.name)
    wait_until(lambda: answerer(plane, moved) == "400", RESYNC_SECONDS + MARGIN_SECONDS, "it is gone")


def test_a_subscription_that_was_killed_costs_one_resync(own_fleet: Fleet, far: DataPlane) -> None:
    """CLIENT KILL TYPE pubsub right before each change: its notice has no listener."""
    deployed = own_fleet.deploy(1)
    redis = own_fleet.stage.routes.redis

    def listeners() -> int:
        return int(redis.pubsub_numsub(redis_keys.ROUTES_NOTICE)[0][1])

    wait_until(lambda: listeners() == 1)
    assert redis.client_kill_filter(_type="pubsub") == 1
    moved = move(own_fleet, deployed)
    wait_until(lambda: answerer(far, moved) == "h2", RESYNC_SECONDS + MARGIN_SECONDS)
    wait_until(lambda: listeners() == 1, what="it listens again")
    began = time.monotonic()
    again = move(own_fleet, deployed)
    wait_until(lambda: answerer(far, again) == "h3")
    assert time.monotonic() - began < RESYNC_SECONDS / 3, "by notice again"


def test_connections_that_stopped_forwarding_cost_one_resync(own_fleet: Fleet, far: DataPlane, link: Link) -> None:
    """All connections are dead and none is closed, new ones work; before each change again."""
    expect_followed(own_fleet, far, own_fleet.deploy(1), link.cut_existing)


def test_notices_that_were_never_sent_cost_one_resync(own_fleet: Fleet, far: DataPlane) -> None:
    deployed = own_fleet.deploy(1)
    moved = move(own_fleet, deployed, notify=False)
    wait_until(lambda: answerer(far, moved) == "h2", RESYNC_SECONDS + MARGIN_SECONDS)
    own_fleet.stage.routes.endpoints.clear()
    own_fleet.stage.routes.publish(notify=False)
    wait_until(lambda: answerer(far, moved) == "400", RESYNC_SECONDS + MARGIN_SECONDS)


def test_what_was_missed_behind_a_dead_link_is_there_within_a_resync(
    own_fleet: Fleet, far: DataPlane, link: Link, hosts_thread: HostThread
) -> None:
    """Cut off for two resync times, meanwhile the endpoint moves from host A and B to C and A stops.

    Until the link is back what fails to connect to A is served by B; after a resync no request is sent to A.
    """
    deployed = own_fleet.deploy(2)
    a, b = deployed.hosts
    load = Load(hosts_thread, [far], [Shot(deployed.invocations, prefix(number)) for number in range(20)], rate=40)
    with load.running():
        load.wait(20)
        link.cut()
        moved = move(own_fleet, deployed)
        a.die()
        cut = time.monotonic()
        while time.monotonic() - cut < 2 * RESYNC_SECONDS:
            load.wait(10)
        assert {result.host for result in load.results[-40:]} == {b.name}
        link.mend()
        wait_until(lambda: answerer(far, moved) == moved.hosts[0].name, RESYNC_SECONDS + MARGIN_SECONDS)
        a.start()
        a.clear()
        b.clear()
        load.wait(40)
        assert a.deliveries == b.deliveries == []
        assert {result.host for result in load.results[-40:]} == {moved.hosts[0].name}
    assert load.failed() == []


def test_a_worker_that_starts_without_redis_serves_its_last_table(
    own_fleet: Fleet, own_redis: PrivateServer, own_stage: Stage
) -> None:
    """Gone or frozen at its start: the same homes, both APIs; and when Redis is back, what was deleted is gone."""
    plane = own_stage.start(settings=QUIET)
    kept, deleted = own_fleet.deploy(4), own_fleet.deploy(1)
    prefixes = [prefix(number) for number in range(30)]
    with plane.client() as client:
        before = homes(client, kept, prefixes)
    assert plane.stop() == 0
    own_redis.pause()
    plane.start()
    with plane.client() as client:
        assert homes(client, kept, prefixes) == before
        assert answerer(plane, deleted) == deleted.hosts[0].name
    own_redis.resume()
    assert plane.stop() == 0
    own_redis.kill()
    plane.start()
    with plane.client() as client:
        assert homes(client, kept, prefixes) == before
    own_redis.start()
    own_stage.routes.remove(deleted.name)
    wait_until(lambda: answerer(plane, deleted) == "400", RESYNC_SECONDS + 2, "deleted endpoints are not served")
    with plane.client() as client:
        assert homes(client, kept, prefixes) == before


def test_a_request_keeps_the_routes_it_began_with(own_fleet: Fleet, own_stage: Stage) -> None:
    """A stream of an endpoint that is deleted meanwhile comes to its end, and its count goes with it."""
    plane = own_stage.start(settings=QUIET)
    deployed = own_fleet.deploy(1)
    gate = Gate()
    deployed.hosts[0].answer = sse(b"data: 1\n\n", gate, b"data: [DONE]\n\n")
    with plane.client() as client:
        client.ask(deployed.stream, b"x")
        wait_until(lambda: deployed.in_flight == 1)
        own_stage.routes.remove(deployed.name)
        own_stage.settle()
        assert answerer(plane, deployed) == "400"
        assert own_stage.routes.in_flight(deployed.endpoint) != {}
        gate.open()
        assert client.read().status == 200
    wait_until(lambda: not own_stage.routes.in_flight(deployed.endpoint), 1.0)

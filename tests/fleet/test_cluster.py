"""A Redis Cluster of three primaries: exact over its nodes, while slots move and when a primary dies."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis.exceptions import RedisError

from contract import redis_keys
from contract.routing_table import encode
from controlplane.background.redis_link import RedisLink
from dataplane.state.redis_client import RedisClient
from tests.dataplane_e2e.stage import Deployed, Fleet, Stage, chat_body, invoke, prefix
from tests.fakes.data_plane import DataPlane
from tests.fakes.model_host import HostThread
from tests.fakes.routes import endpoint
from tests.fleet.cluster import Cluster, ClusterRoutes, Move, Node
from tests.fleet.load import Load, Shot, p95
from tests.fleet.stage import (
    LEASE_SECONDS,
    RESYNC_SECONDS,
    SETTINGS,
    expect_exact,
    held,
    is_true_under_load,
    wait_true,
    working,
)
from tests.waiting import wait_until

ROOMY = 32
"""A threshold whose share of one worker is not reached while that worker is held up for a moment."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three primaries, each with a replica."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), replicas=3)
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def stage(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(cluster.url, tmp_path_factory.mktemp("stage"), ClusterRoutes(cluster))
    yield stage
    stage.close()


@pytest.fixture(scope="module")
def planes(stage: Stage) -> list[DataPlane]:
    return [stage.start(settings=SETTINGS) for _ in range(2)]


def deploy_at(fleet: Fleet, cluster: Cluster, node: Node, **given: int) -> Deployed:
    """Deploy an endpoint of three hosts whose counts this primary keeps."""
    hosts = fleet.hosts.make(3)
    found = endpoint(f"e{len(fleet.deployed)}-{fleet.digest}", fleet.variant(hosts, **given), id=cluster.id_at(node))
    deployed = Deployed(found, hosts)
    fleet.deployed.append(deployed)
    fleet.stage.routes.put(found)
    fleet.stage.settle()
    return deployed


def home_of(plane: DataPlane, deployed: Deployed) -> str:
    with plane.client() as client:
        return invoke(client, deployed, prefix(0))


def expect_home_exact(fleet: Fleet, planes: list[DataPlane], deployed: Deployed, home: str, threshold: int) -> None:
    expect_exact(fleet, planes, deployed, (deployed.invocations, prefix(0)), home, threshold)


def test_endpoints_spread_over_the_nodes_and_each_is_exact(
    cluster: Cluster, planes: list[DataPlane], fleet: Fleet
) -> None:
    """One endpoint on each primary: its keys are there, and the threshold holds over both workers."""
    for node in cluster.primaries:
        deployed = deploy_at(fleet, cluster, node, threshold=4)
        home = home_of(planes[0], deployed)
        for _ in range(3):
            expect_home_exact(fleet, planes, deployed, home, 4)
        assert node.command("EXISTS", redis_keys.leases_key(deployed.endpoint.id)) == 1
    assert [plane.metric("warmroute_store_up") for plane in planes] == [1, 1]


@pytest.fixture
def publisher(cluster: Cluster, hosts_thread: HostThread) -> Iterator[Callable[[str, Any], Any]]:
    """``publisher(name, *arguments)``: call the control plane's own link to Redis, which stays connected."""
    link = RedisLink(cluster.url)

    def call(name: str, *arguments: Any) -> Any:
        work = getattr(link, name)(*arguments)
        return asyncio.run_coroutine_threadsafe(work, hosts_thread.loop).result(10)

    yield call
    call("close")


def test_routes_and_reports_cross_a_cluster(
    planes: list[DataPlane], fleet: Fleet, publisher: Callable[..., Any]
) -> None:
    """What the control plane's link publishes is served by all workers, by notice, and it sees that they do."""
    routes = fleet.stage.routes
    deployed = fleet.deploy(1)
    assert publisher("held") == (routes.epoch, routes.generation)
    routes.endpoints.clear()
    routes.generation += 1
    assert publisher("publish", routes.epoch, routes.generation, encode(routes.table)) is True
    assert publisher("publish", routes.epoch, routes.generation, encode(routes.table)) is False
    report = f"{routes.epoch}:{routes.generation}"
    wait_until(lambda: list(publisher("workers").values()) == [report, report], RESYNC_SECONDS)
    for plane in planes:
        with plane.client() as client:
            assert client.request(deployed.invocations, b"x").status == 400


def test_a_cluster_that_hid_it_at_first_is_found_out(cluster: Cluster, hosts_thread: HostThread) -> None:
    """By what a node says of a key that it does not have, in the control plane and in the data plane."""
    asked = next(node for node in cluster.primaries if node is not cluster.primary_of(redis_keys.ROUTES))
    for node in cluster.nodes:
        node.command("ACL SETUSER", "shy", "on", ">secret", "~*", "&*", "+@all", "-cluster")
    url = asked.server.url.replace("redis://", "redis://shy:secret@")

    async def ask() -> None:
        link, client = RedisLink(url), RedisClient(url)
        calls = (link.held, lambda: client.hmget(redis_keys.ROUTES, ["epoch"]))
        for call in calls:
            with pytest.raises(RedisError):
                await call()
        for node in cluster.nodes:
            node.command("ACL SETUSER", "shy", "+cluster")
        for call in calls:
            await call()
        await link.close()
        await client.aclose()

    try:
        asyncio.run_coroutine_threadsafe(ask(), hosts_thread.loop).result(20)
    finally:
        for node in cluster.nodes:
            node.command("ACL DELUSER", "shy")


def test_a_slot_on_its_way_to_another_node_loses_no_request(
    cluster: Cluster, planes: list[DataPlane], fleet: Fleet, hosts_thread: HostThread
) -> None:
    """Resharding with requests open and coming: MOVED, ASK and torn keys fail nothing; then exact on the target."""
    source, target = cluster.primaries[:2]
    deployed = deploy_at(fleet, cluster, source, threshold=4)
    home = home_of(planes[0], deployed)
    move = Move(cluster, redis_keys.load_key(deployed.endpoint.id), target)
    shots = [Shot(deployed.invocations, prefix(0)), Shot(deployed.chat, chat_body("x" * 99))]
    with held(planes, deployed, [(deployed.invocations, prefix(0))] * 2):
        load = Load(hosts_thread, planes, shots, rate=100)
        with load.running():
            load.wait(20)
            move.begin()
            load.wait(20)
            # Key by key: in between, each call meets keys on both sides.
            while move.migrate(1):
                load.wait(10)
            load.wait(20)
            move.end()
            load.wait(40)
        assert load.failed() == []
        wait_true(fleet, deployed, LEASE_SECONDS)
    assert cluster.primary_of(redis_keys.load_key(deployed.endpoint.id)) is target
    for _ in range(3):
        expect_home_exact(fleet, planes, deployed, home, 4)
    assert [plane.metric("warmroute_store_up") for plane in planes] == [1, 1]


def test_a_slot_that_stays_on_its_way_keeps_nobody_waiting(
    cluster: Cluster, planes: list[DataPlane], fleet: Fleet, hosts_thread: HostThread
) -> None:
    """A resharding that was broken off: no call of the script can run, requests are decided without it."""
    source, target = cluster.primaries[:2]
    deployed = deploy_at(fleet, cluster, source, threshold=ROOMY)
    home = home_of(planes[0], deployed)
    move = Move(cluster, redis_keys.load_key(deployed.endpoint.id), target)
    with held(planes, deployed, [(deployed.invocations, prefix(0))] * 2):
        move.begin()
        move.migrate(1)
        load = Load(hosts_thread, planes, [Shot(deployed.invocations, prefix(0))], rate=50)
        with load.running():
            load.wait(50)
        assert load.failed() == []
        assert p95([result.seconds for result in load.results]) < 0.25
        assert {result.host for result in load.results} == {home}
        while move.migrate():
            pass
        move.end()
        wait_true(fleet, deployed, LEASE_SECONDS)
    expect_home_exact(fleet, planes, deployed, home, ROOMY)


@pytest.mark.parametrize(
    ("lose", "return_"), [(Node.kill, Node.start), (Node.freeze, Node.thaw)], ids=["dead", "frozen"]
)
def test_a_primary_that_is_lost_fails_no_request(
    cluster: Cluster,
    planes: list[DataPlane],
    fleet: Fleet,
    hosts_thread: HostThread,
    publisher: Callable[..., Any],
    lose: Callable[[Node], None],
    return_: Callable[[Node], None],
) -> None:
    """Kill -9 or SIGSTOP of the primary of the routes and of an endpoint's counts, under load, with streams open.

    Requests go on, keys stay at home, new routes arrive, and it is exact again after the failover; then the lost node
    comes back as a replica, and takes over again when the operator says so.
    """
    victim = cluster.primary_of(redis_keys.ROUTES)
    other = next(node for node in cluster.primaries if node is not victim)
    hit, spared = (deploy_at(fleet, cluster, node, threshold=ROOMY) for node in (victim, other))
    home = home_of(planes[0], hit)
    shots = [Shot(hit.invocations, prefix(0)), Shot(spared.invocations, prefix(0))]
    at = [len(plane.output) for plane in planes]
    assert len(publisher("workers")) == 2
    with held(planes, hit, [(hit.invocations, prefix(0))] * 4):
        alive = working(hit)
        load = Load(hosts_thread, planes, shots, rate=60)
        with load.running():
            load.wait(20)
            lose(victim)
            cluster.wait_well()
            wait_up(planes)
            wait_until(lambda: is_true_under_load(fleet, hit, alive), LEASE_SECONDS + 1)
            load.wait(20)
        assert load.failed() == []
        assert {result.host for result in load.results if result.shot is shots[0]} == {home}
        wait_true(fleet, hit, LEASE_SECONDS)
        again = deploy_at(fleet, cluster, other, threshold=4)
        expect_home_exact(fleet, planes, again, home_of(planes[0], again), 4)
    assert publisher("held") == (fleet.stage.routes.epoch, fleet.stage.routes.generation)
    assert len(publisher("workers")) == 2
    for deployed in (hit, spared):
        expect_home_exact(fleet, planes, deployed, home_of(planes[0], deployed), ROOMY)
    return_(victim)
    cluster.wait_well()
    victim.command("CLUSTER FAILOVER")
    wait_until(lambda: cluster.primary_of(redis_keys.ROUTES) is victim)
    cluster.wait_well()
    for plane in planes:
        assert home_of(plane, hit) == home
    wait_up(planes)
    expect_home_exact(fleet, planes, hit, home, ROOMY)
    for plane, before in zip(planes, at, strict=True):
        about = [line for line in plane.output[before:].splitlines() if "Redis" in line]
        assert 0 < len(about) < 20, "\n".join(about)


def wait_up(planes: list[DataPlane]) -> None:
    wait_until(lambda: all(plane.metric("warmroute_store_up") == 1 for plane in planes), 10, "all nodes answer")

"""Limits of principals on a Redis Cluster: a principal's keys are on a node of its own, wherever its endpoint's are."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from contract import redis_keys
from tests.dataplane_e2e.callers import SECRET_KEY, Caller, Callers, bearing, owned
from tests.dataplane_e2e.stage import Deployed, Fleet, Stage, chat_body
from tests.fakes.data_plane import DataPlane
from tests.fakes.model_host import Hosts, HostThread
from tests.fakes.raw_client import RawClient, request_bytes
from tests.fleet.cluster import Cluster, ClusterRoutes
from tests.fleet.stage import SETTINGS
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), replicas=0)
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def stage(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(cluster.url, tmp_path_factory.mktemp("stage"), ClusterRoutes(cluster))
    yield stage
    stage.close()


@pytest.fixture(scope="module")
def planes(stage: Stage) -> list[DataPlane]:
    settings = {**SETTINGS, "AUTH": "on", "SECRET_KEY": SECRET_KEY, "STORE_BUDGET_SECONDS": 0.5}
    return [stage.start(settings=settings) for _ in range(2)]


@pytest.fixture
def fleet(
    stage: Stage, planes: list[DataPlane], hosts_thread: HostThread, request: pytest.FixtureRequest
) -> Iterator[Fleet]:
    fleet = Fleet(stage, Hosts(hosts_thread), request.node.name)
    yield fleet
    fleet.expect_idle()
    fleet.close()


@contextmanager
def asked(planes: list[DataPlane], caller: Caller, deployed: Deployed, count: int) -> Iterator[list[RawClient]]:
    """Send requests at once, the planes in turn, and leave the answers to be read."""
    with ExitStack() as stack:
        clients = [stack.enter_context(planes[at % len(planes)].client()) for at in range(count)]
        for client in clients:
            client.send(request_bytes(deployed.invocations, chat_body("x"), bearing(caller.token())))
        yield clients


def at_each_node(cluster: Cluster, callers: Callers, **limits: float) -> list[Caller]:
    """Make a caller for each primary, whose keys that primary keeps."""
    found: dict[str, Caller] = {}
    for _ in range(60):
        caller = callers.make(**limits)
        node = cluster.primary_of(redis_keys.rate_key(caller.principal.id))
        assert node is cluster.primary_of(redis_keys.load_key(f"principal:{caller.principal.id}"))
        found.setdefault(node.name, caller)
        if len(found) == len(cluster.primaries):
            break
    assert len(found) == len(cluster.primaries)
    return list(found.values())


def test_limits_hold_on_each_node(cluster: Cluster, stage: Stage, planes: list[DataPlane], fleet: Fleet) -> None:
    callers = Callers(stage.routes, stage)
    deployed = owned(fleet, "")
    for caller in at_each_node(cluster, callers, concurrent_requests=2):
        gate = deployed.hosts[0].hold()
        with asked(planes, caller, deployed, 2) as held:
            wait_until(lambda: deployed.in_flight == 2, 5.0, "two are with the host")
            with asked(planes, caller, deployed, 4) as more:
                assert Counter(client.read().status for client in more) == {429: 4}
            gate.open()
            assert {client.read().status for client in held} == {200}
    for caller in at_each_node(cluster, callers, requests_per_second=4.0):
        began = time.monotonic()
        with asked(planes, caller, deployed, 12) as clients:
            found = Counter(client.read().status for client in clients)
        assert set(found) == {200, 429}
        assert 4 <= found[200] <= 4 + 4 * (time.monotonic() - began) + 1
    callers.close()

"""Planes are started once per pytest process and shared; each test has its own endpoints, hosts and identities."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dataplane_e2e.callers import SECRET_KEY, Callers
from tests.dataplane_e2e.stage import Fleet, Stage, runtime
from tests.fakes.data_plane import DataPlane
from tests.fakes.fixtures import hosts_thread as hosts_thread
from tests.fakes.model_host import Hosts, HostThread
from tests.fakes.routes import Routes
from tests.services import PrivateServer
from warmroute.embedded.valkey import Valkey

# Whatever is set in an operator's shell: model hosts are reached directly.
PROXIES = {
    "HTTP_PROXY": "http://127.0.0.1:9",
    "http_proxy": "http://127.0.0.1:9",
    "ALL_PROXY": "socks5://127.0.0.1:9",
    "NO_PROXY": "10.0.0.0/8,localhost",
}
SHARED = {"CONNECT_TIMEOUT_SECONDS": 0.5, "PROBE_SECONDS": 0.2, "EJECT_SECONDS": 0.3}
# A worker held up by a busy machine for longer than the budget would decide alone, and no count would be exact.
EXACT = {**SHARED, "STORE_BUDGET_SECONDS": 0.5}
QUICK = {
    **SHARED,
    "INVOKE_TIMEOUT_SECONDS": 1,
    "STREAM_TIMEOUT_SECONDS": 3,
    "FIRST_BYTE_TIMEOUT_SECONDS": 1,
    "IDLE_TIMEOUT_SECONDS": 0.7,
    "READ_TIMEOUT_SECONDS": 0.7,
    "BODY_BYTES_MAX": 6_291_456,
}


@pytest.fixture(scope="session")
def shared_valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    directory = tmp_path_factory.mktemp("valkey")
    valkey = Valkey(directory, log=directory / "valkey.log")
    valkey.start()
    yield valkey
    valkey.stop()


@pytest.fixture(scope="session")
def stage(shared_valkey: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The stage that most tests share."""
    url = f"redis://127.0.0.1:{shared_valkey.port}/0"
    stage = Stage(url, tmp_path_factory.mktemp("stage"), Routes(url))
    yield stage
    stage.close()


@pytest.fixture(scope="session")
def plane(stage: Stage) -> DataPlane:
    """A data plane with one worker and timeouts as long as in production."""
    return stage.start(settings=EXACT, environ={"PYTHONHASHSEED": "1", **PROXIES})


@pytest.fixture(scope="session")
def second_plane(stage: Stage, plane: DataPlane) -> DataPlane:
    """Another worker of the same fleet, with an address of its own."""
    return stage.start(settings=EXACT, environ={"PYTHONHASHSEED": "2"})


@pytest.fixture(scope="session")
def quick_plane(stage: Stage) -> DataPlane:
    """A data plane whose timeouts a test can wait for."""
    return stage.start(settings=QUICK)


@pytest.fixture(scope="session")
def guarded_plane(stage: Stage) -> DataPlane:
    """A data plane that lets nobody in without a key."""
    return stage.start(settings={**EXACT, "AUTH": "on", "SECRET_KEY": SECRET_KEY})


@pytest.fixture
def callers(stage: Stage) -> Iterator[Callers]:
    """Principals of one test, on the shared stage."""
    callers = Callers(stage.routes, stage)
    yield callers
    callers.close()


@pytest.fixture(scope="session")
def boto(plane: DataPlane) -> Iterator[Any]:
    """A boto3 runtime client of ``plane`` that tries once."""
    client = runtime(plane)
    yield client
    client.close()


@pytest.fixture
def fleet(stage: Stage, hosts_thread: HostThread, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Hosts and endpoints of one test, on the shared stage. Afterwards nothing may be counted, nor have crashed."""
    printed = {plane.port: len(plane.output) for plane in stage.planes}
    fleet = Fleet(stage, Hosts(hosts_thread), request.node.name)
    try:
        yield fleet
        for host in fleet.hosts.made:
            host.drop_connections(reset=True)
        fleet.expect_idle()
    finally:
        fleet.close()
    for plane in stage.planes:
        assert "Traceback" not in plane.output[printed.get(plane.port, 0) :], plane.output


@pytest.fixture
def own_redis(private_redis: Callable[..., PrivateServer]) -> PrivateServer:
    """A Redis of the test's own, which it may stop, freeze and empty."""
    return private_redis()


@pytest.fixture
def own_stage(own_redis: PrivateServer, tmp_path: Path) -> Iterator[Stage]:
    """A stage of the test's own, with no data plane yet."""
    stage = Stage(own_redis.url, tmp_path / "stage", Routes(own_redis.url))
    yield stage
    stage.close()


@pytest.fixture
def own_fleet(own_stage: Stage, hosts_thread: HostThread, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Hosts and endpoints on the test's own stage."""
    fleet = Fleet(own_stage, Hosts(hosts_thread), request.node.name)
    yield fleet
    fleet.hosts.close()

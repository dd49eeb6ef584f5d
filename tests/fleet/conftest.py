"""Fleets that a test may hurt: planes of one worker each around a Redis of the module's or the test's own."""

from collections.abc import Iterator

import pytest

from tests.dataplane_e2e.conftest import own_fleet as own_fleet
from tests.dataplane_e2e.conftest import own_redis as own_redis
from tests.dataplane_e2e.conftest import own_stage as own_stage
from tests.dataplane_e2e.stage import Fleet, Stage
from tests.fakes.data_plane import DataPlane
from tests.fakes.fixtures import hosts_thread as hosts_thread
from tests.fakes.model_host import Hosts, HostThread
from tests.fakes.routes import Routes
from tests.fleet.stage import PATIENT
from tests.services import PrivateServers


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A Redis that no test of the module hurts, and its routing table."""
    directory = tmp_path_factory.mktemp("fleet")
    servers = PrivateServers(directory)
    url = servers.redis().url
    stage = Stage(url, directory / "stage", Routes(url))
    try:
        yield stage
    finally:
        stage.close()
        servers.stop()


@pytest.fixture(scope="module")
def planes(stage: Stage) -> list[DataPlane]:
    """Three data planes of one worker each."""
    return [stage.start(settings=PATIENT) for _ in range(3)]


@pytest.fixture
def fleet(
    stage: Stage, planes: list[DataPlane], hosts_thread: HostThread, request: pytest.FixtureRequest
) -> Iterator[Fleet]:
    """Hosts and endpoints of one test on the module's stage. Afterwards nothing may be counted, nor be corrected."""
    fleet = Fleet(stage, Hosts(hosts_thread), request.node.name)
    try:
        yield fleet
        fleet.expect_idle()
    finally:
        fleet.close()
    assert [plane.metric("warmroute_in_flight_corrections_total") for plane in planes] == [0] * len(planes)

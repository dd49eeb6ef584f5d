"""Fixtures of the control plane's tests: a database built by the migrations, operations called as the API does, and the
reconcilers, either run step by step (Replica) or by their driver (plane)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import psycopg
import pytest
import redis as redis_library

from controlplane.background.driver import Driver
from controlplane.background.probe_hosts import ProbeHosts
from controlplane.snapshot import Limits
from controlplane.store.session import Database
from controlplane.store.tables import NAMES
from migrations import runner
from tests import services
from tests.controlplane.stage import Call, Replica, caller
from tests.fakes.model_host import Hosts, HostThread, host_thread


@pytest.fixture(scope="session")
def migrated_template(postgres_url: str) -> Iterator[str]:
    """Name of a database that the migrations built, to copy."""
    with services.new_database(postgres_url) as url:
        asyncio.run(runner.upgrade(url))
        yield urlsplit(url).path.lstrip("/")


@pytest.fixture(scope="session")
def migrated_database(postgres_url: str, migrated_template: str) -> Iterator[str]:
    with services.new_database(postgres_url, template=migrated_template) as url:
        yield url


@pytest.fixture
def migrated_url(migrated_database: str) -> str:
    """URL of a database as the migrations leave it, with an epoch of this test's own. Its schema must stay."""
    with psycopg.connect(migrated_database) as connection:
        # Emptying costs a tenth of what a copy does.
        connection.execute("TRUNCATE " + ", ".join(sorted(NAMES - {"publication", "heartbeat"})))
        connection.execute(
            "UPDATE publication SET epoch = gen_random_uuid()::text, generation = 0, routes = NULL, published_at = NULL"
        )
        connection.execute("UPDATE heartbeat SET beat_at = now()")
    return migrated_database


@pytest.fixture
def migrated_copy_url(postgres_url: str, migrated_template: str) -> Iterator[str]:
    """URL of a migrated database whose schema the test may change."""
    with services.new_database(postgres_url, template=migrated_template) as url:
        yield url


@pytest.fixture
async def database(migrated_url: str) -> AsyncIterator[Database]:
    database = Database(migrated_url)
    yield database
    await database.dispose()


@pytest.fixture
def call(database: Database) -> Call:
    return caller(database)


@pytest.fixture
def limits() -> Limits:
    """A test that waits for a deployment to fail has its own."""
    return Limits(provision_seconds=30.0, eject_seconds=0.3)


@pytest.fixture
def redis(redis_url: str) -> Iterator[redis_library.Redis]:
    """A client of an empty Redis."""
    with redis_library.Redis.from_url(redis_url) as client:
        client.flushdb()
        yield client


@pytest.fixture
async def replica(
    database: Database, redis: redis_library.Redis, redis_url: str, limits: Limits
) -> AsyncIterator[Replica]:
    replica = Replica(database, redis_url, limits)
    yield replica
    await replica.close()


@pytest.fixture
async def plane(replica: Replica) -> AsyncIterator[Driver]:
    """The reconcilers at work, as in a running control plane."""
    driver = Driver([replica.settle, replica.prober, replica.publish], replica.database.listen)
    replica.prober.wake = driver.states[ProbeHosts.name].wake.set
    running = asyncio.create_task(driver.run())
    yield driver
    driver.stop()
    await asyncio.wait_for(running, 10)


@pytest.fixture(scope="session")
def hosts_thread() -> Iterator[HostThread]:
    with host_thread() as thread:
        yield thread


@pytest.fixture
def hosts(hosts_thread: HostThread) -> Iterator[Hosts]:
    """Makes model hosts on real sockets."""
    hosts = Hosts(hosts_thread)
    yield hosts
    hosts.close()

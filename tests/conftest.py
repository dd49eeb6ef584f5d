"""Fixtures that every test may use. Servers are one a test process, so parallel runs never share one by accident.

postgres_url: URL of a Postgres server; make your own database in it (database_url does).
database_url: URL of a new empty database of this test.
redis_url: URL of a Redis database, emptied before each test module.
private_redis, private_postgres: factories of servers that a test may pause, kill and restart.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis

from tests import services
from warmroute.embedded.valkey import Valkey


@pytest.fixture(scope="session")
def postgres_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a new Postgres, to copy."""
    return services.make_template(tmp_path_factory.mktemp("postgres-template") / "server")


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Postgres server whose user may create databases."""

    @contextlib.contextmanager
    def embedded() -> Iterator[str]:
        template = request.getfixturevalue("postgres_template")
        server = services.postgres_from(template, tmp_path_factory.mktemp("postgres") / "server")
        try:
            yield server.start()
        finally:
            server.stop()

    with services.service("postgres", "WARMROUTE_DATABASE_URL", embedded) as url:
        yield url


@pytest.fixture
def database_url(postgres_url: str) -> Iterator[str]:
    """URL of a new, empty database."""
    with services.new_database(postgres_url) as url:
        yield url


@pytest.fixture(scope="session")
def redis_server_url(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[str]:
    """URL of a Redis database that no other test process uses."""

    @contextlib.contextmanager
    def embedded() -> Iterator[str]:
        directory = tmp_path_factory.mktemp("redis")
        server = Valkey(directory, log=directory / "log")
        try:
            yield server.start()
        finally:
            server.stop()

    with services.service("redis", "WARMROUTE_REDIS_URL", embedded) as url:
        given = urlsplit(url)
        # Only a server from the environment is shared by parallel test processes.
        if url == os.environ.get("WARMROUTE_REDIS_URL") and worker_id != "master":
            given = given._replace(path=f"/{int(worker_id.removeprefix('gw'))}")
        yield urlunsplit(given)


@pytest.fixture(scope="module")
def redis_url(redis_server_url: str) -> str:
    """URL of a Redis database, empty when a test module begins."""
    with redis.Redis.from_url(redis_server_url) as client:
        client.flushdb()
    return redis_server_url


@pytest.fixture
def private_redis(tmp_path: Path) -> Iterator[Callable[..., services.PrivateServer]]:
    """``private_redis(*arguments) -> PrivateServer``: a Valkey of this test's own."""
    directory = tmp_path / "private-redis"
    directory.mkdir()
    servers = services.PrivateServers(directory)
    yield servers.redis
    servers.stop()


@pytest.fixture
def private_postgres(tmp_path: Path, postgres_template: Path) -> Iterator[Callable[[], services.PrivateServer]]:
    """``private_postgres() -> PrivateServer``: a Postgres of this test's own."""
    directory = tmp_path / "private-postgres"
    directory.mkdir()
    servers = services.PrivateServers(directory, postgres_template)
    yield servers.postgres
    servers.stop()

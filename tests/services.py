"""Real Postgres and Redis for tests: the ones in the environment, else Docker's, else the embedded wheels'.

``TEST_SERVICES`` (auto, docker, embedded) pins the choice, so that it cannot drift unnoticed. The name
has no WARMROUTE_ prefix, because an unknown setting is an error.
"""

import contextlib
import os
import shutil
import signal
import socket
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from tests.waiting import wait_until
from warmroute.embedded.postgres import Postgres
from warmroute.embedded.processes import alive, children
from warmroute.embedded.valkey import Valkey

POSTGRES_IMAGE, REDIS_IMAGE = "postgres:18-alpine", "redis:8-alpine"


@contextlib.contextmanager
def service(kind: str, variable: str, embedded: Callable[[], contextlib.AbstractContextManager[str]]) -> Iterator[str]:
    """Yield the URL of a ``postgres`` or ``redis``."""
    wanted = os.environ.get("TEST_SERVICES", "auto")
    if wanted not in ("auto", "docker", "embedded"):
        raise ValueError(f"TEST_SERVICES is {wanted!r}; give auto, docker or embedded")
    if wanted == "auto" and (url := os.environ.get(variable)):
        yield url
    elif wanted == "docker" or (wanted == "auto" and docker_answers()):
        with _container(kind) as url:
            yield url
    else:
        with embedded() as url:
            yield url


def docker_answers() -> bool:
    """Tell whether a Docker daemon answers within 2 s. Its SDK would leave a socket open when there is none."""
    where = urlsplit(os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock")
    try:
        with socket.socket(socket.AF_UNIX if where.scheme == "unix" else socket.AF_INET) as daemon:
            daemon.settimeout(2)
            daemon.connect(where.path if where.scheme == "unix" else (where.hostname, where.port or 2375))
            daemon.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            # A daemon behind TLS answers a plain request with an error, and that is an answer.
            return daemon.recv(1) != b""
    except OSError:
        return False


@contextlib.contextmanager
def _container(kind: str) -> Iterator[str]:
    if kind == "postgres":
        from testcontainers.community.postgres import PostgresContainer

        with PostgresContainer(POSTGRES_IMAGE, driver=None) as postgres:
            yield postgres.get_connection_url()
    else:
        from testcontainers.community.redis import RedisContainer

        with RedisContainer(REDIS_IMAGE) as redis:
            yield f"redis://{redis.get_container_host_ip()}:{redis.get_exposed_port(6379)}/0"


class PrivateServer:
    """An embedded server of one test's own, which the test may pause, kill and start again at the same URL."""

    def __init__(self, server: Postgres | Valkey) -> None:
        self._server = server
        self._paused: list[int] = []
        self.url = server.start()

    @property
    def pid(self) -> int:
        """Process id of the server (of Postgres: of its postmaster)."""
        return self._server.pid

    def pause(self) -> None:
        """SIGSTOP: connections stay open, and nothing answers."""
        self._paused = [self.pid, *children(self.pid)]
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after pause()."""
        self._signal_all(signal.SIGCONT)
        self._paused = []

    def kill(self) -> None:
        """SIGKILL, and wait until no process of it is left."""
        family = [self.pid, *children(self.pid)]
        os.kill(self.pid, signal.SIGKILL)
        self._server.stop()
        wait_until(lambda: not any(alive(pid) for pid in family), what="end of all processes of a killed server")

    def stop(self) -> None:
        """End it in good order. Idempotent."""
        self.resume()
        self._server.stop()

    def start(self) -> None:
        """Start it again after stop() or kill()."""
        assert self._server.start() == self.url

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in self._paused:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class PrivateServers:
    """Makes private servers below one directory and ends them all."""

    def __init__(self, directory: Path, template: Path | None = None) -> None:
        self._directory = directory
        self._template = template
        self._servers: list[PrivateServer] = []

    def redis(self, *arguments: str) -> PrivateServer:
        """Start an empty Valkey; ``arguments`` are options of its command line."""
        directory = self._new()
        return self._keep(PrivateServer(Valkey(directory, log=directory / "log", arguments=arguments)))

    def postgres(self) -> PrivateServer:
        """Start a Postgres with no tables."""
        directory = self._new()
        assert self._template is not None
        return self._keep(PrivateServer(postgres_from(self._template, directory)))

    def stop(self) -> None:
        """End all of them."""
        for server in self._servers:
            server.stop()

    def _new(self) -> Path:
        directory = self._directory / str(len(self._servers))
        directory.mkdir()
        return directory

    def _keep(self, server: PrivateServer) -> PrivateServer:
        self._servers.append(server)
        return server


def make_template(directory: Path) -> Path:
    """Run initdb once; a copy of its result takes a tenth of the time."""
    Postgres(directory, log=directory.parent / "initdb.log", durable=False).create()
    return directory / "data"


def postgres_from(template: Path, directory: Path) -> Postgres:
    """Return a server, not yet started, whose data is a copy of the template."""
    directory.mkdir(exist_ok=True)
    shutil.copytree(template, directory / "data")
    return Postgres(directory, log=directory / "log", durable=False)


@contextlib.contextmanager
def new_database(server_url: str, template: str = "template1") -> Iterator[str]:
    """Yield the URL of a new database, a copy of ``template``, and drop it afterwards with its connections."""
    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY wal_log").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        try:
            yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
        finally:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

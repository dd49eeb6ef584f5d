"""Builds the control plane once, from its settings, and serves it until it is told to stop."""

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import asyncpg  # type: ignore[import-untyped]
import uvicorn
from fastapi import FastAPI

from access.files import host_tls, listener_tls, load_certificate, sealing_of
from contract.settings import Settings, SettingsError, require
from controlplane.api.app import build_app
from controlplane.background.driver import Driver
from controlplane.background.keep_records import KeepRecords
from controlplane.background.probe_hosts import ProbeHosts
from controlplane.background.publish_routes import PublishRoutes
from controlplane.background.redis_link import RedisLink
from controlplane.background.settle_endpoints import SettleEndpoints
from controlplane.errors import ServiceUnavailable
from controlplane.http_protocol import TimedProtocol
from controlplane.metrics import RequestCounts, render
from controlplane.snapshot import Limits
from controlplane.store.session import Database, sqlstate
from migrations import runner

log = logging.getLogger(__name__)

_DATABASE_SECONDS = 8.0
"""How long a start waits for a database that is away; with the last attempt, an error is out within 15 s."""
_STOP_SECONDS = 10
"""For requests under way when the plane stops; an operation takes milliseconds."""


class StartupError(Exception):
    """The control plane cannot start; the message is one sentence for the operator."""


@dataclass(frozen=True)
class Plane:
    """The parts of one running control plane."""

    app: FastAPI
    tls: ssl.SSLContext | None
    """Of the listener; None: plain HTTP."""
    driver: Driver
    database: Database
    redis: RedisLink
    prober: ProbeHosts

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator["asyncio.Task[None]"]:
        """Run the background tasks; close everything at the end. Yields the task that runs them."""
        running = asyncio.create_task(self.driver.run(), name="driver")
        try:
            yield running
        finally:
            self.driver.stop()
            await asyncio.wait([running], timeout=_STOP_SECONDS / 2)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await self.prober.close()
            await self.redis.close()
            await self.database.dispose()


def build(settings: Settings) -> Plane:
    """Connect the parts. Nothing is opened before it is used, but files. Raises SettingsError."""
    sealing, metadata_hosts = sealing_of(settings), settings.allow_metadata_hosts == "on"
    database = Database(require(settings, "DATABASE_URL"))
    redis = RedisLink(require(settings, "REDIS_URL"))
    settle = SettleEndpoints(database, redis, Limits(settings.provision_timeout_seconds, settings.eject_seconds))
    auth = settings.auth == "on"
    publish = PublishRoutes(database, redis, settings.account_id, settings.region, with_principals=auth)
    prober = ProbeHosts(
        database,
        settings.probe_seconds,
        lambda: driver.states[ProbeHosts.name].wake.set(),
        sealing=sealing,
        tls=host_tls(settings),
        metadata_hosts=metadata_hosts,
    )
    driver = Driver([settle, prober, publish, KeepRecords(database, settings.audit_days)], database.listen)
    requests = RequestCounts()
    app = build_app(
        database=database,
        account_id=settings.account_id,
        region=settings.region,
        is_ready=lambda: _readiness(driver),
        metrics=lambda: render(requests, settle.seen, driver.states, publish.generation, publish.published_at),
        observe=requests.observe,
        sealing=sealing,
        auth=auth,
        metadata_hosts=metadata_hosts,
    )
    return Plane(app, listener_tls(settings), driver, database, redis, prober)


def _readiness(driver: Driver) -> tuple[bool, str]:
    """Ready once the tables were read, until they cannot be read any more. Redis is not needed to serve requests."""
    state = driver.states[SettleEndpoints.name]
    if state.is_outage:
        return False, "The database cannot be used just now; the log says why."
    if not state.runs:
        return False, "The control plane is starting."
    return True, ""


async def serve(settings: Settings, host: str, port: int, *, on_ready: Callable[[int], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT. ``on_ready`` is told the port once requests are taken. Raises StartupError."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s control plane %(message)s")
    # Their information lines are about themselves, one for each probe and each migration's set-up.
    for name in ("httpx", "alembic", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)
    _check_doors(settings, host)
    try:
        plane = build(settings)
    except SettingsError as error:
        raise StartupError(str(error)) from None
    with _listen(host, port) as listener:
        await _migrate(settings.database_url)
        await _serve(plane, listener, settings, on_ready)


def migrate(database_url: str) -> None:
    """Bring the database's schema to this build's. Raises StartupError, having changed nothing."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s migrate %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    asyncio.run(_migrate(database_url))


async def _migrate(database_url: str) -> None:
    deadline = time.monotonic() + _DATABASE_SECONDS
    while True:
        try:
            await runner.upgrade(database_url)
        except runner.SchemaIsNewer as error:
            raise StartupError(str(error)) from None
        except ServiceUnavailable as error:
            if _is_final(error.__cause__) or time.monotonic() > deadline:
                raise StartupError(f"WARMROUTE_DATABASE_URL: {error.log}") from None
            await asyncio.sleep(0.5)
        else:
            return


def _is_final(cause: BaseException | None) -> bool:
    """Tell whether another attempt would fail the same way: login refused, no such database, malformed URL."""
    return sqlstate(cause).startswith(("28", "3D")) or isinstance(cause, asyncpg.InterfaceError)


async def _serve(
    plane: Plane, listener: socket.socket, settings: Settings, on_ready: Callable[[int], None] | None
) -> None:
    tls = plane.tls
    server = _Server(
        uvicorn.Config(
            plane.app,
            http=TimedProtocol,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=_STOP_SECONDS,
            ssl_context_factory=None if tls is None else lambda config, default: tls,
        )
    )
    async with plane.at_work() as working:
        # The tasks end only when they are cancelled; if they fail, so must the plane, for it to be started again.
        working.add_done_callback(lambda _: server.stop())
        with _stopping_by_signal(server), _reloading_by_signal(plane, settings):
            serving = asyncio.create_task(server.serve([listener]))
            while not server.started and not serving.done():
                await asyncio.sleep(0.01)
            if on_ready is not None and server.started:
                on_ready(listener.getsockname()[1])
            await serving
        if working.done():
            await working


class _Server(uvicorn.Server):
    """Uvicorn without its own signal handling, which would end the process by the signal after a clean stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Finish the requests under way and stop; at the second call, at once."""
        self.force_exit = self.should_exit
        self.should_exit = True


@contextlib.contextmanager
def _stopping_by_signal(server: _Server) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, server.stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _reloading_by_signal(plane: Plane, settings: Settings) -> Iterator[None]:
    """Take a renewed certificate at SIGHUP; connections that are open keep theirs."""

    def reload() -> None:
        if plane.tls is None:
            log.info("SIGHUP: there is no certificate to read anew")
            return
        try:
            load_certificate(plane.tls, settings)
        except SettingsError as error:
            log.error("SIGHUP: the certificate stays as it is: %s", error)
        else:
            log.info("SIGHUP: the certificate is read anew")

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def _check_doors(settings: Settings, host: str) -> None:
    if settings.auth == "off" and not all(map(_is_loopback, _addresses(host))):
        raise StartupError(
            f"WARMROUTE_AUTH=off is accepted on loopback addresses only, not on {host}; set WARMROUTE_AUTH=on"
        )
    if settings.auth == "on" and not settings.tls_cert_file and not all(map(_is_loopback, _addresses(host))):
        log.warning("AUTH is on without WARMROUTE_TLS_CERT_FILE: API keys and what is asked travel in the clear")


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _addresses(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise StartupError(f"{host} is no address of this machine; give one such as 127.0.0.1 with --host") from None
    return [str(entry[4][0]).partition("%")[0] for entry in found]


def _listen(host: str, port: int) -> socket.socket:
    address = _addresses(host)[0]
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        # Others must not be able to take the port between here and the first request.
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise StartupError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another with --port"
        ) from None
    return listener

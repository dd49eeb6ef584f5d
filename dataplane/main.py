"""The data plane: N worker processes on one port, kept alive, stopped together.

The parent makes one listening socket per worker (SO_REUSEPORT) and holds on to it: connections that wait in a crashed
worker's queue are served by its successor. It takes no requests itself.
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from access.files import host_tls, listener_tls, sealing_of
from contract.settings import Settings, SettingsError, require
from dataplane.metrics import absorb

logger = logging.getLogger(__name__)

START_SECONDS = 15.0
RESTART_SECONDS = (0.0, 0.5, 1.0, 2.0, 5.0)
"""Waits before a crashed worker is started anew; the last one holds for a crash loop."""
STEADY_SECONDS = 30.0
"""A worker that lived so long starts the waits from the beginning."""
BACKLOG = 1024
_STOP_MARGIN_SECONDS = 5.0


class StartupError(Exception):
    """The data plane cannot start; the message is one sentence for the operator."""


def run(
    settings: Settings,
    host: str,
    port: int,
    workers: int,
    data_dir: Path | None,
    *,
    on_ready: Callable[[int], None] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT. ``on_ready`` is told the port when every worker listens. Returns the exit code."""
    require(settings, "REDIS_URL")
    _check_doors(settings, host)
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s data plane %(message)s")
    with contextlib.ExitStack() as stack:
        if data_dir is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="warmroute-")))
        else:
            directory = data_dir
        _make(directory)
        listeners = _listen(host, port, workers)
        return asyncio.run(_Supervisor(settings, listeners, directory).run(on_ready))


def _check_doors(settings: Settings, host: str) -> None:
    _check_files(settings)
    if settings.auth == "on":
        return
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise StartupError(f"WARMROUTE_AUTH=off is accepted on loopback addresses only, not on {host}")


def _check_files(settings: Settings) -> None:
    """Raise SettingsError for what would keep a worker from starting."""
    sealing_of(settings)
    listener_tls(settings)
    host_tls(settings)


def _make(directory: Path) -> None:
    """Make the data directory; metrics of an earlier run are not this run's."""
    try:
        metrics = directory / "metrics"
        metrics.mkdir(parents=True, exist_ok=True)
        for file in metrics.glob("*.metrics"):
            file.unlink()
    except OSError as error:
        raise StartupError(f"--data-dir {directory} cannot be used: {error.strerror}") from None


def _listen(host: str, port: int, count: int) -> list[socket.socket]:
    listeners: list[socket.socket] = []
    try:
        for _ in range(count):
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.socket(family, socket.SOCK_STREAM)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if count > 1:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if len(listeners) == 1:
                _claim(host, port)
            listener.bind((host, port))
            port = listener.getsockname()[1]
        for listener in listeners:
            listener.listen(BACKLOG)
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise StartupError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another with --port"
        ) from None
    return listeners


def _claim(host: str, port: int) -> None:
    """Bind once without SO_REUSEPORT: another data plane on the port must be an error, not a silent sharing of it."""
    if port:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))


class _Supervisor:
    """Owns the worker processes. ``_stopping`` ends all restarts."""

    def __init__(self, settings: Settings, listeners: list[socket.socket], directory: Path) -> None:
        self._settings = settings
        self._listeners = listeners
        self._directory = directory
        self._stopping = asyncio.Event()
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._pipes: dict[asyncio.subprocess.Process, socket.socket] = {}

    async def run(self, on_ready: Callable[[int], None] | None) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ended)
        reloads: set[asyncio.Task[None]] = set()

        def reload() -> None:
            task = loop.create_task(self._reload())
            reloads.add(task)
            task.add_done_callback(reloads.discard)

        loop.add_signal_handler(signal.SIGHUP, reload)
        slots = range(len(self._listeners))
        try:
            started = await asyncio.gather(*(self._start(slot) for slot in slots))
            if not all(started) and not self._stopping.is_set():
                raise StartupError("a worker did not start; its log says why")
            if on_ready is not None and not self._stopping.is_set():
                on_ready(self._listeners[0].getsockname()[1])
            keepers = [loop.create_task(self._keep(slot)) for slot in slots]
            await self._stopping.wait()
            for keeper in keepers:
                keeper.cancel()
        finally:
            await self._stop()
        return 0

    def _ended(self) -> None:
        """The first signal drains the workers; a second one, from an operator who will not wait, ends them."""
        if self._stopping.is_set():
            self._signal_all(signal.SIGTERM)
        self._stopping.set()

    def _signal_all(self, number: signal.Signals) -> None:
        for process in self._pipes:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)

    async def _start(self, slot: int) -> bool:
        """Start a worker and wait until it listens. Return False when it cannot be, ends or takes too long."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            process = await self._execute(slot, theirs)
        except OSError as error:
            # For want of memory or processes, as a rule; there may be some later.
            ours.close()
            logger.error("worker %d cannot be started: %s", slot, error)
            return False
        finally:
            theirs.close()
        self._processes[slot] = process
        self._pipes[process] = ours
        try:
            async with asyncio.timeout(START_SECONDS):
                return bool(await asyncio.get_running_loop().sock_recv(ours, 1))
        except (TimeoutError, OSError):
            return False

    async def _execute(self, slot: int, pipe: socket.socket) -> asyncio.subprocess.Process:
        listener = self._listeners[slot].fileno()
        return await asyncio.create_subprocess_exec(
            sys.executable,
            # -P: a redis.py in the operator's directory must not stand in for the library.
            *("-P", "-m", "dataplane.worker", "--slot", str(slot), "--listener", str(listener)),
            *("--pipe", str(pipe.fileno()), "--data-dir", str(self._directory)),
            pass_fds=(listener, pipe.fileno()),
            env=_environment(self._settings),
            # Ctrl-C in a terminal reaches the whole group; the parent decides when its workers stop.
            start_new_session=True,
        )

    async def _keep(self, slot: int) -> None:
        """Start the slot's worker anew whenever it has ended."""
        loop = asyncio.get_running_loop()
        attempt = 0
        while True:
            process = self._processes[slot]
            born = loop.time()
            code = await process.wait()
            if self._processes[slot] is not process:
                continue
            self._forget(slot, process)
            attempt = 0 if loop.time() - born > STEADY_SECONDS else attempt + 1
            wait = RESTART_SECONDS[min(attempt, len(RESTART_SECONDS) - 1)]
            logger.error("worker %d ended (%s); starting it anew in %g s", slot, _say(code), wait)
            await asyncio.sleep(wait)
            await self._start(slot)

    async def _reload(self) -> None:
        """Replace the workers one by one; each old one drains while its successor takes what comes."""
        try:
            _check_files(self._settings)
        except SettingsError as error:
            logger.error("SIGHUP: the workers stay as they are: %s", error)
            return
        logger.info("SIGHUP: replacing the workers one by one")
        for slot in range(len(self._listeners)):
            old = self._processes[slot]
            if await self._start(slot) and not self._stopping.is_set():
                with contextlib.suppress(ProcessLookupError):
                    old.terminate()
                await old.wait()
                self._forget(slot, old)

    async def _stop(self) -> None:
        """Close the doors, let workers drain, end those that do not."""
        for listener in self._listeners:
            listener.close()
        self._signal_all(signal.SIGTERM)
        ends = asyncio.gather(*(process.wait() for process in self._pipes))
        try:
            await asyncio.wait_for(asyncio.shield(ends), self._settings.drain_seconds + _STOP_MARGIN_SECONDS)
        except TimeoutError:
            logger.error("workers did not stop within WARMROUTE_DRAIN_SECONDS; killing them")
            self._signal_all(signal.SIGKILL)
            await ends
        for pipe in self._pipes.values():
            pipe.close()

    def _forget(self, slot: int, process: asyncio.subprocess.Process) -> None:
        try:
            absorb(self._directory / "metrics", f"{slot}-{process.pid}")
        except OSError as error:
            # A full disk must not keep the worker from being started anew.
            logger.error("counters of worker %d are lost: %s", slot, error)
        pipe = self._pipes.pop(process, None)
        if pipe is not None:
            pipe.close()


def _environment(settings: Settings) -> dict[str, str]:
    """Workers read the same settings, less the database's; ``up`` hands over a Redis not in the environment."""
    environment = {**os.environ, **settings.environ, "WARMROUTE_REDIS_URL": settings.redis_url}
    environment.pop("WARMROUTE_DATABASE_URL", None)
    return environment


def _say(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

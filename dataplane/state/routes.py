"""The routing table this worker serves: read on notice and by timer, swapped whole, kept on disk, reported.

A lost notice, a Redis that lost the table and a fresh worker all take the same way: look, compare, swap. What changes
here: ``current``, the reference to an immutable Routes; only ``_apply`` changes it.
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from contract import redis_keys
from contract.routing_table import RoutingTable, decode, encode
from dataplane.lasting import lasting
from dataplane.routing.routes import Routes

logger = logging.getLogger(__name__)

_REPORT = """
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
"""
_WITHDRAW = "redis.call('ZREM', KEYS[1], ARGV[1]) redis.call('HDEL', KEYS[2], ARGV[1])"
"""In the clock of Redis, so that the workers' own clocks do not matter."""

FILE = "routing-table"
_LOOK_SECONDS_MAX = 2.0
"""A distant Redis takes some round trips for a new connection."""
CANCELS_MAX = 5
"""redis-py may take a cancellation for a time-out of its own, and go on; so it is said again."""


class Client(Protocol):
    """What a watcher asks of its client; state.redis_client has it for one server and for a cluster."""

    async def hmget(self, key: str, fields: list[str], /) -> list[bytes | None]: ...
    async def eval(self, script: str, keys_count: int, /, *keys_and_arguments: Any) -> Any: ...
    def pubsub(self) -> AbstractAsyncContextManager[PubSub]: ...


class RouteWatcher:
    """Keeps ``current`` as new as Redis allows. ``applied`` is called after each swap."""

    def __init__(
        self,
        client: Client,
        worker: str,
        resync_seconds: float,
        lease_seconds: float,
        directory: Path | None,
        applied: Callable[[Routes], None],
    ) -> None:
        self._client = client
        self._worker = worker
        self._resync_seconds = resync_seconds
        self._lease_seconds = lease_seconds
        self._file = directory / FILE if directory is not None else None
        self._applied = applied
        self._tasks: list[asyncio.Task[None]] = []
        self._reachable = True
        self._unusable = ""
        # A third of the resync time until the look, a quarter for a dead connection, the rest for a new one.
        self._look_seconds = min(resync_seconds / 4, _LOOK_SECONDS_MAX)
        self._wake = asyncio.Event()
        self.current: Routes | None = None

    async def start(self) -> None:
        """Look once, fall back on the file, then keep looking in the background."""
        await self._look()
        if self.current is None:
            self._read_file()
        self._tasks = [
            lasting(self._resync(), "look for routes"),
            lasting(self._listen(), "listen for notices"),
            lasting(self._keep_reporting(), "report the routes in use"),
        ]

    async def stop(self) -> None:
        """Stop, and tell the control plane not to wait for this worker."""
        waiting: Collection[asyncio.Task[None]] = self._tasks
        for _ in range(CANCELS_MAX):
            for task in waiting:
                task.cancel()
            if waiting:
                _, waiting = await asyncio.wait(waiting, timeout=0.5)
        with contextlib.suppress(RedisError, OSError, TimeoutError):
            await self._script(_WITHDRAW, self._worker)

    async def _look(self) -> None:
        """Take the table in Redis if it is another than the current one. Never fails: the looking must go on."""
        try:
            await self._take_newer()
        except (RedisError, OSError, TimeoutError) as error:
            self._note_reachable(False, error)
        except ValueError as error:
            self._note_reachable(True)
            self._note_unusable(str(error))
        except Exception as error:
            # Of no known kind, so a fault of ours; a worker that gave up looking would serve old routes in silence.
            self._note_unusable(repr(error))

    async def _take_newer(self) -> None:
        table = await self._newer()
        routes = Routes(table, self.current) if table is not None else None
        self._note_reachable(True)
        self._note_unusable("")
        if table is not None and routes is not None:
            self._apply(routes)
            self._write_file(table)
            await self._report()

    async def _newer(self) -> RoutingTable | None:
        """Return the table in Redis if it is newer than ours. Raises RedisError, OSError, TimeoutError, ValueError.

        The first attempt may meet a connection that is dead without being closed; the second one has a new one.
        """
        for is_last in (False, True):
            try:
                async with asyncio.timeout(_LOOK_SECONDS_MAX if is_last else self._look_seconds):
                    return await self._read()
            except (RedisError, OSError, TimeoutError):
                if is_last:
                    raise
        raise AssertionError("unreachable")

    async def _read(self) -> RoutingTable | None:
        epoch, generation = await self._get("epoch", "generation")
        if epoch is None or not self._is_news(epoch.decode(errors="replace"), _number(generation)):
            return None
        (data,) = await self._get("table")
        if data is None:
            return None
        table = decode(data)
        return table if self._is_news(table.epoch, table.generation) else None

    async def _get(self, *fields: str) -> list[bytes | None]:
        return await self._client.hmget(redis_keys.ROUTES, list(fields))

    def _is_news(self, epoch: str, generation: int) -> bool:
        if self.current is None:
            return True
        table = self.current.table
        return epoch != table.epoch or generation > table.generation

    def _apply(self, routes: Routes) -> None:
        self.current = routes
        table = routes.table
        logger.info("Serving routing table %d with %d endpoints", table.generation, len(table.endpoints))
        self._applied(routes)

    # --- background --------------------------------------------------------------------------------------------------

    async def _resync(self) -> None:
        """Look on each wake-up, and often enough without one that a look may fail within the resync time."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._resync_seconds / 3):
                    await self._wake.wait()
            self._wake.clear()
            await self._look()

    async def _listen(self) -> None:
        """Turn notices into wake-ups. Whatever befalls the subscription, the timer goes on."""
        while True:
            try:
                async with self._client.pubsub() as channel:
                    await channel.subscribe(redis_keys.ROUTES_NOTICE)
                    self._wake.set()
                    while True:
                        # None after the timeout; a dead connection raises or stays silent, which the timer covers.
                        if await channel.get_message(ignore_subscribe_messages=True, timeout=30) is not None:
                            self._wake.set()
            except (RedisError, OSError, TimeoutError):
                await asyncio.sleep(min(1.0, self._resync_seconds / 2))

    async def _keep_reporting(self) -> None:
        while True:
            await self._report()
            await asyncio.sleep(self._lease_seconds / 3)

    async def _report(self) -> None:
        """Say which table this worker serves; the control plane waits for that before it reports InService."""
        if self.current is None:
            return
        table = self.current.table
        lease = int(self._lease_seconds * 1000)
        with contextlib.suppress(RedisError, OSError, TimeoutError):
            async with asyncio.timeout(2):
                await self._script(_REPORT, self._worker, lease, f"{table.epoch}:{table.generation}")

    async def _script(self, script: str, *arguments: Any) -> None:
        await self._client.eval(script, 2, redis_keys.WORKERS, redis_keys.WORKERS_APPLIED, *arguments)

    def _note_reachable(self, reachable: bool, error: BaseException | None = None) -> None:
        if reachable != self._reachable:
            self._reachable = reachable
            if reachable:
                logger.info("Routing tables can be read from Redis again")
            else:
                reason = str(error) or type(error).__name__
                logger.warning("Routing tables cannot be read from Redis (%s); serving the last one", reason)

    def _note_unusable(self, why: str) -> None:
        if why and why != self._unusable:
            logger.error(
                "The routing table in Redis cannot be read (%s); keeping the one in use. Upgrade this worker, or see "
                "what the control plane publishes",
                why,
            )
        self._unusable = why

    # --- disk --------------------------------------------------------------------------------------------------------

    def _read_file(self) -> None:
        if self._file is None:
            return
        try:
            routes = Routes(decode(self._file.read_bytes()))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            logger.warning("The last routing table in %s cannot be used: %s", self._file, error)
            return
        logger.warning("Redis has no routing table; serving the last one from %s", self._file)
        self._apply(routes)

    def _write_file(self, table: RoutingTable) -> None:
        if self._file is None:
            return
        partial = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        try:
            # Secrets in it are sealed; API keys are digests. Still nobody else's to read.
            partial.touch(0o600)
            partial.write_bytes(encode(table))
            partial.replace(self._file)
        except OSError as error:
            logger.warning("The routing table cannot be kept in %s: %s", self._file, error)


def _number(text: bytes | None) -> int:
    """Return a generation; for what is none, one that makes us read the table itself."""
    return int(text) if text is not None and text.isdigit() else sys.maxsize

"""The worker's client for what is off the hot path (routes, leases of workers): one server or a cluster.

Which of the two it is, is asked when a connection is first made, so that a worker starts while Redis is away. Many
tasks may call at once. Methods raise RedisError or OSError, and CancelledError only in a task that was cancelled. What
changes here: ``_client``, set once it is known, and what is being closed.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable
from typing import Any, cast

from redis.asyncio import Connection, ConnectionPool, Redis, RedisCluster
from redis.asyncio.client import PubSub
from redis.asyncio.connection import parse_url
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MovedError, RedisClusterException, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

_LIMITS: dict[str, Any] = {"socket_timeout": 2.0, "socket_connect_timeout": 2.0, "health_check_interval": 10}
"""Seconds: for an answer, for a connection, and how long one may idle before it is tried before its use."""


class RedisClient:
    """The three calls of redis-py that route watching needs, on whatever the URL names."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Redis | RedisCluster | None = None
        self._finding_out = asyncio.Lock()
        self._closing: set[asyncio.Future[None]] = set()

    async def hmget(self, key: str, fields: list[str]) -> list[bytes | None]:
        async with self._connected() as client:
            return await cast("Awaitable[list[bytes | None]]", client.hmget(key, fields))

    async def eval(self, script: str, keys_count: int, *keys_and_arguments: Any) -> Any:
        async with self._connected() as client:
            return await client.eval(script, keys_count, *keys_and_arguments)

    @contextlib.asynccontextmanager
    async def pubsub(self) -> AsyncIterator[PubSub]:
        """A subscriber on one server. All nodes of a cluster pass on all notices, so any live one will do."""
        async with self._connected() as client:
            subscriber = self._on_one_node(client) if isinstance(client, RedisCluster) else client
            try:
                async with subscriber.pubsub() as channel:
                    yield channel
            finally:
                if subscriber is not client:
                    await subscriber.aclose()

    async def aclose(self) -> None:
        """Close all connections; a later call opens new ones. Never fails."""
        if self._client is not None:
            self._hang_up(self._client)
        await self._all_hung_up()

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[Redis | RedisCluster]:
        client = None
        try:
            client = await self._any_client()
            yield client
        except (RedisClusterException, IndexError) as error:
            # What redis-py raises, and is no RedisError, when no node of a cluster is reachable, none serves the slot,
            # or one that was asked knows of none. All that is known of its nodes may be out of date.
            self._forget(client)
            raise RedisConnectionError(f"no node of the cluster serves the routes ({error})") from error
        except MovedError:
            # Taken for one server, it is a cluster that hid it when it was asked.
            self._forget(client)
            raise
        except (RedisConnectionError, RedisTimeoutError, OSError):
            self._hang_up(client)
            raise
        except (asyncio.CancelledError, AttributeError, RuntimeError) as error:
            self._hang_up(client)
            if isinstance(error, asyncio.CancelledError) and _is_asked_to_stop():
                raise
            # Another call has hung up meanwhile: asyncio lets all who wait for one connection to close be cancelled
            # with the first of them, and redis-py does not expect a connection to go while it waits on it.
            raise RedisConnectionError(f"the connection was closed by another call ({error!r})") from error
        finally:
            if client is not self._client:
                self._hang_up(client)

    async def _any_client(self) -> Redis | RedisCluster:
        async with self._finding_out:
            await self._all_hung_up()
            if self._client is None:
                self._client = await _find_out(self._url)
            return self._client

    def _forget(self, client: Redis | RedisCluster | None) -> None:
        """Let the next call ask the URL's host anew."""
        if client is self._client:
            self._client = None

    def _hang_up(self, client: Redis | RedisCluster | None) -> None:
        """Close its connections, also those in use: they may be as dead as the one that failed.

        The next call opens a new one, and asks the nodes of a cluster anew. Closing is no caller's to wait for, as it
        may end with an error of its own or with the caller's cancellation.
        """
        if client is not None:
            closing = asyncio.ensure_future(client.aclose())
            self._closing.add(closing)
            closing.add_done_callback(self._hung_up)

    def _hung_up(self, closing: "asyncio.Future[None]") -> None:
        self._closing.discard(closing)
        # Whatever became of it, nobody uses those connections again.
        _ = closing.cancelled() or closing.exception()

    async def _all_hung_up(self) -> None:
        """Wait until no connection is left that is about to go."""
        while self._closing:
            await asyncio.wait(self._closing)

    def _on_one_node(self, cluster: RedisCluster) -> Redis:
        node = random.choice(cluster.get_nodes())  # noqa: S311 - another one each time a node was dead
        options: dict[str, Any] = {**parse_url(self._url), **_LIMITS, "host": node.host, "port": node.port}
        kind = options.pop("connection_class", Connection)
        return Redis.from_pool(ConnectionPool(connection_class=kind, **options))


def _is_asked_to_stop() -> bool:
    """Whether the running task was cancelled: CancelledError alone does not say so, as one can come from a future."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _find_out(url: str) -> Redis | RedisCluster:
    single = Redis.from_url(url, **_LIMITS)
    try:
        await single.execute_command("CLUSTER SLOTS")  # type: ignore[no-untyped-call]
    except ResponseError:
        # Not a cluster, or one that hides it (a proxy in front, an ACL): one server does everything.
        return single
    except BaseException:
        await single.aclose()
        raise
    await single.aclose()
    # Only the slot of the routes matters here; others may be without a node.
    cluster = RedisCluster.from_url(url, require_full_coverage=False, **_LIMITS)
    try:
        return await cluster.initialize()
    except BaseException:
        await cluster.aclose()
        raise

"""The worker's client for what is off the hot path (routes, leases of workers): one server or a cluster.

Which of the two it is, is asked when a connection is first made, so that a worker starts while Redis is away. Methods
raise RedisError or OSError. What changes here: ``_client``, set once it is known.
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
        """Close all connections; a later call opens new ones."""
        if self._client is not None:
            await self._client.aclose()

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
        except (RedisConnectionError, RedisTimeoutError, OSError, asyncio.CancelledError):
            # Other connections may be as dead as this one, and the slot may be another node's by now: the next call
            # opens a new connection, and asks the nodes of a cluster anew.
            await self.aclose()
            raise
        finally:
            if client is not None and client is not self._client:
                await client.aclose()

    async def _any_client(self) -> Redis | RedisCluster:
        async with self._finding_out:
            if self._client is None:
                self._client = await _find_out(self._url)
            return self._client

    def _forget(self, client: Redis | RedisCluster | None) -> None:
        """Let the next call ask the URL's host anew."""
        if client is self._client:
            self._client = None

    def _on_one_node(self, cluster: RedisCluster) -> Redis:
        node = random.choice(cluster.get_nodes())  # noqa: S311 - another one each time a node was dead
        options: dict[str, Any] = {**parse_url(self._url), **_LIMITS, "host": node.host, "port": node.port}
        kind = options.pop("connection_class", Connection)
        return Redis.from_pool(ConnectionPool(connection_class=kind, **options))


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

"""The control plane's connection to Redis, one server or a cluster, and the two scripts it runs there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any, cast

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MovedError, RedisClusterException, ResponseError

from contract import redis_keys

_LIMITS: dict[str, Any] = {"socket_timeout": 2.0, "socket_connect_timeout": 2.0}
"""Seconds, for an answer and for a connection."""

PUBLISH = """
-- Make Redis hold this routing table unless it holds the same or a newer one of the same epoch; wake the workers.
-- KEYS the table's hash    ARGV channel, epoch, generation, table    Returns 1 if it was written.
local held = redis.call('HMGET', KEYS[1], 'epoch', 'generation')
if held[1] == ARGV[2] and tonumber(held[2]) and tonumber(held[2]) >= tonumber(ARGV[3]) then
  return 0
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'generation', ARGV[3], 'table', ARGV[4])
redis.call('PUBLISH', ARGV[1], '')
return 1
"""

WORKERS = """
-- Forget workers whose lease is over in the clock of Redis; return each other worker followed by what it reports.
-- KEYS leases (sorted set), reports (hash)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) do
  redis.call('ZREM', KEYS[1], worker)
  redis.call('HDEL', KEYS[2], worker)
end
local found = {}
for _, worker in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  found[#found + 1] = worker
  found[#found + 1] = redis.call('HGET', KEYS[2], worker) or ''
end
return found
"""


class RedisLink:
    """Connects when first used, so that a plane can start while Redis is away. Methods raise RedisError or OSError."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Redis | RedisCluster | None = None
        self._connecting = asyncio.Lock()

    async def held(self) -> tuple[str, int] | None:
        """Return epoch and generation of the table that Redis holds."""
        async with self._connected() as client:
            reading = client.hmget(redis_keys.ROUTES, ["epoch", "generation"])
            epoch, generation = await cast("Awaitable[list[bytes | None]]", reading)
        return (epoch.decode(), int(generation)) if epoch is not None and generation is not None else None

    async def publish(self, epoch: str, generation: int, table: bytes) -> bool:
        """Put the table into Redis unless it has it or a newer one; return whether it was written."""
        return bool(
            await self._script(PUBLISH, redis_keys.ROUTES, redis_keys.ROUTES_NOTICE, epoch, generation, table, keys=1)
        )

    async def workers(self) -> dict[str, str]:
        """Return the live workers and what they report to serve, ``epoch:generation``."""
        found = await self._script(WORKERS, redis_keys.WORKERS, redis_keys.WORKERS_APPLIED, keys=2)
        texts = [item.decode() for item in found]
        return dict(zip(texts[::2], texts[1::2], strict=True))

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _script(self, script: str, *arguments: Any, keys: int) -> Any:
        async with self._connected() as client:
            return await client.eval(script, keys, *arguments)

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
        finally:
            if client is not None and client is not self._client:
                await client.aclose()

    async def _any_client(self) -> Redis | RedisCluster:
        async with self._connecting:
            if self._client is None:
                self._client = await _connect(self._url)
            return self._client

    def _forget(self, client: Redis | RedisCluster | None) -> None:
        """Let the next call ask the URL's host anew."""
        if client is self._client:
            self._client = None


async def _connect(url: str) -> Redis | RedisCluster:
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

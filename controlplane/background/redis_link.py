"""The control plane's connection to Redis, one server or a cluster, and the two scripts it runs there."""

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

from redis.asyncio import Redis, RedisCluster

from contract import redis_keys

_SECONDS = 2.0
"""For a connection and for an answer."""

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
        client = await self._connected()
        fields = await cast("Awaitable[list[bytes | None]]", client.hmget(redis_keys.ROUTES, ["epoch", "generation"]))
        epoch, generation = fields
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
        client = await self._connected()
        return await client.eval(script, keys, *arguments)

    async def _connected(self) -> Redis | RedisCluster:
        async with self._connecting:
            if self._client is None:
                self._client = await self._connect()
            return self._client

    async def _connect(self) -> Redis | RedisCluster:
        single = Redis.from_url(self._url, socket_timeout=_SECONDS, socket_connect_timeout=_SECONDS)
        try:
            clustered = (await single.info("cluster")).get("cluster_enabled")
        except BaseException:
            await single.aclose()
            raise
        if not clustered:
            return single
        await single.aclose()
        return RedisCluster.from_url(self._url, socket_timeout=_SECONDS, socket_connect_timeout=_SECONDS)

"""The link to Redis: late, lost, and a cluster."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest
import redis as redis_library
from redis.exceptions import RedisError

from contract import redis_keys
from controlplane.background.redis_link import RedisLink
from tests.controlplane.stage import report
from tests.waiting import free_port


async def test_workers_past_their_lease_are_forgotten(redis: redis_library.Redis, redis_url: str) -> None:
    link = RedisLink(redis_url)
    assert await link.workers() == {}
    report(redis, "alive", "e:1")
    report(redis, "dead", "e:1", lease_seconds=-1)
    seconds, _ = redis.time()
    redis.zadd(redis_keys.WORKERS, {"mute": (seconds + 60) * 1000})
    assert await link.workers() == {"alive": "e:1", "mute": ""}
    assert {*redis.zrange(redis_keys.WORKERS, 0, -1)} == {b"alive", b"mute"}
    assert redis.hkeys(redis_keys.WORKERS_APPLIED) == [b"alive"]
    await link.close()


async def test_nothing_is_held_by_an_empty_redis(redis: redis_library.Redis, redis_url: str) -> None:
    link = RedisLink(redis_url)
    assert await link.held() is None
    await link.publish("e", 3, b"table")
    assert await link.held() == ("e", 3)
    await link.close()


async def test_a_redis_that_is_away_is_an_error_and_then_a_connection(private_redis: Callable[..., Any]) -> None:
    server = private_redis()
    server.kill()
    link = RedisLink(server.url)
    with pytest.raises((RedisError, OSError)):
        await link.held()
    server.start()
    assert await link.held() is None
    server.kill()
    with pytest.raises((RedisError, OSError)):
        await link.workers()
    server.start()
    assert await link.workers() == {}
    await link.close()


async def test_those_who_use_it_first_at_once_share_one_client(redis: redis_library.Redis, redis_url: str) -> None:
    link = RedisLink(redis_url)
    await asyncio.gather(*(link.held() for _ in range(5)), *(link.workers() for _ in range(5)))
    # A second client would be left behind unclosed, which is a warning and so an error here.
    await link.close()
    gc.collect()


async def test_a_cluster_is_found_out(private_redis: Callable[..., Any]) -> None:
    server = private_redis("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with redis_library.Redis.from_url(server.url) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    link = RedisLink(server.url)
    assert await link.publish("e", 3, b"table")
    assert await link.held() == ("e", 3)
    assert await link.workers() == {}
    await link.close()

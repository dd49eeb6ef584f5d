"""The link to Redis: late, lost, and a cluster."""

import asyncio
import contextlib
import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis as redis_library
from redis.asyncio import RedisCluster
from redis.exceptions import RedisError

from contract import redis_keys
from controlplane.background.redis_link import RedisLink
from tests.controlplane.stage import report
from tests.fleet.cluster import cluster_of_one, serve_all_slots
from tests.services import PrivateServer
from tests.waiting import free_port, wait_until_async


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


async def test_a_cluster_is_found_out_also_where_info_is_forbidden(private_redis: Callable[..., Any]) -> None:
    server = cluster_of_one(private_redis)
    with redis_library.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "default", "-info", "-cluster|info")
    link = RedisLink(server.url)
    assert await link.publish("e", 3, b"table")
    assert await link.held() == ("e", 3)
    assert await link.workers() == {}
    assert isinstance(link._client, RedisCluster)
    await link.close()


async def test_one_server_that_forbids_cluster_commands_is_one_server(private_redis: Callable[..., Any]) -> None:
    server = private_redis()
    with redis_library.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "default", "-cluster", "-info")
    link = RedisLink(server.url)
    assert await link.publish("e", 3, b"table")
    assert await link.held() == ("e", 3)
    await link.close()


async def test_a_cluster_is_an_error_until_it_serves_and_while_it_is_away(
    private_redis: Callable[..., PrivateServer],
) -> None:
    """Of the kinds that everybody catches, unlike what redis-py raises then."""
    server = private_redis("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    link = RedisLink(server.url)
    await fails(link)
    serve_all_slots(server)
    assert await link.held() is None
    assert await link.workers() == {}
    server.kill()
    await fails(link)
    server.start()
    await wait_until_async(partial(answers, link))
    await link.close()
    gc.collect()


async def fails(link: RedisLink) -> None:
    for call in (link.held, link.workers) * 2:
        with pytest.raises((RedisError, OSError)):
            await call()


async def answers(link: RedisLink) -> bool:
    with contextlib.suppress(RedisError, OSError):
        return await link.workers() == {}
    return False

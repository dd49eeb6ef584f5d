"""One server and a cluster of one node; clusters that move slots and lose nodes are in fleet."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from unittest.mock import AsyncMock, patch

import pytest
import redis
from redis.exceptions import RedisError

from dataplane.state import redis_client
from dataplane.state.redis_client import RedisClient
from tests.fleet.cluster import cluster_of_one, serve_all_slots
from tests.services import PrivateServer
from tests.waiting import free_port, wait_until_async

KEY = "warmroute:{routes}:test"
CHANNEL = "warmroute:{routes}:channel"


@contextlib.asynccontextmanager
async def client_of(url: str) -> AsyncIterator[RedisClient]:
    client = RedisClient(url)
    try:
        yield client
    finally:
        await client.aclose()


@pytest.fixture
def server(private_redis: Callable[..., PrivateServer]) -> PrivateServer:
    return private_redis()


@pytest.fixture
def cluster(private_redis: Callable[..., PrivateServer]) -> PrivateServer:
    return cluster_of_one(private_redis)


def plain(server: PrivateServer) -> redis.Redis:
    return redis.Redis.from_url(server.url)


@pytest.mark.parametrize("kind", ["server", "cluster"])
async def test_the_three_calls(kind: str, request: pytest.FixtureRequest) -> None:
    server: PrivateServer = request.getfixturevalue(kind)
    async with client_of(server.url) as client:
        assert await client.hmget(KEY, ["a", "b"]) == [None, None]
        assert await client.eval("return redis.call('HSET', KEYS[1], 'a', ARGV[1])", 1, KEY, "1") == 1
        assert await client.hmget(KEY, ["a", "b"]) == [b"1", None]
        async with client.pubsub() as channel:
            await channel.subscribe(CHANNEL)
            with plain(server) as publisher:
                await wait_until_async(lambda: publisher.pubsub_numsub(CHANNEL)[0][1] == 1)
                publisher.publish(CHANNEL, b"")
            await wait_until_async(lambda: channel.get_message(ignore_subscribe_messages=True, timeout=0.1))


async def test_an_error_of_the_server_is_a_redis_error(server: PrivateServer) -> None:
    async with client_of(server.url) as client:
        with pytest.raises(RedisError):
            await client.eval("return redis.call('NO_SUCH')", 1, KEY)
        assert await client.hmget(KEY, ["a"]) == [None]


async def answers(client: RedisClient) -> bool:
    with contextlib.suppress(RedisError, OSError):
        return await client.hmget(KEY, ["a"]) == [None]
    return False


async def test_a_server_that_is_away_is_found_when_it_is_back(server: PrivateServer) -> None:
    """At the start and in between."""
    server.kill()
    async with client_of(server.url) as client:
        for _ in range(2):
            with pytest.raises((RedisError, OSError)):
                await client.hmget(KEY, ["a"])
            server.start()

            await wait_until_async(lambda: answers(client), 5.0)  # type: ignore[arg-type, return-value]
            server.kill()


async def test_a_cluster_is_an_error_until_it_serves(private_redis: Callable[..., PrivateServer]) -> None:
    """A node that was only just added or was reset knows of no other: not even redis-py expects that."""
    server = private_redis("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    async with client_of(server.url) as client:
        for _ in range(2):
            with pytest.raises(RedisError):
                await client.hmget(KEY, ["a"])
            with pytest.raises(RedisError):
                async with client.pubsub() as channel:
                    await channel.subscribe(CHANNEL)
        serve_all_slots(server)
        assert await client.hmget(KEY, ["a"]) == [None]


async def test_a_call_that_is_given_up_leaves_no_answer_behind(server: PrivateServer) -> None:
    """The next call must not read the answer of the last one, nor wait on its connection."""
    async with client_of(server.url) as client:
        await client.eval("return redis.call('HSET', KEYS[1], 'a', '1', 'b', '2')", 1, KEY)
        server.pause()
        for _ in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await client.hmget(KEY, ["a"])
        server.resume()
        assert await client.hmget(KEY, ["b"]) == [b"2"]
        with plain(server) as other:
            await wait_until_async(lambda: len(other.client_list()) <= 3)


async def test_closing_closes_every_connection(server: PrivateServer) -> None:
    client = RedisClient(server.url)
    await client.hmget(KEY, ["a"])
    await asyncio.gather(*(client.hmget(KEY, ["a"]) for _ in range(5)))
    await client.aclose()
    await client.aclose()
    with plain(server) as other:
        await wait_until_async(lambda: len(other.client_list()) == 1)


async def test_calls_that_come_first_together_make_one_client() -> None:
    """Each of the others would keep its connections open for ever."""
    made: list[object] = []

    async def find_out(url: str) -> object:
        await asyncio.sleep(0)
        made.append(AsyncMock(hmget=AsyncMock(return_value=[None])))
        return made[-1]

    with patch.object(redis_client, "_find_out", find_out):
        client = RedisClient("redis://unused")
        await asyncio.gather(*(client.hmget(KEY, ["a"]) for _ in range(3)))
    assert len(made) == 1


@pytest.mark.parametrize("kind", ["server", "cluster"])
async def test_calls_that_are_given_up_break_others_off_only_with_errors_of_redis(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """Whoever gives up closes all connections. A CancelledError of that would end the others' tasks in silence."""
    server: PrivateServer = request.getfixturevalue(kind)
    dice = random.Random(7)
    outcomes: Counter[str] = Counter()

    async def one_call(client: RedisClient) -> None:
        if dice.random() < 0.2:
            async with client.pubsub() as channel:
                await channel.subscribe(CHANNEL)
                await channel.get_message(timeout=0.01)
        else:
            await client.hmget(KEY, ["a"])

    async def caller(client: RedisClient) -> None:
        for _ in range(300):
            try:
                async with asyncio.timeout(dice.choice([0.0, 0.0002, 0.001, 0.003, 1.0])):
                    await one_call(client)
                outcomes["answered"] += 1
            except (RedisError, OSError):
                outcomes["broken off"] += 1

    async with client_of(server.url) as client:
        async with asyncio.timeout(30):
            ended = await asyncio.gather(*(caller(client) for _ in range(12)), return_exceptions=True)
        assert ended == [None] * 12
        assert min(outcomes["answered"], outcomes["broken off"]) > 100
        await wait_until_async(lambda: answers(client), 5.0)  # type: ignore[arg-type, return-value]

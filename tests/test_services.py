"""The servers that all other tests stand on."""

import select
import socket
from collections.abc import Callable

import psycopg
import pytest
import redis

from tests.services import PrivateServer
from tests.waiting import free_port, wait_until, wait_until_async
from warmroute.embedded.processes import alive

RedisFactory = Callable[..., PrivateServer]
PostgresFactory = Callable[[], PrivateServer]


def test_each_database_is_new_and_empty(postgres_url: str, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        name = connection.execute("SELECT current_database()").fetchone()
    assert tables == (0,)
    assert name is not None
    assert f"/{name[0]}" in database_url
    assert database_url != postgres_url


def test_redis_has_functions(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        assert client.dbsize() == 0
        assert client.eval("return redis.call('incr', KEYS[1])", 1, "n") == 1


def test_a_private_redis_pauses_dies_and_returns_empty(private_redis: RedisFactory) -> None:
    server = private_redis()
    with redis.Redis.from_url(server.url, socket_timeout=0.2) as client:
        client.set("key", "value")
        server.pause()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        server.resume()
        assert client.get("key") == b"value"
        first = server.pid
        server.kill()
        assert not alive(first)
        server.start()
        assert client.get("key") is None
        assert server.pid != first


def test_a_private_postgres_pauses_dies_and_recovers(private_postgres: PostgresFactory) -> None:
    server = private_postgres()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (n int)")
    with psycopg.connect(server.url, autocommit=True) as connection:
        server.pause()
        connection.pgconn.send_query(b"SELECT 1")
        connection.pgconn.flush()
        assert select.select([connection], [], [], 0.2)[0] == [], "a paused server answered"
        server.resume()
        assert connection.pgconn.get_result()
        assert connection.pgconn.get_result() is None
    server.kill()
    server.start()
    with psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)


def test_waiting_fails_with_what_was_awaited() -> None:
    with pytest.raises(AssertionError, match=r"not within 0.05 s: a miracle"):
        wait_until(lambda: False, 0.05, "a miracle")
    assert wait_until(lambda: 7) == 7


async def test_waiting_takes_plain_and_async_conditions() -> None:
    async def ready() -> str:
        return "ready"

    assert await wait_until_async(ready) == "ready"
    with pytest.raises(AssertionError, match="not within"):
        await wait_until_async(lambda: 0, 0.05)


def test_a_free_port_can_be_bound() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_port()))

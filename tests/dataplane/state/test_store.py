import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import hiredis
import msgspec
import pytest
import redis

from dataplane.state.store import Address, Connection, connect
from tests.dataplane.state.script import Store
from tests.services import PrivateServer
from tests.waiting import free_port, wait_until_async

SECONDS = 2.0


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("redis://h:1/3", Address("h", 1, False, "", "", 3)),
        ("redis://h", Address("h", 6379, False, "", "", 0)),
        ("redis://h:1/", Address("h", 1, False, "", "", 0)),
        ("redis://h:1?db=5", Address("h", 1, False, "", "", 5)),
        ("redis://:p%40ss@h:1", Address("h", 1, False, "", "p@ss", 0)),
        ("redis://us%3Aer:p%2Fs@h:1/2", Address("h", 1, False, "us:er", "p/s", 2)),
        ("rediss://h:1/0", Address("h", 1, True, "", "", 0)),
        ("redis://[::1]:7/0", Address("::1", 7, False, "", "", 0)),
    ],
)
def test_a_url_says_where_and_who(url: str, wanted: Address) -> None:
    """The forms are redis-py's, which reads the same URL for the routing tables."""
    assert Address.of(url) == wanted
    pool = redis.ConnectionPool.from_url(url)
    given = {"host": "127.0.0.1", "port": 6379, "username": None, "password": None, "db": 0} | pool.connection_kwargs
    assert (wanted.host, wanted.port, wanted.database) == (given["host"], given["port"], given["db"])
    assert (wanted.username, wanted.password) == (given["username"] or "", given["password"] or "")


def test_the_name_for_logs_holds_no_secret() -> None:
    assert Address.of("redis://user:secret@h:1").name == "h:1"


@contextlib.asynccontextmanager
async def open_to(url: str, lost: list[bool]) -> AsyncIterator[Connection]:
    connection, _ = await connect(Address.of(url), lambda: lost.append(True), SECONDS)
    try:
        yield connection
    finally:
        connection.close()
        await wait_until_async(lambda: lost)


async def ask(connection: Connection, *words: bytes | str) -> Any:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    connection.command(*words, reply=answer.set_result)
    return await answer


async def test_replies_come_in_the_order_of_the_commands(redis_url: str) -> None:
    lost: list[bool] = []
    async with open_to(redis_url, lost) as connection:
        found = await asyncio.gather(*(ask(connection, "ECHO", str(number)) for number in range(200)))
        assert found == [b"%d" % number for number in range(200)]
        assert isinstance(await ask(connection, "NO_SUCH_COMMAND"), hiredis.ReplyError)
        assert await ask(connection, "PING") == b"PONG"


async def test_the_database_and_the_login_are_those_of_the_url(private_redis: Callable[..., PrivateServer]) -> None:
    server = private_redis()
    with redis.Redis.from_url(server.url) as client:
        client.config_set("requirepass", "s:cret")
    port = server.url.rpartition(":")[2].partition("/")[0]
    lost: list[bool] = []
    async with open_to(f"redis://:s%3Acret@127.0.0.1:{port}/3", lost) as connection:
        assert b"db=3" in await ask(connection, "CLIENT", "INFO")
        await ask(connection, "ACL", "SETUSER", "app", "on", ">word", "+@all", "~*")
    async with open_to(f"redis://app:word@127.0.0.1:{port}", lost) as connection:
        assert await ask(connection, "ACL", "WHOAMI") == b"app"
    for user in ("", ":wrong@", "app:wrong@"):
        with pytest.raises(hiredis.ReplyError):
            await connect(Address.of(f"redis://{user}127.0.0.1:{port}"), lambda: None, SECONDS)
    with redis.Redis(port=int(port), password="s:cret") as client:
        await wait_until_async(lambda: len(client.client_list()) == 1, what="refused connections are closed")


async def test_what_does_not_answer_is_an_error_in_time(private_redis: Callable[..., PrivateServer]) -> None:
    with pytest.raises(ConnectionRefusedError):
        await connect(Address.of(f"redis://127.0.0.1:{free_port()}"), lambda: None, SECONDS)
    server = private_redis()
    server.pause()
    lost: list[bool] = []
    with pytest.raises(TimeoutError):
        await connect(Address.of(server.url), lambda: lost.append(True), 0.1)
    server.resume()
    assert lost == [], "nobody had it yet"


async def test_outside_a_cluster_there_are_no_slots(redis_url: str) -> None:
    connection, slots = await connect(Address.of(redis_url), lambda: None, SECONDS)
    connection.close()
    assert slots is None


async def test_a_lost_connection_answers_everything_with_none_then_says_so_once(redis_url: str) -> None:
    told: list[str] = []
    connection, _ = await connect(Address.of(redis_url), lambda: told.append("lost"), SECONDS)
    for _ in range(3):
        connection.command("PING", reply=lambda value: told.append(str(value)))
    connection.close()
    await wait_until_async(lambda: told)
    assert told == ["None", "None", "None", "lost"]


async def test_the_script_is_sent_whole_only_when_it_is_unknown(store: Store, redis_url: str) -> None:
    """After SCRIPT FLUSH it is sent again, and calls that were sent before that was known are not lost."""
    lost: list[bool] = []
    keys = (store.load_key.encode(), store.ledger_key.encode(), store.leases_key.encode())
    sequence = itertools.count(1)

    async def run(connection: Connection) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        argument = msgspec.msgpack.encode(["w", next(sequence), 60_000, 1, [], [], []])
        connection.run_script(keys, argument, answer.set_result)
        return (await answer)[0]

    def calls(command: str) -> int:
        return int(store.redis.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])

    async with open_to(redis_url, lost) as connection:
        store.redis.config_resetstat()
        for whole, known in ((1, 0), (1, 1), (1, 2)):
            assert await run(connection) == 0
            assert (calls("eval"), calls("evalsha")) == (whole, known)
        store.redis.script_flush()
        assert await asyncio.gather(*(run(connection) for _ in range(3))) == [0, 0, 0]

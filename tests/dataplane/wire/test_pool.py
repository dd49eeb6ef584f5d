"""The pool over real sockets, on the workers' event loop."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from access.files import host_tls, listener_tls
from contract.settings import Settings
from dataplane.host import Address, Failure
from dataplane.wire import pool as pool_module
from dataplane.wire.host_connection import HostConnection
from dataplane.wire.http import AnswerHead
from dataplane.wire.pool import Pool
from tests.fakes.certificates import Authority
from tests.waiting import free_port, wait_until_async

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
KEEP_ALIVE_SECONDS = 0.5
LONG_PROBATION_SECONDS = 0.2


class Host:
    """Answers every request at once; knows its connections."""

    def __init__(self) -> None:
        self.answer = ANSWER
        self.closes_after_answer = False
        self.accepted = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.address = Address.of("http://unused:1")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(self.answer)
                if self.closes_after_answer:
                    break
        writer.close()
        self.writers.remove(writer)


class Exchange:
    def __init__(self) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def host_head(self, head: AnswerHead) -> None: ...
    def host_body(self, parts: list[bytes]) -> None: ...
    def host_pause(self) -> None: ...
    def host_done(self) -> None:
        self.ended.set_result("done")

    def host_failed(self, failure: Failure, reason: str) -> None:
        self.ended.set_result(failure.value)


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    host = Host()
    server = await asyncio.start_server(host.serve, "127.0.0.1", 0)
    host.address = Address.of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    yield host
    server.close()
    await wait_until_async(lambda: not host.writers, what="the pool has closed its connections")


@pytest.fixture
async def pool(host: Host) -> AsyncIterator[Pool]:
    """A pool. It is closed before its host, which sees to it that nothing stayed open."""
    pool = Pool(1.0, KEEP_ALIVE_SECONDS)
    yield pool
    pool.close()
    await wait_until_async(lambda: pool.counts == (0, 0))


@pytest.fixture
def long_probation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long enough that a busy machine does not make it pass unnoticed."""
    monkeypatch.setattr(pool_module, "PROBATION_SECONDS", LONG_PROBATION_SECONDS)


async def connect(pool: Pool, address: Address, seconds: float | None = None) -> tuple[HostConnection | None, str]:
    told: asyncio.Future[tuple[HostConnection | None, str]] = asyncio.get_running_loop().create_future()
    pool.connect(address, lambda *how: told.set_result(how), seconds)
    return await told


async def ask(connection: HostConnection | None) -> str:
    assert connection is not None
    exchange = Exchange()
    connection.send(exchange, b"GET / HTTP/1.1\r\n\r\n", b"")
    return await exchange.ended


async def used(pool: Pool, host: Host, times: int = 1) -> HostConnection:
    """Return a connection that came back to the pool after so many exchanges."""
    connection, _ = await connect(pool, host.address)
    assert await ask(connection) == "done"
    assert connection is not None
    for _ in range(times - 1):
        await wait_until_async(lambda: pool.lease_idle(host.address) is connection)
        assert await ask(connection) == "done"
    return connection


async def swept(pool: Pool) -> None:
    """Let the pool be swept until nothing is left."""

    def is_empty() -> bool:
        pool.sweep()
        return pool.counts == (0, 0)

    await wait_until_async(is_empty, KEEP_ALIVE_SECONDS + 0.5)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


# --- lease and return ------------------------------------------------------------------------------------------------


async def test_a_connection_is_used_again(pool: Pool, host: Host) -> None:
    assert pool.lease_idle(host.address) is None
    connection = await used(pool, host, times=2)
    assert pool.counts == (1, 1)
    assert pool.lease_idle(host.address) is connection
    assert pool.counts == (1, 0)
    assert pool.lease_idle(host.address) is None
    assert await ask(connection) == "done"
    assert pool.lease_idle(host.address) is connection
    assert host.accepted == 1
    connection.close()


@pytest.mark.usefixtures("long_probation")
async def test_until_a_host_has_kept_a_connection_it_is_not_trusted_to(pool: Pool, host: Host) -> None:
    """Some promise to keep it and close after the answer; a request that meets the close cannot be sent again."""
    connection = await used(pool, host)
    assert pool.lease_idle(host.address) is None
    leased = await wait_until_async(lambda: pool.lease_idle(host.address), 1.0)
    assert leased is connection
    assert asyncio.get_running_loop().time() - connection.idle_since >= LONG_PROBATION_SECONDS
    assert await ask(leased) == "done"
    assert pool.lease_idle(host.address) is connection, "it has kept one"
    connection.close()


@pytest.mark.usefixtures("long_probation")
async def test_trust_in_plain_answers_is_not_trust_in_streams(pool: Pool, host: Host) -> None:
    connection = await used(pool, host, times=2)
    host.answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    fresh, _ = await connect(pool, host.address)
    await ask(fresh)
    assert pool.lease_idle(host.address) is connection
    assert pool.lease_idle(host.address) is None, "the stream's is on probation"
    connection.close()


@pytest.mark.usefixtures("long_probation")
async def test_a_host_that_closes_what_it_kept_is_trusted_no_more(pool: Pool, host: Host) -> None:
    await used(pool, host, times=2)
    host.writers[0].close()
    await wait_until_async(lambda: pool.counts == (0, 0))
    await used(pool, host)
    assert pool.lease_idle(host.address) is None


async def test_the_newest_is_leased_first(pool: Pool, host: Host) -> None:
    """So that connections beyond the need age out."""
    older, newer = await used(pool, host, times=2), await used(pool, host, times=2)
    assert pool.lease_idle(host.address) is newer
    assert pool.lease_idle(host.address) is older
    newer.close()
    older.close()


async def test_hosts_have_connections_of_their_own(pool: Pool, host: Host) -> None:
    await used(pool, host, times=2)
    assert pool.lease_idle(Address.of("http://127.0.0.1:1")) is None


# --- retire ----------------------------------------------------------------------------------------------------------


async def test_a_connection_that_the_host_closed_is_not_leased(pool: Pool, host: Host) -> None:
    """Also when its end lies unread in the socket: the loop has had no turn since."""
    await used(pool, host, times=2)
    (writer,) = host.writers
    with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as theirs:
        theirs.shutdown(socket.SHUT_RDWR)
    assert pool.lease_idle(host.address) is None
    await wait_until_async(lambda: pool.counts == (0, 0))


async def test_a_connection_that_the_host_will_close_is_not_kept(pool: Pool, host: Host) -> None:
    host.answer = ANSWER.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    await used(pool, host)
    await wait_until_async(lambda: pool.counts == (0, 0))
    await wait_until_async(lambda: not host.writers)


async def test_a_cancelled_exchange_closes_its_connection(pool: Pool, host: Host) -> None:
    host.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"
    connection, _ = await connect(pool, host.address)
    assert connection is not None
    connection.send(Exchange(), b"GET / HTTP/1.1\r\n\r\n", b"")
    await wait_until_async(lambda: host.writers)
    connection.cancel()
    await wait_until_async(lambda: not host.writers)
    assert pool.counts == (0, 0)


async def test_idle_connections_are_closed_before_the_host_would(pool: Pool, host: Host) -> None:
    await used(pool, host)
    began = asyncio.get_running_loop().time()
    pool.sweep()
    assert pool.counts == (1, 1)
    await swept(pool)
    assert asyncio.get_running_loop().time() - began > KEEP_ALIVE_SECONDS * 0.8


async def test_a_short_promise_of_the_host_is_kept(pool: Pool, host: Host) -> None:
    """``Keep-Alive: timeout=1``: its clock started earlier than ours."""
    host.answer = ANSWER.replace(b"\r\n\r\n", b"\r\nKeep-Alive: timeout=1\r\n\r\n")
    await used(pool, host)
    began = asyncio.get_running_loop().time()
    await swept(pool)
    assert asyncio.get_running_loop().time() - began < KEEP_ALIVE_SECONDS / 2


async def test_connections_to_hosts_that_left_are_retired(pool: Pool, host: Host) -> None:
    """Idle ones at once, leased ones when they come back; the others stay."""
    idle, leased = await used(pool, host, times=2), await used(pool, host, times=2)
    assert pool.lease_idle(host.address) is leased
    pool.keep_only({host.address})
    assert pool.counts == (2, 1)
    pool.keep_only(set())
    await wait_until_async(lambda: len(host.writers) == 1)
    assert not idle.is_alive
    assert await ask(leased) == "done", "its exchange is not cut"
    await wait_until_async(lambda: not host.writers)
    assert pool.counts == (0, 0)


@pytest.mark.usefixtures("long_probation")
async def test_a_host_that_left_and_came_back_must_show_again_that_it_keeps_connections(pool: Pool, host: Host) -> None:
    await used(pool, host, times=2)
    pool.keep_only(set())
    await wait_until_async(lambda: not host.writers)
    pool.keep_only({host.address})
    await used(pool, host)
    assert pool.lease_idle(host.address) is None


# --- connect ---------------------------------------------------------------------------------------------------------


async def test_a_refused_connection_is_told_with_its_reason(pool: Pool) -> None:
    connection, reason = await connect(pool, Address.of(f"http://127.0.0.1:{free_port()}"))
    assert connection is None
    assert reason


async def test_a_name_that_cannot_be_one_is_told_with_its_reason(pool: Pool) -> None:
    connection, reason = await connect(pool, Address.of(f"http://{'a' * 64}.example:80"))
    assert connection is None
    assert reason


@pytest.fixture
def deaf() -> Iterator[Address]:
    """An address that takes no more connections and refuses none: its queue is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield Address.of(f"http://127.0.0.1:{listener.getsockname()[1]}")


@pytest.mark.parametrize("seconds", [0.1, 0.0, -1.0])
async def test_a_connection_must_be_made_in_time(pool: Pool, deaf: Address, seconds: float) -> None:
    began = asyncio.get_running_loop().time()
    connection, reason = await connect(pool, deaf, seconds)
    assert connection is None
    assert reason.startswith("no connection within")
    assert asyncio.get_running_loop().time() - began < max(seconds, 0) + 0.3


async def test_the_connect_timeout_is_the_longest_wait(deaf: Address) -> None:
    pool = Pool(0.05, KEEP_ALIVE_SECONDS)
    assert await connect(pool, deaf, 10.0) == (None, "no connection within 0.05 s")


async def test_a_host_that_speaks_no_tls_is_told_with_its_reason(pool: Pool, host: Host) -> None:
    host.closes_after_answer = True
    before = open_files()
    address = Address.of(f"https://127.0.0.1:{host.address.port}")
    connection, reason = await connect(pool, address, 0.3)
    assert connection is None
    assert reason
    await wait_until_async(lambda: open_files() <= before)


@pytest.mark.parametrize("turns", range(8))
async def test_a_cancelled_connect_leaves_nothing_open(pool: Pool, host: Host, turns: int) -> None:
    """Wherever it was when its client left, nobody is told and no socket stays."""
    before, told = open_files(), []
    tasks = [pool.connect(host.address, lambda *how: told.append(how)) for _ in range(20)]
    for _ in range(turns):
        await asyncio.sleep(0)
    finished = len(told)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(told) == finished
    for connection, _ in told:
        connection.close()
    await wait_until_async(lambda: pool.counts == (0, 0))
    await wait_until_async(lambda: not host.writers)
    await wait_until_async(lambda: open_files() <= before)


async def test_a_cancelled_wait_for_a_deaf_host_leaves_nothing_open(pool: Pool, deaf: Address) -> None:
    before = open_files()
    tasks = [pool.connect(deaf, lambda *how: pytest.fail(str(how))) for _ in range(5)]
    await wait_until_async(lambda: open_files() == before + 5)
    for task in tasks:
        task.cancel()
    await wait_until_async(lambda: open_files() == before)


async def test_closing_the_pool_ends_connects_too(host: Host, deaf: Address) -> None:
    pool = Pool(5.0, KEEP_ALIVE_SECONDS)
    await used(pool, host)
    task = pool.connect(deaf, lambda *how: pytest.fail(str(how)))
    await asyncio.sleep(0)
    pool.close()
    await asyncio.wait([task], timeout=1.0)
    assert task.cancelled()
    await wait_until_async(lambda: not host.writers)


# --- where nothing is sent, and what is checked ----------------------------------------------------------------------


async def outcome(pool: Pool, address: Address) -> str:
    """Return why a connection could not be made; empty if it was."""
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def connected(connection: HostConnection | None, reason: str) -> None:
        if connection is not None:
            connection.close()
        told.set_result(reason)

    pool.connect(address, connected)
    return await told


async def test_a_name_that_leads_to_a_forbidden_address_is_not_connected_to(host: Host) -> None:
    pool = Pool(1.0, KEEP_ALIVE_SECONDS, is_forbidden=lambda address: address == "127.0.0.1")
    assert "127.0.0.1 is a link-local or metadata address" in await outcome(pool, host.address)
    assert host.accepted == 0
    pool.close()


async def test_https_hosts_are_checked_with_the_context_given(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue()
    served = listener_tls(Settings(tls_cert_file=str(certificate), tls_key_file=str(key)))
    server = await asyncio.start_server(Host().serve, "127.0.0.1", 0, ssl=served)
    address = Address.of(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with server:
        trusting = Pool(5.0, KEEP_ALIVE_SECONDS, tls=host_tls(Settings(tls_ca_file=str(authority.ca))))
        assert await outcome(trusting, address) == ""
        assert "certificate verify failed" in await outcome(Pool(5.0, KEEP_ALIVE_SECONDS), address)
        trusting.close()

"""One pipelined connection to Redis for the admission script: bytes out, one callback per reply.

Own code because a client library's call costs more than the whole rest of an admission; hiredis does the protocol.
Everything off the hot path (routes, leases of workers) uses redis-py.

What changes here: ``transport`` and the queue of waiting callbacks; only the event loop's callbacks change them.
"""

import asyncio
import hashlib
import importlib.resources
import logging
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

import hiredis

logger = logging.getLogger(__name__)

Reply = Callable[[Any], None]
"""Takes the reply's value, a hiredis.HiredisError for an error reply, or None when the connection was lost."""

SCRIPT = importlib.resources.files("dataplane.state").joinpath("admission.lua").read_bytes()
_pack: Callable[[tuple[bytes | str, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]
_SHA = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest().encode()


@dataclass(frozen=True)
class Address:
    """Where a node listens and how to log in."""

    host: str
    port: int
    tls: bool
    username: str
    password: str
    database: int

    @classmethod
    def of(cls, url: str) -> "Address":
        """Parse ``redis[s]://[user[:password]@]host[:port][/db]`` (the forms of redis-py that the settings accept)."""
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        database = (parts.path.strip("/") or query.get("db", ["0"])[0]) or "0"
        return cls(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 6379,
            tls=parts.scheme == "rediss",
            username=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=int(database) if database.isdigit() else 0,
        )

    @property
    def name(self) -> str:
        """For logs: no credentials."""
        return f"{self.host}:{self.port}"

    def at(self, where: str) -> "Address":
        """Return another node of the same cluster; ``where`` is ``host:port``, the host empty for this one."""
        host, _, port = where.rpartition(":")
        return replace(self, host=host.strip("[]") or self.host, port=int(port))


class Connection(asyncio.Protocol):
    """A live connection. ``on_lost`` is called once, after every waiting reply was given None."""

    def __init__(self, on_lost: Callable[[], None]) -> None:
        self._on_lost = on_lost
        self._reader = hiredis.Reader()
        self._waiting: deque[tuple[Reply, tuple[bytes, ...] | None]] = deque()
        self._transport: asyncio.Transport | None = None
        self._script_known = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def command(self, *words: bytes | str, reply: Reply) -> None:
        """Send one command."""
        self._write(_pack(words), reply, None)

    def run_script(self, keys: tuple[bytes, bytes, bytes], argument: bytes, reply: Reply) -> None:
        """Run the admission script. The whole script is sent until the server has it, also when it forgot it."""
        words = (*keys, argument)
        if self._script_known:
            self._write(_pack((b"EVALSHA", _SHA, b"3", *words)), reply, words)
        else:
            self._script_known = True
            self._write(_pack((b"EVAL", SCRIPT, b"3", *words)), reply, None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _write(self, data: bytes, reply: Reply, words: tuple[bytes, ...] | None) -> None:
        assert self._transport is not None
        self._waiting.append((reply, words))
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (value := self._reader.gets()) is not False:
                reply, words = self._waiting.popleft()
                if words is not None and isinstance(value, hiredis.ReplyError) and str(value).startswith("NOSCRIPT"):
                    self._write(_pack((b"EVAL", SCRIPT, b"3", *words)), reply, None)
                else:
                    reply(value)
        except (hiredis.ProtocolError, IndexError):
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        waiting, self._waiting = self._waiting, deque()
        self._transport = None
        for reply, _ in waiting:
            reply(None)
        self._on_lost()


async def connect(
    address: Address, on_lost: Callable[[], None], timeout_seconds: float
) -> tuple[Connection, list[Any] | None]:
    """Open a connection, log in, select the database; return it with the cluster's slots, None outside a cluster.

    Raises OSError (TimeoutError included) or hiredis.HiredisError.
    """
    loop = asyncio.get_running_loop()
    lost: list[bool] = []
    ready = [False]

    def lose() -> None:
        if ready[0]:
            on_lost()
        lost.append(True)

    async with asyncio.timeout(timeout_seconds):
        context = ssl.create_default_context() if address.tls else None
        _, connection = await loop.create_connection(lambda: Connection(lose), address.host, address.port, ssl=context)
        try:
            if address.password:
                login = (address.username, address.password) if address.username else (address.password,)
                await _ask(connection, "AUTH", *login)
            if address.database:
                await _ask(connection, "SELECT", str(address.database))
            await _ask(connection, "PING")
            slots = await _slots(connection)
        except BaseException:
            connection.close()
            raise
    if lost:
        raise ConnectionResetError("Redis closed the connection")
    ready[0] = True
    return connection, slots


async def _slots(connection: Connection) -> list[Any] | None:
    try:
        slots = await _ask(connection, "CLUSTER", "SLOTS")
    except hiredis.ReplyError:
        # Not a cluster, or one that hides it (a proxy in front, an ACL): one node serves everything.
        return None
    return slots if isinstance(slots, list) else None


async def _ask(connection: Connection, *words: str) -> Any:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def reply(value: Any) -> None:
        if not answer.done():
            answer.set_result(value)

    connection.command(*words, reply=reply)
    value = await answer
    if value is None:
        raise ConnectionResetError("Redis closed the connection")
    if isinstance(value, hiredis.HiredisError):
        raise value
    return value

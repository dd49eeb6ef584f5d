"""Connections to the model hosts: lease, return, retire. No scan on the way of a request.

The newest idle connection is leased first, so that surplus ones age out. What changes here: ``_idle`` per address and
the set of all connections; leases and returns happen on the event loop's thread.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection

from dataplane.host import Address
from dataplane.wire.host_connection import READ_BYTES, HostConnection

Connected = Callable[[HostConnection | None, str], None]
"""Called with a connection, or with None and the reason."""

_MARGIN_SECONDS = 1.0
"""A host's promise of N seconds is kept for N - 1: its clock starts earlier than ours."""


class Pool:
    """All connections of one worker."""

    def __init__(self, connect_timeout_seconds: float, keep_alive_seconds: float) -> None:
        self._connect_timeout_seconds = connect_timeout_seconds
        self._keep_alive_seconds = keep_alive_seconds
        self._loop = asyncio.get_running_loop()
        self._idle: dict[Address, list[HostConnection]] = {}
        self._all: dict[HostConnection, Address] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._buffer = bytearray(READ_BYTES)
        self._tls: ssl.SSLContext | None = None

    def lease_idle(self, address: Address) -> HostConnection | None:
        """Return an idle connection that is still open, or None."""
        idle = self._idle.get(address)
        while idle:
            connection = idle.pop()
            if connection.is_alive:
                return connection
            connection.close()
        return None

    def connect(self, address: Address, connected: Connected) -> asyncio.Task[None]:
        """Open a connection; ``connected`` is told. Cancelling the task leaves nothing open and calls nothing."""
        task = self._loop.create_task(self._connect(address, connected))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return task

    def returned(self, connection: HostConnection) -> None:
        address = self._all.get(connection)
        if address is None:
            connection.close()
            return
        connection.idle_since = self._loop.time()
        self._idle.setdefault(address, []).append(connection)

    def retired(self, connection: HostConnection) -> None:
        address = self._all.pop(connection, None)
        idle = self._idle.get(address) if address is not None else None
        if idle and connection in idle:
            idle.remove(connection)

    def sweep(self) -> None:
        """Close connections that have been idle too long: soon the host would."""
        now = self._loop.time()
        for idle in list(self._idle.values()):
            for connection in [c for c in idle if now - c.idle_since > self._patience(c)]:
                connection.close()

    def keep_only(self, addresses: Collection[Address]) -> None:
        """Retire the connections to hosts that left: idle ones now, leased ones when they come back."""
        for address in [known for known in self._idle if known not in addresses]:
            for connection in list(self._idle.pop(address)):
                connection.close()
        for connection, address in list(self._all.items()):
            if address not in addresses:
                del self._all[connection]

    def close(self) -> None:
        for task in self._connecting:
            task.cancel()
        for connection in list(self._all):
            connection.close()

    @property
    def counts(self) -> tuple[int, int]:
        """(open, idle) connections."""
        return len(self._all), sum(map(len, self._idle.values()))

    def _patience(self, connection: HostConnection) -> float:
        promised = connection.keep_alive_seconds
        if promised is None:
            return self._keep_alive_seconds
        return min(self._keep_alive_seconds, max(0.0, promised - _MARGIN_SECONDS))

    async def _connect(self, address: Address, connected: Connected) -> None:
        connection: HostConnection | None = None
        sock: socket.socket | None = None
        try:
            async with asyncio.timeout(self._connect_timeout_seconds):
                sock = await self._open_socket(address)
                context = self._context() if address.tls else None
                # TLS keeps records of its own in the socket, so a look at it would mislead.
                seen = None if address.tls else sock
                _, connection = await self._loop.create_connection(
                    lambda: HostConnection(self, self._buffer, seen),
                    sock=sock,
                    ssl=context,
                    server_hostname=address.host if context else None,
                )
        except TimeoutError:
            reason = f"no connection within {self._connect_timeout_seconds:g} s"
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        finally:
            if connection is None and sock is not None:
                sock.close()
        if connection is None:
            connected(None, reason)
            return
        self._all[connection] = address
        connected(connection, "")

    async def _open_socket(self, address: Address) -> socket.socket:
        """Connect to the first of the host's addresses that answers."""
        found = await self._loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        failure: OSError = OSError(f"no address for {address.host}")
        for family, kind, protocol, _, where in found:
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await self._loop.sock_connect(sock, where)
            except OSError as error:
                failure = error
                sock.close()
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        raise failure

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

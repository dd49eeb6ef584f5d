"""Connections to the model hosts: lease, return, retire. No scan on the way of a request.

The newest idle connection is leased first, so that surplus ones age out. What changes here: ``_idle`` per address and
the set of all connections; leases and returns happen on the event loop's thread.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Collection

from dataplane.host import Address
from dataplane.wire.host_connection import READ_BYTES, HostConnection

Connected = Callable[[HostConnection | None, str], None]
"""Called with a connection, or with None and the reason."""

PROBATION_SECONDS = 0.02
"""How long a connection must have survived its answer before it is used again, until the host has shown that it keeps
connections. Some promise to and close after every stream (llama.cpp's server does); a request that meets the closing
connection cannot be sent again, since the host may have read it."""
_EARLY_SECONDS = 1.0
"""A host that closes an idle connection sooner than this goes back on probation."""
RECEIVE_BYTES = 262_144
"""The kernel's share of a stream that the client does not read."""
_MARGIN_SECONDS = 1.0
"""A host's promise of N seconds is kept for N - 1: its clock starts earlier than ours."""


class Pool:
    """All connections of one worker."""

    def __init__(
        self,
        connect_timeout_seconds: float,
        keep_alive_seconds: float,
        *,
        tls: ssl.SSLContext | None = None,
        is_forbidden: Callable[[str], bool] = lambda address: False,
    ) -> None:
        """``tls``: for https hosts; ``is_forbidden``: addresses that nothing is sent to, whatever name led there."""
        self._connect_timeout_seconds = connect_timeout_seconds
        self._keep_alive_seconds = keep_alive_seconds
        self._loop = asyncio.get_running_loop()
        self._idle: dict[Address, deque[HostConnection]] = {}
        self._trusted: set[tuple[Address, bool]] = set()
        self._all: dict[HostConnection, Address] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._buffer = bytearray(READ_BYTES)
        self._tls = tls
        self._is_forbidden = is_forbidden

    def lease_idle(self, address: Address) -> HostConnection | None:
        """Return an idle connection that is still open and fit for use, or None."""
        idle = self._idle.get(address)
        while idle:
            connection = idle.pop()
            if not self._is_fit(address, connection):
                # The newest is on probation; the oldest is the likeliest to have passed it.
                idle.append(connection)
                connection = idle.popleft()
                if not self._is_fit(address, connection):
                    idle.appendleft(connection)
                    return None
            if connection.is_alive:
                return connection
            connection.close()
        return None

    def _is_fit(self, address: Address, connection: HostConnection) -> bool:
        if (address, connection.streamed) in self._trusted:
            return True
        return self._loop.time() - connection.idle_since >= PROBATION_SECONDS

    def connect(self, address: Address, connected: Connected, seconds: float | None = None) -> asyncio.Task[None]:
        """Open a connection within ``seconds`` and the connect timeout; ``connected`` is told.

        Cancelling the task leaves nothing open and calls nothing.
        """
        limit = self._connect_timeout_seconds if seconds is None else min(seconds, self._connect_timeout_seconds)
        task = self._loop.create_task(self._connect(address, connected, max(limit, 0.0)))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return task

    def returned(self, connection: HostConnection) -> None:
        address = self._all.get(connection)
        if address is None:
            connection.close()
            return
        connection.idle_since = self._loop.time()
        if connection.uses > 1:
            self._trusted.add((address, connection.streamed))
        idle = self._idle.get(address)
        if idle is None:
            idle = self._idle[address] = deque()
        idle.append(connection)

    def retired(self, connection: HostConnection) -> None:
        address = self._all.pop(connection, None)
        idle = self._idle.get(address) if address is not None else None
        if address is not None and idle and connection in idle:
            idle.remove(connection)
            if self._loop.time() - connection.idle_since < _EARLY_SECONDS:
                self._trusted.discard((address, connection.streamed))

    def sweep(self) -> None:
        """Close connections that have been idle too long: soon the host would."""
        now = self._loop.time()
        for idle in list(self._idle.values()):
            for connection in [c for c in idle if now - c.idle_since > self._patience(c)]:
                connection.close()

    def keep_only(self, addresses: Collection[Address]) -> None:
        """Retire the connections to hosts that left: idle ones now, leased ones when they come back."""
        for address in [known for known in self._idle if known not in addresses]:
            for connection in self._idle.pop(address):
                connection.close()
        self._trusted = {known for known in self._trusted if known[0] in addresses}
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

    async def _connect(self, address: Address, connected: Connected, limit: float) -> None:
        connection: HostConnection | None = None
        sock: socket.socket | None = None
        try:
            async with asyncio.timeout(limit):
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
            reason = f"no connection within {limit:.3g} s"
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
            if self._is_forbidden(str(where[0])):
                failure = OSError(f"{where[0]} is a link-local or metadata address")
                continue
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
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

"""A connection to a model host: one exchange at a time, parsed by llhttp, handed on chunk by chunk as it came.

What happened is told in the words of the retry rule. The connection knows nothing of routing.
"""

import asyncio
import contextlib
import socket
from typing import Protocol, cast

import httptools

from dataplane.host import Failure
from dataplane.wire.http import Headers

READ_BYTES = 65_536
"""One read at most, so that a stream never holds more than this plus the client's write limit."""
HEAD_BYTES_MAX = 65_536
"""Of an answer: status line and headers, trailers included."""


class Exchange(Protocol):
    """Whoever waits for the host's answer. Called in this order; after ``host_failed`` or ``host_done`` no more."""

    def host_head(self, status: int, headers: Headers) -> None: ...
    def host_body(self, data: bytes) -> None: ...
    def host_pause(self) -> None:
        """All that came with one read of the socket was handed on."""

    def host_done(self) -> None: ...
    def host_failed(self, failure: Failure, reason: str) -> None: ...


class Owner(Protocol):
    """The pool that a connection belongs to."""

    def returned(self, connection: "HostConnection") -> None: ...
    def retired(self, connection: "HostConnection") -> None: ...


class HostConnection(asyncio.BufferedProtocol):
    """Leased to one exchange at a time. ``socket`` is looked at before a lease, ``idle_since`` by the pool's sweep."""

    __slots__ = (
        "_buffer", "_complete", "_exchange", "_head_bytes", "_headers", "_keep_alive", "_owner",
        "_parser", "_quiet_bytes", "_status", "_transport", "_until_close", "_view", "idle_since", "keep_alive_seconds",
        "socket", "streamed", "uses",
    )  # fmt: skip

    def __init__(self, owner: Owner, buffer: bytearray, sock: socket.socket | None) -> None:
        self._owner = owner
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._headers: Headers = []
        self._head_bytes = 0
        self._quiet_bytes = 0
        """Read without a head or a part of the body coming of it: a header or trailer without end."""
        self._status = 0
        self._keep_alive = True
        self._complete = False
        self._until_close = False
        self.socket = sock
        self.idle_since = 0.0
        self.uses = 0
        self.streamed = False
        """Whether the last answer was an event stream."""
        self.keep_alive_seconds: float | None = None
        """What the host itself promised (``Keep-Alive: timeout=``), if it did."""

    # --- what the exchange calls -------------------------------------------------------------------------------------

    def send(self, exchange: Exchange, head: bytes, body: bytes) -> None:
        """Send one request; its answer goes to ``exchange``."""
        assert self._transport is not None
        self._exchange = exchange
        self.uses += 1
        self.streamed = False
        self._complete = self._until_close = False
        self._headers = []
        self._head_bytes = self._quiet_bytes = self._status = 0
        if len(body) < READ_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def cancel(self) -> None:
        """Drop the exchange; the host sees its connection closed."""
        self._exchange = None
        self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_alive(self) -> bool:
        """Whether an idle connection is still open, as far as this machine has heard.

        The host's close may lie unread in the socket while a request is being placed; one look avoids the send.
        """
        if self._transport is None or self._transport.is_closing():
            return False
        if self.socket is None:
            return True
        try:
            # Anything to read on an idle connection is its end, or nothing that was asked for.
            self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        return False

    # --- the loop's callbacks ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        # One buffer for all connections of a worker: what is read is handed on before the next read.
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        if self._exchange is None:
            self.close()
            return
        self._quiet_bytes += count
        try:
            self._parser.feed_data(self._view[:count])
        except httptools.HttpParserUpgrade:
            self._fail(Failure.MALFORMED, "the host switched protocols")
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(error, httptools.HttpParserCallbackError) and not isinstance(cause, (_TooLong, _Surplus)):
                raise
            if self._complete:
                # The answer itself is whole; nothing else may come from this connection.
                self._keep_alive = False
            else:
                self._fail(self._by_progress(Failure.MALFORMED), f"not an HTTP answer: {cause or error}")
        if self._complete:
            self._end()
        elif self._quiet_bytes > HEAD_BYTES_MAX:
            self._fail(self._by_progress(Failure.MALFORMED), f"its head is over {HEAD_BYTES_MAX} bytes")
        elif self._exchange is not None:
            self._exchange.host_pause()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.socket = None
        # It holds this connection: without it both are gone at once, not with the next full collection.
        del self._parser
        exchange, self._exchange = self._exchange, None
        self._owner.retired(self)
        if exchange is None:
            return
        if self._until_close and exc is None:
            exchange.host_done()
        else:
            how = f"the host closed the connection ({exc})" if exc else "the host closed the connection"
            exchange.host_failed(self._by_progress(Failure.LOST), how)

    # --- the parser's callbacks --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            raise _Surplus("more came after the answer")
        self._headers = []

    def on_status(self, status: bytes) -> None:
        self._count_head(len(status))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value) + 4)
        if not self._status:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._quiet_bytes = 0
        status = self._parser.get_status_code()
        if status < 200:
            # An interim answer (100, 103): the final one follows.
            return
        self._status = status
        self._keep_alive = self._parser.should_keep_alive()
        framed = status in (204, 304)
        for name, value in self._headers:
            if name in (b"content-length", b"transfer-encoding"):
                framed = True
            elif name == b"content-type":
                self.streamed = value.startswith(b"text/event-stream")
            elif name == b"keep-alive":
                self.keep_alive_seconds = _timeout(value)
        self._until_close = not framed
        assert self._exchange is not None
        self._exchange.host_head(status, self._headers)

    def on_body(self, data: bytes) -> None:
        self._quiet_bytes = 0
        if self._exchange is not None:
            self._exchange.host_body(data)

    def on_message_complete(self) -> None:
        if self._status:
            self._complete = True

    # --- inside ------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        exchange, self._exchange = self._exchange, None
        self._complete = False
        unsent = self._transport is not None and self._transport.get_write_buffer_size() > 0
        if self._keep_alive and not unsent and self._transport is not None:
            self._status = 0
            self._owner.returned(self)
        else:
            self.close()
        if exchange is not None:
            exchange.host_done()

    def _by_progress(self, before_head: Failure) -> Failure:
        return Failure.BROKEN if self._status else before_head

    def _fail(self, failure: Failure, reason: str) -> None:
        exchange, self._exchange = self._exchange, None
        self.close()
        if exchange is not None:
            exchange.host_failed(failure, reason)

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES_MAX:
            raise _TooLong(f"its head is over {HEAD_BYTES_MAX} bytes")


class _TooLong(Exception):
    pass


class _Surplus(Exception):
    pass


def _timeout(value: bytes) -> float | None:
    for item in value.split(b","):
        name, _, number = item.strip().partition(b"=")
        if name.lower() == b"timeout":
            with contextlib.suppress(ValueError):
                return float(number)
    return None

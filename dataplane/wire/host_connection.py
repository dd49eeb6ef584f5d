"""A connection to a model host: one exchange at a time, parsed by llhttp, handed on chunk by chunk as it came.

What happened is told in the words of the retry rule. The connection knows nothing of routing.
"""

import asyncio
import contextlib
import select
import socket
from typing import Protocol, cast

import httptools

from dataplane.host import Failure
from dataplane.wire.http import BODILESS, AnswerHead, Headers

READ_BYTES = 65_536
"""One read at most, so that a stream never holds more than this plus the client's write limit."""
HEAD_BYTES_MAX = 65_536
"""Of an answer: status line and headers, trailers included."""


class Exchange(Protocol):
    """Whoever waits for the host's answer. Called in this order; after ``host_failed`` or ``host_done`` no more."""

    def host_head(self, head: AnswerHead) -> None: ...
    def host_body(self, parts: list[bytes]) -> None:
        """Take what one read of the socket brought of the body, chunk by chunk; the list is the connection's own."""

    def host_pause(self) -> None:
        """All that came with one read of the socket was handed on."""

    def host_done(self) -> None: ...
    def host_failed(self, failure: Failure, reason: str) -> None: ...


class Owner(Protocol):
    """The pool that a connection belongs to."""

    def returned(self, connection: "HostConnection") -> None: ...
    def retired(self, connection: "HostConnection") -> None: ...


class HostConnection(asyncio.BufferedProtocol):
    """Leased to one exchange at a time. ``is_alive`` is asked before a lease, ``idle_since`` by the pool's sweep."""

    __slots__ = (
        "_buffer", "_complete", "_exchange", "_head", "_headers", "_keep_alive", "_owner", "_parser", "_parts",
        "_poll", "_quiet_bytes", "_read_bytes", "_status", "_transport", "_until_close", "_view", "idle_since",
        "keep_alive_seconds", "on_body", "streamed", "uses",
    )  # fmt: skip

    def __init__(self, owner: Owner, buffer: bytearray, sock: socket.socket | None) -> None:
        """``sock`` is looked at before a lease; None where a look would mislead."""
        self._owner = owner
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._parts: list[bytes] = []
        """Of the body: what came with the current read."""
        self.on_body = self._parts.append
        """The parser's callback; a method in Python would cost more than all else that a chunk needs."""
        self._parser = httptools.HttpResponseParser(self)
        self._poll: select.poll | None = None
        if sock is not None:
            self._poll = select.poll()
            self._poll.register(sock, select.POLLIN)
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._headers: Headers = []
        self._head: AnswerHead | None = None
        """Read, and not handed on yet."""
        self._quiet_bytes = 0
        """Read without a part of the body coming of it: a header or trailer without end."""
        self._read_bytes = 0
        """The size of the current read."""
        self._status = 0
        self._keep_alive = True
        self._complete = False
        self._until_close = False
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
        self._quiet_bytes = 0
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
        # Anything to read on an idle connection is its end, or nothing that was asked for.
        return self._poll is None or not self._poll.poll(0)

    # --- the loop's callbacks ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        # One buffer for all connections of a worker: what is read is handed on before the next read.
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        exchange = self._exchange
        if exchange is None:
            self.close()
            return
        self._read_bytes = count
        self._quiet_bytes += count
        wrong = ""
        try:
            self._parser.feed_data(self._view[:count])
        except httptools.HttpParserUpgrade:
            wrong = "the host switched protocols"
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(error, httptools.HttpParserCallbackError) and not isinstance(cause, (_TooLong, _Surplus)):
                raise
            wrong = f"not an HTTP answer: {cause or error}"
        self._hand_on(exchange, wrong)

    def _hand_on(self, exchange: Exchange, wrong: str) -> None:
        """Hand on what came of one read; the exchange may cancel meanwhile."""
        if self._head is not None:
            head, self._head = self._head, None
            exchange.host_head(head)
        if self._parts:
            self._quiet_bytes = 0
            if self._exchange is exchange:
                exchange.host_body(self._parts)
            self._parts.clear()
        if self._exchange is not exchange:
            return
        if self._complete:
            # If more came, the answer itself is whole; nothing else may come from this connection.
            self._end(exchange, is_clean=not wrong)
        elif wrong:
            self._fail(self._by_progress(Failure.MALFORMED), wrong)
        elif self._quiet_bytes > HEAD_BYTES_MAX:
            self._fail(self._by_progress(Failure.MALFORMED), str(_TooLong()))
        else:
            exchange.host_pause()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._poll = None
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
            raise _Surplus
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            # An interim answer (100, 103): the final one follows.
            return
        if self._quiet_bytes > HEAD_BYTES_MAX:
            self._check_head()
        self._status = status
        self._keep_alive = self._parser.should_keep_alive()
        named = dict(self._headers)
        self._until_close = not (b"content-length" in named or b"transfer-encoding" in named or status in BODILESS)
        self.streamed = named.get(b"content-type", b"").startswith(b"text/event-stream")
        if b"keep-alive" in named:
            self.keep_alive_seconds = _timeout(named[b"keep-alive"])
        # A list of its own: trailers go on into the other one.
        self._head, self._headers = AnswerHead(status, self._headers, named), []

    def on_message_complete(self) -> None:
        if self._status:
            self._complete = True

    # --- inside ------------------------------------------------------------------------------------------------------

    def _end(self, exchange: Exchange, *, is_clean: bool) -> None:
        self._exchange = None
        self._complete = False
        transport = self._transport
        if is_clean and self._keep_alive and transport is not None and not transport.get_write_buffer_size():
            self._status = 0
            self._owner.returned(self)
        else:
            self.close()
        exchange.host_done()

    def _by_progress(self, before_head: Failure) -> Failure:
        return Failure.BROKEN if self._status else before_head

    def _fail(self, failure: Failure, reason: str) -> None:
        exchange, self._exchange = self._exchange, None
        self.close()
        if exchange is not None:
            exchange.host_failed(failure, reason)

    def _check_head(self) -> None:
        """Tell a long head from a short one that came with much of its body."""
        before = self._quiet_bytes - self._read_bytes
        if before + self._buffer.find(b"\r\n\r\n", 0, self._read_bytes) > HEAD_BYTES_MAX:
            raise _TooLong


class _TooLong(Exception):
    def __str__(self) -> str:
        return f"its head is over {HEAD_BYTES_MAX} bytes"


class _Surplus(Exception):
    def __str__(self) -> str:
        return "more came after the answer"


def _timeout(value: bytes) -> float | None:
    for item in value.split(b","):
        name, _, number = item.strip().partition(b"=")
        if name.lower() == b"timeout":
            with contextlib.suppress(ValueError):
                return float(number)
    return None

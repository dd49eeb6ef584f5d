"""A client's connection: requests in, one answer at a time out, back-pressure both ways.

A request is handed on when all of its body is here; until then it takes no capacity anywhere but memory. Requests that
were sent ahead (pipelining) wait in order. The connection never reads further than READ_AHEAD bytes beyond the request
that is being answered.

What changes here: the parser's half-read request, the queue of requests read ahead, the current responder; only this
connection's callbacks change them.
"""

import asyncio
from collections import deque
from time import monotonic
from typing import Protocol, cast

import httptools

from dataplane.wire.http import LAST_CHUNK, Request, chunk, head_fault, status_line, without_offer

HEADER_COUNT_MAX = 100
"""As Apache's LimitRequestFields default."""
HEADER_BYTES_MAX = 32_768
"""Request line and headers together; nginx takes 4 x 8 KiB."""
WRITE_HIGH_BYTES = 65_536
"""Above this the answer's source is paused. A read of the source is at most as large, so a stream holds twice that."""
READ_AHEAD_BYTES = 65_536
LINGER_SECONDS = 2.0
"""How long a refused client may go on sending before its connection is cut; closing at once would lose the answer."""


class Responder(Protocol):
    """Whoever answers the current request."""

    def client_gone(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Service(Protocol):
    """What a worker does with the requests of its connections, and the limits it sets them."""

    loop: asyncio.AbstractEventLoop
    body_bytes_max: int
    keep_alive_seconds: float
    read_timeout_seconds: float
    draining: bool

    def opened(self, connection: "ClientConnection") -> bool:
        """Note a new connection. False: there are too many; it is answered 503 and closed."""

    def closed(self, connection: "ClientConnection") -> None: ...

    def refuse_early(self, request: Request, content_length: int | None) -> bytes | None:
        """Return a complete answer for a request that can be refused by its head, else None."""

    def handle(self, connection: "ClientConnection", request: Request) -> Responder | None:
        """Answer ``request`` through ``connection``, now (None) or later."""

    def refusal(self, target: bytes, status: int, reason: str) -> bytes:
        """Return a complete answer, which closes the connection, for bytes that are no acceptable request."""


class _Refused(Exception):
    """Stops the parser from inside a callback. ``answer`` is sent as it is; without one, ``status`` and ``reason``."""

    def __init__(self, status: int = 0, reason: str = "", answer: bytes | None = None) -> None:
        self.status = status
        self.reason = reason
        self.answer = answer


class ClientConnection(asyncio.Protocol):
    """One client. ``deadline`` is when the worker's sweep calls ``overdue``: idle, slow to send, or lingering."""

    __slots__ = (
        "_ahead_bytes", "_body", "_body_bytes", "_discarding", "_head_bytes", "_in_body", "_offer", "_out",
        "_parser", "_queue", "_quiet_bytes", "_reading", "_reading_paused", "_refusal", "_responder", "_service",
        "_transport", "busy", "chunked", "deadline", "framed", "has_served", "head_sent", "peer", "request",
    )  # fmt: skip

    def __init__(self, service: Service) -> None:
        self._service = service
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._reading: Request | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._head_bytes = 0
        self._ahead_bytes = 0
        self._out: list[bytes] = []
        self._queue: deque[Request] = deque()
        self._responder: Responder | None = None
        self._reading_paused = False
        self._discarding = False
        self._in_body = False
        self._quiet_bytes = 0
        """Read without a head or a part of a body coming of it: a header or trailer without end."""
        self._offer: Request | None = None
        """A request that came with an offer to upgrade, until it is declined."""
        self._refusal: bytes | None = None
        self.busy = False
        """A request is being answered."""
        self.request: Request | None = None
        self.chunked = False
        self.framed = True
        self.head_sent = False
        self.has_served = False
        self.deadline: float | None = None
        self.peer = ""

    # --- the loop's callbacks ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else ""
        if self._service.opened(self):
            self.deadline = self._service.loop.time() + self._service.keep_alive_seconds
        else:
            self._refuse(self._service.refusal(b"", 503, "too many connections"))

    def data_received(self, data: bytes) -> None:
        if self._discarding or self._refusal is not None:
            return
        if self.busy:
            self._ahead_bytes += len(data)
            if self._ahead_bytes > READ_AHEAD_BYTES and self._transport is not None:
                self._reading_paused = True
                self._transport.pause_reading()
        self._quiet_bytes += len(data)
        try:
            self._parser.feed_data(data)
            if self._quiet_bytes > HEADER_BYTES_MAX and self._reading is not None:
                self._refuse_parsed(_Refused(431, f"a header is over the limit of {HEADER_BYTES_MAX} bytes"))
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _Refused):
                raise
            self._refuse_parsed(error.__context__)
        except httptools.HttpParserError as error:
            self._refuse_parsed(_Refused(400, f"malformed HTTP request: {error}"))

    def eof_received(self) -> bool:
        # A client that has closed its side has left: nothing tells a half-close from a close.
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._service.closed(self)
        self._transport = self.deadline = None
        self._queue.clear()
        # It holds this connection: a cycle, which would keep the last request's body until a full collection.
        del self._parser
        responder, self._responder = self._responder, None
        if responder is not None:
            responder.client_gone()

    def pause_writing(self) -> None:
        if self._responder is not None:
            self._responder.pause()

    def resume_writing(self) -> None:
        if self._responder is not None:
            self._responder.resume()

    # --- the parser's callbacks --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._reading = Request()
        self._body = []
        self._body_bytes = self._head_bytes = 0
        self._in_body = False
        if not self.busy:
            self.deadline = self._service.loop.time() + self._service.read_timeout_seconds

    def on_url(self, url: bytes) -> None:
        assert self._reading is not None
        self._reading.target += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        assert self._reading is not None
        self._count_head(len(name) + len(value) + 4)
        if self._in_body:
            # A trailer. Merged with the headers it would pass the checks made on them.
            return
        if len(self._reading.headers) >= HEADER_COUNT_MAX:
            raise _Refused(431, f"more than {HEADER_COUNT_MAX} headers")
        self._reading.headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        request, parser = self._reading, self._parser
        assert request is not None
        self._quiet_bytes = 0
        self._in_body = True
        request.method = parser.get_method()
        request.minor = 0 if (version := parser.get_http_version()) == "1.0" else 1
        request.keep_alive = parser.should_keep_alive()
        if (fault := head_fault(version, request.headers)) is not None:
            raise _Refused(400, f"malformed HTTP request: {fault}")
        length = request.header(b"content-length")
        answer = self._service.refuse_early(request, int(length) if length is not None else None)
        if answer is not None:
            raise _Refused(answer=answer)
        if request.minor and not self.busy and (request.header(b"expect") or b"").lower() == b"100-continue":
            assert self._transport is not None
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        self._quiet_bytes = 0
        self._body_bytes += len(data)
        if self._body_bytes > self._service.body_bytes_max:
            raise _Refused(413, f"the request body is over the limit of {self._service.body_bytes_max} bytes")
        self._body.append(data)

    def on_message_complete(self) -> None:
        request, self._reading = self._reading, None
        assert request is not None
        self._quiet_bytes = 0
        if self._parser.should_upgrade():
            # What follows is its body or the next request, but the parser takes it for another protocol.
            self._offer = request
            return
        request.body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        if self.busy:
            self._queue.append(request)
        else:
            self._begin(request)

    # --- what the service calls --------------------------------------------------------------------------------------

    def respond(self, status: int, headers: bytes, body: bytes) -> None:
        """Send a whole answer. ``headers`` are complete lines; framing is added here."""
        data = b"%b%bcontent-length: %d\r\n%b\r\n" % (status_line(status), headers, len(body), self._connection_line())
        self._out.append(data)
        if self.request is None or self.request.method != b"HEAD":
            self._out.append(body)
        self.finish()

    def start(self, status: int, headers: bytes, content_length: int | None) -> None:
        """Send the head of an answer whose body follows through ``send`` and ``finish``, or fails through ``abort``.

        Head and parts leave with the next ``flush``, which ``finish`` and ``abort`` do by themselves.
        """
        assert self.request is not None
        self.head_sent = True
        if status in (204, 304):
            framing = b""
        elif content_length is not None:
            framing = b"content-length: %d\r\n" % content_length
        elif self.request.minor:
            self.chunked = True
            framing = b"transfer-encoding: chunked\r\n"
        else:
            # An HTTP/1.0 client knows no chunks: the end of the connection ends the body.
            self.request.keep_alive = self.framed = False
            framing = b""
        self._out.append(b"%b%b%b%b\r\n" % (status_line(status), headers, framing, self._connection_line()))

    def send(self, data: bytes) -> None:
        """Send a part of the body; not empty."""
        self._out.append(chunk(data) if self.chunked else data)

    def flush(self) -> None:
        """Write what was sent since the last time: one system call for all that came of one read of the host."""
        out, self._out = self._out, []
        if self._transport is not None and out:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def finish(self) -> None:
        """End the answer and go on with the next request."""
        if self.chunked:
            self._out.append(LAST_CHUNK)
        self.flush()
        request, self.request = self.request, None
        self._responder = None
        self.busy = self.chunked = self.head_sent = False
        if self._transport is None:
            return
        if (request is not None and not request.keep_alive) or self._service.draining:
            self._transport.close()
        else:
            self._go_on()

    def abort(self) -> None:
        """Break off an answer whose head was sent, in a way that the client sees."""
        self.flush()
        self._responder = None
        self.busy = False
        if self._transport is not None:
            if self.framed:
                # What was sent reaches the client; the missing rest tells it that the answer is not whole.
                self._transport.close()
            else:
                self._transport.abort()

    def close_if_idle(self, *, fresh_too: bool = True) -> None:
        """Close between two requests; ``fresh_too``: also before the first one, which may be on its way."""
        if not self.busy and self._reading is None and self._transport is not None and (fresh_too or self.has_served):
            self._transport.close()

    def overdue(self) -> None:
        """The deadline has passed."""
        self.deadline = None
        if self._transport is None:
            return
        if self._reading is not None and not self._discarding:
            self._refuse(self._service.refusal(self._reading.target, 408, "the request was not sent in time"))
        else:
            self._transport.abort() if self._discarding else self._transport.close()

    @property
    def phase(self) -> str:
        """For the log: what this connection is doing."""
        if self.busy:
            return "answering"
        return "lingering" if self._discarding else "sending a request" if self._reading is not None else "idle"

    # --- inside ------------------------------------------------------------------------------------------------------

    def _begin(self, request: Request) -> None:
        self.busy = True
        self.deadline = None
        self.request = request
        self.has_served = True
        request.received_at = monotonic()
        responder = self._service.handle(self, request)
        # Answered at once, perhaps with the next request begun already.
        if self.request is request:
            self._responder = responder

    def _go_on(self) -> None:
        assert self._transport is not None
        self._ahead_bytes = 0
        if self._queue:
            self.busy = True
            self._service.loop.call_soon(self._begin_next)
            return
        if self._refusal is not None:
            self._refuse(self._refusal)
            return
        if self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()
        wait = self._service.keep_alive_seconds if self._reading is None else self._service.read_timeout_seconds
        self.deadline = self._service.loop.time() + wait

    def _begin_next(self) -> None:
        if self._transport is not None and self._queue:
            self._begin(self._queue.popleft())

    def _connection_line(self) -> bytes:
        request = self.request
        if self._service.draining:
            if request is not None:
                request.keep_alive = False
            return b"connection: close\r\n"
        if request is None or not request.keep_alive:
            return b"connection: close\r\n"
        return b"" if request.minor else b"connection: keep-alive\r\n"

    def _decline(self, rest: bytes) -> None:
        """Go on without the offered upgrade (RFC 9110, 7.8); Java's HTTP client offers h2c with every request."""
        offer, self._offer = self._offer, None
        if offer is None or offer.method == b"CONNECT":
            self._refuse_parsed(_Refused(400, "protocol upgrades are not supported"))
            return
        self._parser = httptools.HttpRequestParser(self)
        self.data_received(without_offer(offer) + rest)

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEADER_BYTES_MAX:
            raise _Refused(431, f"the request's head is over the limit of {HEADER_BYTES_MAX} bytes")

    def _refuse_parsed(self, refused: _Refused) -> None:
        last = self._queue[-1] if self._queue else self.request
        if self._transport is None or self._transport.is_closing() or (last is not None and not last.keep_alive):
            return  # what comes after the last request, by the client's own word, is none
        target = self._reading.target if self._reading is not None else b""
        answer = refused.answer or self._service.refusal(target, refused.status, refused.reason)
        if self.busy:
            # Requests before this one are answered first.
            self._refusal = answer
        else:
            self._refuse(answer)

    def _refuse(self, answer: bytes) -> None:
        """Send ``answer``, take no more, and give the client time to read it: unread bytes would reset the answer."""
        assert self._transport is not None
        self._refusal = None
        self._discarding = True
        self._reading = None
        self._transport.write(answer)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self.deadline = self._service.loop.time() + LINGER_SECONDS

"""A client's connection: requests in, one answer at a time out, back-pressure both ways.

A request is handed on when all of its body is here; until then it takes no capacity anywhere but memory. Requests that
were sent ahead (pipelining) wait in order. The connection never reads further than READ_AHEAD bytes beyond the request
that is being answered.

What changes here: the parser's half-read request, the queue of requests read ahead, the current responder; only this
connection's callbacks change them.
"""

import asyncio
from time import monotonic
from typing import Protocol, cast

from dataplane.wire.http import BODILESS, LAST_CHUNK, Request, chunk, status_line
from dataplane.wire.request_reader import Limits, Refusal, RequestReader

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


class Service(Limits, Protocol):
    """What a worker does with the requests of its connections, and the limits it sets them."""

    loop: asyncio.AbstractEventLoop
    keep_alive_seconds: float
    read_timeout_seconds: float
    draining: bool

    def opened(self, connection: "ClientConnection") -> bool:
        """Note a new connection. False: there are too many; it is answered 503 and closed."""

    def closed(self, connection: "ClientConnection") -> None: ...

    def handle(self, connection: "ClientConnection", request: Request) -> Responder | None:
        """Answer ``request`` through ``connection``, now (None) or later."""

    def refusal(self, target: bytes, status: int, reason: str) -> bytes:
        """Return a complete answer, which closes the connection, for bytes that are no acceptable request."""


class ClientConnection(asyncio.Protocol):
    """One client. ``deadline`` is when the worker's sweep calls ``overdue``: idle, slow to send, or lingering."""

    __slots__ = (
        "_ahead_bytes", "_discarding", "_out", "_reader", "_reading_paused", "_refusal", "_responder", "_service",
        "_transport", "busy", "chunked", "deadline", "framed", "has_served", "peer", "request",
    )  # fmt: skip

    def __init__(self, service: Service) -> None:
        self._service = service
        self._reader = RequestReader(service)
        self._transport: asyncio.Transport | None = None
        self._ahead_bytes = 0
        self._out: list[bytes] = []
        self._responder: Responder | None = None
        self._reading_paused = False
        self._discarding = False
        self._refusal: bytes | None = None
        self.busy = False
        """A request is being answered."""
        self.request: Request | None = None
        self.chunked = False
        self.framed = True
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
        reader = self._reader
        before = reader.reading
        try:
            reader.feed(data)
        except Refusal as refusal:
            self._refuse_read(refusal)
        if reader.requests and not self.busy:
            self._begin(reader.requests.popleft())
        elif reader.reading is not None and not self.busy and not self._discarding:
            self._wait_for_rest(is_new=reader.reading is not before)

    def eof_received(self) -> bool:
        # A client that has closed its side has left: nothing tells a half-close from a close.
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._service.closed(self)
        self._transport = self.deadline = None
        self._reader.requests.clear()
        self._reader.end()
        responder, self._responder = self._responder, None
        if responder is not None:
            responder.client_gone()

    def pause_writing(self) -> None:
        if self._responder is not None:
            self._responder.pause()

    def resume_writing(self) -> None:
        if self._responder is not None:
            self._responder.resume()

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
        if status in BODILESS:
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
        self.busy = self.chunked = False
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
        if (
            not self.busy
            and self._reader.reading is None
            and self._transport is not None
            and (fresh_too or self.has_served)
        ):
            self._transport.close()

    def overdue(self) -> None:
        """The deadline has passed."""
        self.deadline = None
        if self._transport is None:
            return
        if self._reader.reading is not None and not self._discarding:
            self._refuse(self._service.refusal(self._reader.reading.target, 408, "the request was not sent in time"))
        else:
            self._transport.abort() if self._discarding else self._transport.close()

    @property
    def phase(self) -> str:
        """For the log: what this connection is doing."""
        if self.busy:
            return "answering"
        return "lingering" if self._discarding else "sending a request" if self._reader.reading is not None else "idle"

    # --- inside ------------------------------------------------------------------------------------------------------

    def _wait_for_rest(self, *, is_new: bool) -> None:
        """A request is half read: it has its time from its first byte, trickling does not stop the clock."""
        if is_new:
            self.deadline = self._service.loop.time() + self._service.read_timeout_seconds
        if self._reader.expects:
            self._reader.expects = False
            assert self._transport is not None
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

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
        if self._reader.requests:
            self.busy = True
            self._service.loop.call_soon(self._begin_next)
            return
        if self._refusal is not None:
            self._refuse(self._refusal)
            return
        if self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()
        if self._reader.reading is not None:
            self._wait_for_rest(is_new=True)
        else:
            self.deadline = self._service.loop.time() + self._service.keep_alive_seconds

    def _begin_next(self) -> None:
        if self._transport is not None and self._reader.requests:
            self._begin(self._reader.requests.popleft())

    def _connection_line(self) -> bytes:
        request = self.request
        if self._service.draining:
            if request is not None:
                request.keep_alive = False
            return b"connection: close\r\n"
        if request is None or not request.keep_alive:
            return b"connection: close\r\n"
        return b"" if request.minor else b"connection: keep-alive\r\n"

    def _refuse_read(self, refusal: Refusal) -> None:
        last = self._reader.requests[-1] if self._reader.requests else self.request
        if self._transport is None or self._transport.is_closing() or (last is not None and not last.keep_alive):
            # More came after the request that the client announced as its last.
            return
        reading = self._reader.reading
        target = reading.target if reading is not None else b""
        answer = refusal.answer or self._service.refusal(target, refusal.status, refusal.reason)
        if self.busy or self._reader.requests:
            # Requests before this one are answered first.
            self._refusal = answer
        else:
            self._refuse(answer)

    def _refuse(self, answer: bytes) -> None:
        """Send ``answer``, take no more, and give the client time to read it: unread bytes would reset the answer."""
        assert self._transport is not None
        reading, self._reader.reading = self._reader.reading, None
        if reading is not None and reading.method == b"HEAD":
            answer = answer[: answer.index(b"\r\n\r\n") + 4]
        self._refusal = None
        self._discarding = True
        self._transport.write(answer)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self.deadline = self._service.loop.time() + LINGER_SECONDS

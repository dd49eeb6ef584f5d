"""A client's requests, read from the bytes of its connection: no socket, no clock.

llhttp checks and frames; this keeps the limits. A request is handed on when all of its body is here. What changes
here: the half-read request and the queue of whole ones.
"""

from collections import deque
from typing import Protocol

import httptools

from dataplane.wire.http import Request, head_fault, without_offer

HEADER_COUNT_MAX = 100
"""As Apache's LimitRequestFields default."""
HEADER_BYTES_MAX = 32_768
"""Request line and headers together; nginx takes 4 x 8 KiB."""


class Limits(Protocol):
    """What may be read."""

    body_bytes_max: int

    def refuse_early(self, request: Request, content_length: int | None) -> bytes | None:
        """Return a complete answer for a request that can be refused by its head, else None."""


class Refusal(Exception):
    """No more is read. ``answer`` is to be sent as it is; without one, ``status`` and ``reason`` say what is wrong."""

    def __init__(self, status: int = 0, reason: str = "", answer: bytes | None = None) -> None:
        self.status = status
        self.reason = reason
        self.answer = answer


class RequestReader:
    """``requests`` are whole, in order; ``reading`` is half read."""

    __slots__ = ("_body", "_body_bytes", "_head_bytes_max", "_limits", "_offer", "_parser", "_parts", "_quiet_bytes",
                 "expects", "on_body", "reading", "requests")  # fmt: skip

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._parts: list[bytes] = []
        """Of the body: what came with the current read."""
        self.on_body = self._parts.append
        """The parser's callback; a method in Python would cost more than all else that a part of a body needs."""
        self._parser = httptools.HttpRequestParser(self)
        self._body: list[bytes] = []
        """What came of it with earlier reads."""
        self._body_bytes = 0
        self._quiet_bytes = 0
        """Read without a head or a part of a body coming of it: a header or trailer without end."""
        self._head_bytes_max = 0
        """Read since the client was between two requests: no head is longer, which spares most of them a count."""
        self._offer: Request | None = None
        """A request that came with an offer to upgrade, until it is declined."""
        self.reading: Request | None = None
        self.requests: deque[Request] = deque()
        self.expects = False
        """The half-read request waits for 100-continue."""

    def feed(self, data: bytes) -> None:
        """Take the bytes of one read. Raises Refusal, and is of no use then; ``requests`` before it still count."""
        self._quiet_bytes += len(data)
        self._head_bytes_max += len(data)
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                self._decline(memoryview(data)[offer.args[0] :])
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, Refusal):
                raise
            raise error.__context__ from None
        except httptools.HttpParserError as error:
            raise Refusal(400, f"malformed HTTP request: {error}") from None
        if self.reading is None:
            self._head_bytes_max = 0
        elif self._parts:
            self._quiet_bytes = 0
            self._keep_parts()
        elif self._quiet_bytes > HEADER_BYTES_MAX:
            raise Refusal(431, f"a header is over the limit of {HEADER_BYTES_MAX} bytes")

    def end(self) -> None:
        """Let go of the parser: it holds this reader, a cycle, which would keep bodies until a full collection."""
        del self._parser

    # --- the parser's callbacks --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.reading = Request()

    def on_url(self, url: bytes) -> None:
        assert self.reading is not None
        self.reading.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        request = self.reading
        assert request is not None
        if request.method:
            # A trailer. Merged with the headers it would pass the checks made on them.
            return
        headers, name, value = request.headers, name.lower(), value.rstrip(b" \t")
        if len(headers) + len(request.repeated) >= HEADER_COUNT_MAX:
            raise Refusal(431, f"more than {HEADER_COUNT_MAX} headers")
        if name in headers:
            request.repeated.append((name, value))
        else:
            headers[name] = value

    def on_headers_complete(self) -> None:
        request, parser = self.reading, self._parser
        assert request is not None
        if self._head_bytes_max > HEADER_BYTES_MAX and _head_bytes(request) > HEADER_BYTES_MAX:
            raise Refusal(431, f"the request's head is over the limit of {HEADER_BYTES_MAX} bytes")
        self._quiet_bytes = 0
        request.method = parser.get_method()
        version = parser.get_http_version()
        request.minor = 0 if version == "1.0" else 1
        # Of HTTP/1.0 the parser looks for keep-alive only.
        request.keep_alive = parser.should_keep_alive() and (request.minor > 0 or not _says_close(request))
        if (fault := head_fault(version, request)) is not None:
            raise Refusal(400, f"malformed HTTP request: {fault}")
        length = request.headers.get(b"content-length")
        answer = self._limits.refuse_early(request, int(length) if length is not None else None)
        if answer is not None:
            raise Refusal(answer=answer)
        if b"expect" in request.headers:
            # HTTP/1.0 knows no interim answers.
            self.expects = request.minor > 0 and request.headers[b"expect"].lower() == b"100-continue"

    def on_message_complete(self) -> None:
        request = self.reading
        assert request is not None
        if self._body:
            self._keep_parts()
            request.body, self._body = b"".join(self._body), []
        else:
            # Of one part, the join is that part.
            request.body = b"".join(self._parts)
            self._check_body(len(request.body))
            self._parts.clear()
        self._quiet_bytes = self._body_bytes = 0
        self.reading, self.expects = None, False
        if self._parser.should_upgrade():
            # What follows is its body or the next request, but the parser takes it for another protocol.
            self._offer = request
        else:
            self.requests.append(request)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _keep_parts(self) -> None:
        """Put away what came of a body with one read, as one piece: chunks of a byte would cost fifty each."""
        self._body.append(b"".join(self._parts))
        self._body_bytes += len(self._body[-1])
        self._parts.clear()
        self._check_body(self._body_bytes)

    def _check_body(self, size: int) -> None:
        if size > self._limits.body_bytes_max:
            raise Refusal(413, f"the request body is over the limit of {self._limits.body_bytes_max} bytes")

    def _decline(self, rest: memoryview) -> None:
        """Go on without the offered upgrade (RFC 9110, 7.8); Java's HTTP client offers h2c with every request.

        A loop and a view: one read may hold thousands of offers.
        """
        while True:
            offer, self._offer = self._offer, None
            if offer is None or offer.method == b"CONNECT":
                raise Refusal(400, "protocol upgrades are not supported")
            self._parser = httptools.HttpRequestParser(self)
            self._parser.feed_data(without_offer(offer))
            try:
                self._parser.feed_data(rest)
            except httptools.HttpParserUpgrade as again:
                rest = rest[again.args[0] :]
            else:
                return


def _says_close(request: Request) -> bool:
    options = b",".join(request.header_values(b"connection")).lower().split(b",")
    return b"close" in [option.strip() for option in options]


def _head_bytes(request: Request) -> int:
    return len(request.target) + sum(len(name) + len(value) + 4 for name, value in request.all_headers())

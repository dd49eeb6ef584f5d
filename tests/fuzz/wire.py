"""The part ``wire``: a client connection fed by hand, in this process; sockets and hosts are in the part ``worker``.

Judged by the independent reading: whatever is handled is, in order, what that reading says; what is refused may be;
answers come in order, each whole; and the connection ends in a state that follows.
"""

import random

from dataplane.wire.http import Request
from dataplane.wire.request_reader import HEADER_BYTES_MAX, HEADER_COUNT_MAX
from dataplane.wire.server import ClientConnection, Responder
from tests.dataplane.wire.transport import ManualLoop, ManualTransport
from tests.fuzz import requests
from tests.fuzz.reading import Headers, Limits, Stream, read
from tests.fuzz.report import Finding, answers

LIMITS = Limits(HEADER_BYTES_MAX, HEADER_COUNT_MAX, 20_000)
_OFFER = (b"upgrade", b"connection", b"http2-settings")


class _Later(Responder):
    def client_gone(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Service:
    """Answers with the target and the body, at once or when it is told to."""

    def __init__(self, *, at_once: bool) -> None:
        self.loop = ManualLoop()
        self.body_bytes_max = LIMITS.body_bytes
        self.keep_alive_seconds, self.read_timeout_seconds = 75.0, 60.0
        self.draining = False
        self.at_once = at_once
        self.handled: list[Request] = []
        self.refusals: list[int] = []

    def opened(self, connection: ClientConnection) -> bool:
        return True

    def closed(self, connection: ClientConnection) -> None: ...

    def refuse_early(self, request: Request, content_length: int | None) -> bytes | None:
        return self.refusal(b"", 413, "") if (content_length or 0) > self.body_bytes_max else None

    def handle(self, connection: ClientConnection, request: Request) -> Responder | None:
        self.handled.append(request)
        if self.at_once:
            connection.respond(200, b"", request.target + request.body)
            return None
        return _Later()

    def refusal(self, target: bytes, status: int, reason: str) -> bytes:
        self.refusals.append(status)
        return b"HTTP/1.1 %d Refused\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status


def run(dice: random.Random) -> None:
    """Run one case. Raises Finding."""
    data = requests.stream(dice)
    pieces, at_once = requests.cut(dice, data), dice.random() < 0.7
    try:
        check(pieces, at_once)
    except Finding as finding:
        raise Finding(f"{finding}\npieces = {pieces!r}\nat_once = {at_once}") from None


def check(pieces: list[bytes], at_once: bool = True) -> None:
    """Feed a connection with these pieces and judge what became of them. Raises Finding."""
    service = Service(at_once=at_once)
    connection = ClientConnection(service)  # type: ignore[arg-type]
    transport = ManualTransport(service.loop, connection)
    connection.connection_made(transport)
    written = b""
    for piece in pieces:
        if transport.is_closed:
            break
        connection.data_received(piece)
        service.loop.run()
        written += transport.take()
    while connection.busy and not transport.is_closed:
        request = connection.request
        assert request is not None
        connection.respond(200, b"", request.target + request.body)
        service.loop.run()
        written += transport.take()
    stream = read(b"".join(pieces), LIMITS)
    state = "closed" if transport.is_closed else connection.phase
    if state == "idle" and service.refusals:
        raise Finding("refused and yet open")
    if state != "closed" and connection.deadline is None:
        raise Finding(f"{state} for ever")
    judge(stream, service.handled, service.refusals, state)
    _check_answers(written, service)


def judge(stream: Stream, handled: list[Request], refusals: list[int], state: str) -> None:
    """Compare what a front did with what it was sent. Raises Finding."""
    for number, (did, sent) in enumerate(zip(handled, stream.requests, strict=False)):
        if (did.method, did.target, did.body) != (sent.method, sent.target, sent.body):
            raise Finding(f"request {number} was read as {did.method!r} {did.target!r} {did.body!r}, it is {sent}")
        read_headers = list(did.all_headers())
        if _own(read_headers) != _own(sent.headers):
            raise Finding(f"request {number} was read with {read_headers}, it has {sent.headers}")
    count = len(handled)
    if count > len(stream.requests):
        raise Finding(f"a request was read where none is ({stream.end}: {stream.why}): {handled[count - 1].target!r}")
    if any(not 400 <= status < 500 for status in refusals):
        raise Finding(f"refused with {refusals}")
    around = stream.requests[max(0, count - 1) : count + 1]
    last = stream.requests[count - 1] if count else None
    if state == "lingering":
        if not any(one.may_refuse for one in around) and (count < len(stream.requests) or stream.end == "idle"):
            raise Finding(f"request {count} was refused with {refusals}, and is good: {around}")
    elif state == "closed":
        offered = last is not None and any(last.values(name) for name in (b"upgrade", b"proxy-connection"))
        if last is None or (last.keep_alive and not offered):
            raise Finding("closed without a word")
    elif count < len(stream.requests) and not stream.requests[count].may_refuse:
        raise Finding(f"request {count} was neither answered nor refused ({state}): {stream.requests[count]}")
    elif last is not None and not last.keep_alive:
        raise Finding(f"{state} after the last request")


def _own(headers: Headers) -> Headers:
    # By name: the front keeps the order of one name's values, not that of names.
    return sorted((header for header in headers if header[0] not in _OFFER), key=lambda header: header[0])


def _check_answers(written: bytes, service: Service) -> None:
    handled = service.handled
    found = answers(written, [request.method for request in handled])
    expected = [(200, b"" if one.method == b"HEAD" else one.target + one.body) for one in handled]
    expected += [(status, b"") for status in service.refusals[:1]]
    if found != expected:
        raise Finding(f"answered {found}, not {expected}")

"""HTTP/1.1 heads: what a request is, which headers are hop-by-hop, how answers are written. Pure."""

from collections.abc import Iterable
from http import HTTPStatus

from msgspec import Struct

Headers = list[tuple[bytes, bytes]]
"""Names in lower case, values as received, in order, repetitions kept."""

HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
"""RFC 9110, 7.6.1. Content-Length is framing too and always set anew."""

BODILESS = frozenset((204, 304))
"""Statuses whose answers end with their head (RFC 9112, 6.3)."""

_OFFER = frozenset((b"upgrade", b"connection", b"http2-settings"))
_STATUS_LINES = {s.value: b"HTTP/1.1 %d %b\r\n" % (s.value, s.phrase.encode()) for s in HTTPStatus}


class Request(Struct, eq=False):
    """One complete request of a client."""

    target: bytes = b""
    method: bytes = b""
    minor: int = 1
    headers: dict[bytes, bytes] = {}
    """The first value of each, by its name in lower case."""
    repeated: Headers = []
    """Further values of names that came more than once."""
    body: bytes = b""
    keep_alive: bool = True
    received_at: float = 0.0

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of a header, or None."""
        return self.headers.get(name)

    def header_values(self, name: bytes) -> list[bytes]:
        return [value for known, value in self.all_headers() if known == name]

    def all_headers(self) -> Headers:
        """Return every header, repetitions in their order behind the first values."""
        return [*self.headers.items(), *self.repeated]


def head_fault(version: str, request: Request) -> str | None:
    """Return why a head is refused that the parser takes, or None: what two readers might cut or send differently.

    RFC 9112: one Host (3.2), no coding below HTTP/1.1 (6.1). Other codings than chunked would have to be undone here.
    """
    if version not in ("1.1", "1.0"):
        return f"HTTP/{version} is not spoken here, HTTP/1.1 is"
    coding = request.headers.get(b"transfer-encoding")
    if coding is not None and (version == "1.0" or coding.lower() != b"chunked"):
        return "Transfer-Encoding must be chunked alone, in HTTP/1.1"
    for name, _ in request.repeated:
        if name == b"host":
            return "more than one Host"
        if name == b"transfer-encoding":
            return "more than one Transfer-Encoding"
    return None


def without_offer(offer: Request) -> bytes:
    """Return the head of a request that offered to switch protocols, without the offer."""
    kept = [header for header in offer.all_headers() if header[0] not in _OFFER]
    if not offer.keep_alive:
        kept.append((b"connection", b"close"))
    return b"%b %b HTTP/1.%d\r\n%b\r\n" % (offer.method, offer.target, offer.minor, write_headers(kept))


class AnswerHead(Struct, eq=False):
    """Status and headers of a host's answer."""

    status: int
    headers: Headers
    named: dict[bytes, bytes]
    """The last value of each, by name."""


def status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


def write_headers(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def chunk(data: bytes) -> bytes:
    """Frame one chunk of a chunked body. ``data`` must not be empty: that would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"

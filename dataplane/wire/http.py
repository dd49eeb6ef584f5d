"""HTTP/1.1 heads: what a request is, which headers are hop-by-hop, how answers are written. Pure."""

from collections.abc import Iterable
from http import HTTPStatus

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

_OFFER = frozenset((b"upgrade", b"connection", b"http2-settings"))
_STATUS_LINES = {s.value: b"HTTP/1.1 %d %b\r\n" % (s.value, s.phrase.encode()) for s in HTTPStatus}


class Request:
    """One complete request of a client."""

    __slots__ = ("body", "headers", "keep_alive", "method", "minor", "received_at", "target")

    def __init__(self) -> None:
        self.method = b""
        self.target = b""
        self.minor = 1
        self.headers: Headers = []
        self.body = b""
        self.keep_alive = True
        self.received_at = 0.0

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of a header, or None."""
        for known, value in self.headers:
            if known == name:
                return value
        return None

    def header_values(self, name: bytes) -> list[bytes]:
        return [value for known, value in self.headers if known == name]


def head_fault(version: str, headers: Headers) -> str | None:
    """Return why a head is refused that the parser takes, or None: what two readers might cut or send differently.

    RFC 9112: one Host (3.2), no coding below HTTP/1.1 (6.1). Other codings than chunked would have to be undone here.
    """
    hosts = 0
    coding: bytes | None = None
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding":
            coding = value if coding is None else b"%b, %b" % (coding, value)
    if version not in ("1.1", "1.0"):
        return f"HTTP/{version} is not spoken here, HTTP/1.1 is"
    if hosts > 1:
        return "more than one Host"
    if coding is not None and (version == "1.0" or coding.lower() != b"chunked"):
        return "Transfer-Encoding must be chunked alone, in HTTP/1.1"
    return None


def without_offer(offer: Request) -> bytes:
    """Return the head of a request that offered to switch protocols, without the offer."""
    kept = [(name, value) for name, value in offer.headers if name not in _OFFER]
    if not offer.keep_alive:
        kept.append((b"connection", b"close"))
    return b"%b %b HTTP/1.%d\r\n%b\r\n" % (offer.method, offer.target, offer.minor, write_headers(kept))


def status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


def write_headers(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def chunk(data: bytes) -> bytes:
    """Frame one chunk of a chunked body. ``data`` must not be empty: that would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"

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


def status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


def write_headers(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def chunk(data: bytes) -> bytes:
    """Frame one chunk of a chunked body. ``data`` must not be empty: that would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"

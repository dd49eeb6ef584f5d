"""An independent reading of a client's bytes by RFC 9112, slow and strict: what the fuzzed front is judged by.

Written from the RFC alone, sharing nothing with the product or its parser. It says of every request in a stream either
what it is, or that it is none. Where the RFC lets a server choose to refuse, ``may_refuse`` is set and the request is
still read, so that a server that takes it is held to the one right reading.
"""

import re
from dataclasses import dataclass, field

Headers = list[tuple[bytes, bytes]]

TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_TARGET = re.compile(rb"[\x21-\x7e]+")
_SIZE = re.compile(rb"[0-9A-Fa-f]+")
_QUOTED = rb'"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"'
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_EXTENSIONS = re.compile(rb"[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_PLAIN_EXTENSIONS = re.compile(rb"(?:;%b(?:=(?:%b|%b))?)*" % (_TOKEN, _TOKEN, _QUOTED))
_BLANK_AFTER_CODING = re.compile(rb"\ntransfer-encoding:[^\r]*[ \t]\r\n", re.IGNORECASE)
_STEERING_TRAILERS = (b"content-length", b"transfer-encoding", b"connection", b"proxy-connection", b"upgrade")


@dataclass
class Reading:
    """One request."""

    method: bytes
    target: bytes
    headers: Headers
    body: bytes = b""
    keep_alive: bool = True
    may_refuse: bool = False
    """It is outside of what every server must take, or of this server's limits."""

    def values(self, name: bytes) -> list[bytes]:
        return [value for found, value in self.headers if found == name]


@dataclass
class Stream:
    """All that was read from one connection."""

    requests: list[Reading] = field(default_factory=list)
    end: str = "idle"
    """``idle``: nothing is left over; ``half``: a request has begun; ``malformed``; ``closed``: by the last request."""
    why: str = ""


@dataclass(frozen=True)
class Limits:
    """What the front may refuse although it is well formed."""

    head_bytes: int
    header_count: int
    body_bytes: int


class _Malformed(Exception):
    pass


class _Half(Exception):
    pass


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def left(self) -> bytes:
        return self.data[self.at :]

    def line(self) -> bytes:
        """Take a line that ends with CRLF. A CR or LF anywhere else is no line end (RFC 9112, 2.2: MAY)."""
        found = re.compile(rb"[\r\n]").search(self.data, self.at)
        if found is None or (found[0] == b"\r" and found.end() == len(self.data)):
            raise _Half
        if self.data[found.start() : found.start() + 2] != b"\r\n":
            raise _Malformed("a bare CR or LF")
        line = self.data[self.at : found.start()]
        self.at = found.start() + 2
        return line

    def take(self, count: int) -> bytes:
        if len(self.data) - self.at < count:
            raise _Half
        taken = self.data[self.at : self.at + count]
        self.at += count
        return taken


def read(data: bytes, limits: Limits) -> Stream:
    """Return what a strict server reads from these bytes."""
    stream, cursor = Stream(), _Cursor(data)
    while cursor.left:
        before = cursor.at
        try:
            # RFC 9112, 2.2: an empty line before a request line is passed over; more of them may be.
            empty = re.match(rb"[\r\n]*", cursor.left)
            cursor.take(len(empty[0]) if empty else 0)
            if not cursor.left:
                break
            request = _request(cursor, limits)
            request.may_refuse |= empty is not None and empty[0] not in (b"", b"\r\n")
        except _Half:
            stream.end = "half"
            break
        except _Malformed as error:
            stream.end, stream.why = "malformed", f"{error} after byte {before}"
            break
        stream.requests.append(request)
        if not request.keep_alive:
            stream.end = "closed"
            break
    return stream


def _request(cursor: _Cursor, limits: Limits) -> Reading:
    start = cursor.at
    method, target, version, is_odd = _start_line(cursor.line())
    headers = _fields(cursor)
    request = Reading(method, target, headers, may_refuse=is_odd)
    request.keep_alive = _keeps(request, version)
    request.may_refuse |= len(headers) > limits.header_count or cursor.at - start > limits.head_bytes
    request.may_refuse |= method == b"CONNECT" or not _is_known(method)
    # White space is allowed there, and the parser is stricter with a tab.
    request.may_refuse |= _BLANK_AFTER_CODING.search(cursor.data, start, cursor.at) is not None
    hosts = request.values(b"host")
    if len(hosts) > 1:
        raise _Malformed("two Hosts")
    # Nothing here depends on a Host, so a request without one may be read.
    request.may_refuse |= version == b"HTTP/1.1" and not hosts
    coding, lengths = request.values(b"transfer-encoding"), request.values(b"content-length")
    if coding:
        if lengths:
            raise _Malformed("a length and a coding")
        if version == b"HTTP/1.0" or [value.lower() for value in coding] != [b"chunked"]:
            raise _Malformed("a coding that is not chunked alone")
        request.body = _chunks(cursor, request, limits)
    elif lengths:
        if len(lengths) > 1 or not re.fullmatch(rb"[0-9]+", lengths[0]):
            raise _Malformed("a length that is no number")
        if int(lengths[0]) >= 2**64:
            raise _Malformed("a length past 64 bits")
        request.may_refuse |= int(lengths[0]) > limits.body_bytes
        request.body = cursor.take(int(lengths[0]))
    return request


def _start_line(line: bytes) -> tuple[bytes, bytes, bytes, bool]:
    """Return method, target, version, and whether a server may refuse the line (RFC 9112, 3)."""
    # Several spaces between the parts are no valid line, but there is one way to read it.
    parts = re.split(rb" +", line)
    if len(parts) != 3:
        raise _Malformed("no request line")
    method, target, version = parts
    if not TOKEN.fullmatch(method) or not _TARGET.fullmatch(target):
        raise _Malformed("an odd method or target")
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        # RTSP/1.0 and ICE/1.0 have the grammar of HTTP/1.0, and the parser reads them as such.
        if version not in (b"RTSP/1.0", b"ICE/1.0"):
            raise _Malformed("another version")
        return method, target, b"HTTP/1.0", True
    is_plain = target.startswith(b"/") and line.count(b" ") == 2 and not set(target) & set(b'"<>\\^`{|}#')
    return method, target, version, not is_plain


def _fields(cursor: _Cursor) -> Headers:
    headers = []
    while line := cursor.line():
        name, colon, value = line.partition(b":")
        # Names that end in a space and lines that are folded come here too.
        if not colon or not TOKEN.fullmatch(name):
            raise _Malformed("no header line")
        value = value.strip(b" \t")
        if not _VALUE.fullmatch(value):
            raise _Malformed("a control character in a header")
        headers.append((name.lower(), value))
    return headers


def _keeps(request: Reading, version: bytes) -> bool:
    options = {option.strip(b" \t").lower() for value in request.values(b"connection") for option in value.split(b",")}
    if b"close" in options:
        return False
    return version == b"HTTP/1.1" or b"keep-alive" in options


def _is_known(method: bytes) -> bool:
    return method in (b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH")


def _chunks(cursor: _Cursor, request: Reading, limits: Limits) -> bytes:
    body = b""
    while True:
        line = cursor.line()
        size = _SIZE.match(line)
        if size is None:
            raise _Malformed("no chunk size")
        extensions = line[size.end() :]
        if not _EXTENSIONS.fullmatch(extensions):
            raise _Malformed("odd chunk extensions")
        # What an extension says is passed over, so there is one way to read a malformed one.
        request.may_refuse |= not _PLAIN_EXTENSIONS.fullmatch(extensions)
        if (length := int(size[0], 16)) >= 2**64:
            raise _Malformed("a chunk size past 64 bits")
        if length == 0:
            break
        body += cursor.take(length)
        request.may_refuse |= len(body) > limits.body_bytes
        if (end := cursor.take(2)) != b"\r\n":
            raise _Malformed(f"{end!r} after a chunk")
    trailers = _fields(cursor)
    # Framing in a trailer says nothing; that somebody sends it is reason enough to refuse.
    request.may_refuse |= any(name in _STEERING_TRAILERS for name, _ in trailers)
    request.may_refuse |= sum(len(name) + len(value) + 4 for name, value in trailers) > limits.head_bytes // 2
    return body

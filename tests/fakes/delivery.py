"""What a fake model host writes down about a request that reached it, and the parser that reads requests off the wire.

The parser is strict about framing: what a model server could read in two ways is written into the host's faults.
"""

from dataclasses import dataclass, field

HEAD_BYTES_MAX = 256 * 1024
SINGLE = (b"host", b"content-length", b"content-type", b"transfer-encoding", b"authorization")


@dataclass
class Delivery:
    """One request as it arrived. Times are time.monotonic() seconds; None: has not happened."""

    host: str
    connection: int
    """Number of the connection that brought it, counted from 1 for each host."""
    method: str
    target: str
    version: str
    headers: list[tuple[str, bytes]]
    """Names and values as they were sent, in order, repeats included."""
    raw_head: bytes
    opened: float
    body: bytes = b""
    arrived: float | None = None
    """The whole body is here."""
    closed: float | None = None
    """The host has nothing more to do for it."""
    peer_left: float | None = None
    """The other side closed the connection before the answer was over."""
    bytes_sent: int = 0
    """Bytes of the answer handed to the kernel, or waiting in at most 64 KiB in front of it."""
    in_flight: int = 0
    """Requests the host was working on when this one started, itself included."""

    def header(self, name: str) -> bytes | None:
        """Return the first value of a header, or None."""
        return next(iter(self.all(name)), None)

    def all(self, name: str) -> list[bytes]:
        """Return every value of a header, in order."""
        return [value for found, value in self.headers if found.lower() == name.lower()]


class BadRequest(ValueError):
    """The bytes are no HTTP request."""


@dataclass
class RequestReader:
    """Bytes in, deliveries out; one per connection."""

    host: str
    connection: int
    buffer: bytearray = field(default_factory=bytearray)
    current: Delivery | None = None
    faults: list[str] = field(default_factory=list)
    _need: int | None = None
    _chunks: list[bytes] = field(default_factory=list)

    def read_head(self, now: float) -> Delivery | None:
        """Take a request head off the buffer. None: not all of it is here."""
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self.buffer) > HEAD_BYTES_MAX:
                raise BadRequest("request head without an end")
            return None
        raw = bytes(self.buffer[: end + 4])
        del self.buffer[: end + 4]
        lines = raw[:-4].split(b"\r\n")
        parts = lines[0].split(b" ")
        if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
            raise BadRequest(f"request line {lines[0]!r}")
        headers = []
        for line in lines[1:]:
            name, colon, value = line.partition(b":")
            if not colon or not name or name != name.strip():
                raise BadRequest(f"header line {line!r}")
            headers.append((name.decode("latin-1"), value.strip(b" \t")))
        method, target, version = (part.decode("latin-1") for part in parts)
        self.current = Delivery(self.host, self.connection, method, target, version, headers, raw, now)
        self._frame(self.current)
        return self.current

    def _frame(self, delivery: Delivery) -> None:
        for name in SINGLE:
            if len(delivery.all(name.decode())) > 1:
                self.faults.append(f"{delivery.target}: repeated {name.decode()}")
        lengths, codings = delivery.all("content-length"), delivery.all("transfer-encoding")
        if lengths and codings:
            self.faults.append(f"{delivery.target}: both Content-Length and Transfer-Encoding")
        if not delivery.header("host"):
            self.faults.append(f"{delivery.target}: no Host")
        self._chunks = []
        self._need = None if codings else int(lengths[0]) if lengths else 0

    def read_body(self, now: float) -> Delivery | None:
        """Take the body of the current request off the buffer. None: not all of it is here."""
        delivery = self.current
        assert delivery is not None
        if self._need is None:
            if not self._read_chunks():
                return None
            delivery.body = b"".join(self._chunks)
        else:
            if len(self.buffer) < self._need:
                return None
            delivery.body = bytes(self.buffer[: self._need])
            del self.buffer[: self._need]
        delivery.arrived = now
        self.current = None
        return delivery

    def _read_chunks(self) -> bool:
        while True:
            end = self.buffer.find(b"\r\n")
            if end < 0:
                return False
            try:
                size = int(bytes(self.buffer[:end]).split(b";")[0], 16)
            except ValueError:
                raise BadRequest(f"chunk size {bytes(self.buffer[:end])!r}") from None
            if len(self.buffer) < end + 2 + size + 2:
                return False
            if self.buffer[end + 2 + size : end + 4 + size] != b"\r\n":
                raise BadRequest("chunk without its line end")
            self._chunks.append(bytes(self.buffer[end + 2 : end + 2 + size]))
            del self.buffer[: end + 4 + size]
            if size == 0:
                return True

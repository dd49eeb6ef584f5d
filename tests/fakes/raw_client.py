"""An HTTP/1.1 client on a plain socket, for tests where the bytes matter or a connection is left in the middle."""

import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

Headers = Iterable[tuple[str, str | bytes]]
LIMIT_SECONDS = 10.0


class ConnectionEnded(Exception):
    """The other side closed the connection where more was to come."""


@dataclass
class Response:
    """One response. ``body`` is what the framing says; for a response ended by close, all there was."""

    status: int
    reason: str
    version: str
    headers: list[tuple[str, bytes]]
    raw_head: bytes
    body: bytes = b""
    trailers: tuple[bytes, ...] = ()

    def header(self, name: str) -> str | None:
        """Return the first value of a header, or None."""
        return next(iter(self.all(name)), None)

    def all(self, name: str) -> list[str]:
        """Return every value of a header, in order."""
        return [value.decode("latin-1") for found, value in self.headers if found.lower() == name.lower()]

    @property
    def is_chunked(self) -> bool:
        return self.header("transfer-encoding") == "chunked"


def request_bytes(
    target: str, body: bytes = b"", headers: Headers = (), method: str = "POST", version: str = "HTTP/1.1"
) -> bytes:
    """Return a request with Host and Content-Length, unless ``headers`` has its own framing."""
    given = [(name, value if isinstance(value, bytes) else value.encode("latin-1")) for name, value in headers]
    names = {name.lower() for name, _ in given}
    if "host" not in names:
        given.insert(0, ("Host", b"warmroute.test"))
    if not names & {"content-length", "transfer-encoding"}:
        given.append(("Content-Length", b"%d" % len(body)))
    lines = [f"{method} {target} {version}".encode("latin-1")]
    lines += [name.encode("latin-1") + b": " + value for name, value in given]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class RawClient:
    """One connection. Every read fails with TimeoutError after LIMIT_SECONDS without a byte."""

    def __init__(self, port: int, *, address: str = "127.0.0.1", receive_buffer: int | None = None) -> None:
        self._socket = socket.socket()
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(LIMIT_SECONDS)
        self._socket.connect((address, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        # A test that failed in the middle should show its own failure, not a warning about its socket.
        self._socket.close()

    def close(self) -> None:
        """Close (FIN)."""
        self._socket.close()

    def shut(self) -> None:
        """Say that nothing more will be sent, and stay to read."""
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Throw the connection away (RST)."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def ask(self, target: str, body: bytes = b"", headers: Headers = (), method: str = "POST") -> Self:
        """Send one request and leave its answer to be read."""
        self.send(request_bytes(target, body, headers, method))
        return self

    def request(self, target: str, body: bytes = b"", headers: Headers = (), method: str = "POST") -> Response:
        """Send one request and read its answer whole."""
        self.ask(target, body, headers, method)
        return self.read(method)

    def read_head(self) -> Response:
        """Read the next head that is not 100 Continue."""
        head = self._until(b"\r\n\r\n")
        lines = head[:-4].split(b"\r\n")
        version, _, rest = lines[0].decode("latin-1").partition(" ")
        status, _, reason = rest.partition(" ")
        pairs = [line.partition(b":") for line in lines[1:]]
        headers = [(name.decode("latin-1"), value.strip()) for name, _, value in pairs]
        found = Response(int(status), reason, version, headers, head)
        return self.read_head() if found.status == 100 else found

    def read(self, method: str = "POST") -> Response:
        """Read one response whole."""
        response = self.read_head()
        if method == "HEAD" or response.status in (204, 304):
            return response
        if response.is_chunked:
            response.body = b"".join(self.chunks(response))
        elif (length := response.header("content-length")) is not None:
            response.body = self.exactly(int(length))
        else:
            response.body = self.rest()
        return response

    def outcome(self) -> int | None:
        """Read one response to its end, whole or not, and return its status; None when there was none at all."""
        status = None
        try:
            head = self.read_head()
            status = head.status
            list(self.chunks(head)) if head.is_chunked else self.exactly(int(head.header("content-length") or 0))
        except ConnectionEnded:
            pass
        return status

    def chunks(self, response: Response | None = None) -> Iterator[bytes]:
        """Yield the chunks of a chunked body as they were framed, to the last one."""
        while True:
            size = int(self._until(b"\r\n").split(b";")[0], 16)
            if size == 0:
                break
            chunk = self.exactly(size)
            assert self.exactly(2) == b"\r\n"
            yield chunk
        trailers = []
        while (line := self._until(b"\r\n")) != b"\r\n":
            trailers.append(line[:-2])
        if response is not None:
            response.trailers = tuple(trailers)

    def exactly(self, count: int) -> bytes:
        """Read that many bytes."""
        while len(self._buffer) < count:
            self._more()
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def until(self, mark: bytes) -> bytes:
        """Read up to and with a mark."""
        return self._until(mark)

    def rest(self) -> bytes:
        """Read to the end of the connection."""
        while True:
            try:
                self._more()
            except ConnectionEnded:
                data = bytes(self._buffer)
                self._buffer.clear()
                return data

    def is_ended(self, within_seconds: float = LIMIT_SECONDS) -> bool:
        """Return whether the other side closes within that time without sending anything more."""
        assert not self._buffer, bytes(self._buffer[:200])
        self._socket.settimeout(within_seconds)
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        finally:
            self._socket.settimeout(LIMIT_SECONDS)

    def has_data(self, within_seconds: float) -> bool:
        """Return whether a byte, or the end, is here within that time."""
        if self._buffer:
            return True
        self._socket.settimeout(within_seconds)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return False
        finally:
            self._socket.settimeout(LIMIT_SECONDS)
        return True

    def _until(self, mark: bytes) -> bytes:
        while (at := self._buffer.find(mark)) < 0:
            self._more()
        data = bytes(self._buffer[: at + len(mark)])
        del self._buffer[: at + len(mark)]
        return data

    def _more(self) -> None:
        try:
            data = self._socket.recv(262_144)
        except ConnectionResetError:
            data = b""
        if not data:
            raise ConnectionEnded(bytes(self._buffer[-200:]))
        self._buffer += data

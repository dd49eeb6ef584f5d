"""A client's connection that writes and reads in pieces of any size, at any pace, and may leave at any moment."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from random import Random

from tests.fakes.raw_client import ConnectionEnded

READ_BYTES = 65_536
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Pieces:
    """How a client cuts what it writes and reads. Sizes in bytes, ``pause`` in seconds after each piece."""

    write: int = 0
    """At most so much at once; 0: everything."""
    read: int = READ_BYTES
    pause: float = 0.0
    dice: Random | None = None
    """With dice, sizes are drawn between 1 and the most, and the pause comes now and then."""

    def size(self, most: int) -> int:
        return most if self.dice is None else self.dice.randint(1, most)

    async def rest(self) -> None:
        if self.dice is None:
            if self.pause:
                await asyncio.sleep(self.pause)
        else:
            await asyncio.sleep(self.pause if self.dice.random() < 0.1 else 0)


@dataclass(frozen=True)
class Head:
    """Of an answer; header names in lower case, the last value of each."""

    status: int
    headers: dict[str, str]

    @property
    def length(self) -> int | None:
        """Of the body; None: chunked, or to the end of the connection."""
        found = self.headers.get("content-length")
        return None if found is None else int(found)

    @property
    def is_chunked(self) -> bool:
        return self.headers.get("transfer-encoding") == "chunked"

    @property
    def keeps_alive(self) -> bool:
        return self.headers.get("connection") != "close"


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pieces: Pieces) -> None:
        self._reader, self._writer, self.pieces = reader, writer, pieces
        self._buffer = bytearray()
        self.idle_since = 0.0

    @classmethod
    async def open(cls, port: int, pieces: Pieces = Pieces(), receive_buffer: int | None = None) -> "Client":
        """Connect to 127.0.0.1; ``receive_buffer``: of the kernel, in bytes."""
        connecting = socket.socket()
        connecting.setblocking(False)
        if receive_buffer is not None:
            connecting.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await asyncio.get_running_loop().sock_connect(connecting, ("127.0.0.1", port))
        except BaseException:
            connecting.close()
            raise
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The reader stops the socket at twice its limit, so a client that reads slowly is one for the kernel, too.
        return cls(*await asyncio.open_connection(sock=connecting, limit=READ_BYTES // 2), pieces)

    def close(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        """Throw the connection away (RST)."""
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._writer.transport.abort()

    async def send(self, data: bytes) -> None:
        """Write all of it, cut in pieces."""
        if not self.pieces.write:
            self._writer.write(data)
        else:
            at = 0
            while at < len(data):
                end = at + self.pieces.size(self.pieces.write)
                self._writer.write(data[at:end])
                at = end
                await self.pieces.rest()
        await self._writer.drain()

    async def head(self) -> Head:
        """Read the head of the next answer. Raises ConnectionEnded."""
        lines = (await self._until(b"\r\n\r\n"))[:-4].decode("latin-1").split("\r\n")
        pairs = [line.partition(":") for line in lines[1:]]
        found = Head(int(lines[0].split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs})
        return await self.head() if found.status == 100 else found

    async def parts(self, head: Head) -> AsyncIterator[bytes]:
        """Yield the body in pieces. Raises ConnectionEnded where more was to come."""
        if head.is_chunked:
            while size := int(await self._until(b"\r\n"), 16):
                async for piece in self._exactly(size):
                    yield piece
                await self._end_of_line()
            await self._end_of_line()
        elif head.length is None:
            raise AssertionError("an answer without framing")
        else:
            async for piece in self._exactly(head.length):
                yield piece

    async def _end_of_line(self) -> None:
        found = await self._until(b"\r\n")
        assert found == b"\r\n", found

    async def _exactly(self, count: int) -> AsyncIterator[bytes]:
        while count:
            if not self._buffer:
                await self._more()
            piece = bytes(self._buffer[:count])
            del self._buffer[:count]
            count -= len(piece)
            yield piece

    async def _until(self, mark: bytes) -> bytes:
        while (at := self._buffer.find(mark)) < 0:
            await self._more()
        found = bytes(self._buffer[: at + len(mark)])
        del self._buffer[: at + len(mark)]
        return found

    async def _more(self) -> None:
        await self.pieces.rest()
        try:
            data = await self._reader.read(self.pieces.size(self.pieces.read))
        except OSError:
            data = b""
        if not data:
            raise ConnectionEnded(bytes(self._buffer[-200:]))
        self._buffer += data

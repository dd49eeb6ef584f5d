"""The three model hosts of host.c in Python, for machines without a C compiler: the same answers, more CPU.

``python -m benchmarks.proxy.python_host``: listens on three free loopback ports and prints them.
"""

import asyncio
import re
import socket
from typing import cast

import uvloop

from benchmarks.proxy.answers import GET_ANSWER, JSON_ANSWER, STREAM_PARTS, is_stream

HOSTS = 3
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.I)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.I)


class Connection(asyncio.Protocol):
    """Answers each whole request at once."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while size := whole(self._data):
            request = self._data[:size]
            del self._data[:size]
            if request.startswith(b"GET "):
                self._transport.write(GET_ANSWER)
            elif is_stream(request):
                for part in STREAM_PARTS:
                    self._transport.write(part)
            else:
                self._transport.write(JSON_ANSWER)


def whole(data: bytearray) -> int:
    """Return the size of the first whole request, or 0."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return 0
    head = bytes(data[: end + 2])
    if match := _LENGTH.search(head):
        size = end + 4 + int(match[1])
        return size if len(data) >= size else 0
    if _CHUNKED.search(head):
        last = data.find(b"\r\n0\r\n\r\n", end + 2)
        return last + 7 if last >= 0 else 0
    return end + 4


async def main() -> None:
    """Serve until killed."""
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(Connection, "127.0.0.1", 0, backlog=1024) for _ in range(HOSTS)]
    for server in servers:
        print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())

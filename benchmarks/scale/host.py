"""All model hosts in one process: ``python -m benchmarks.scale.host`` listens on a loopback port and prints it.

Each instance is a path below it (``/i17``), so a worker has connections to each of its own; ``/down`` fails its pings.
A request that differs in any byte from what clients send is answered 500. Streams send an event a second each, spread
evenly over the second.
"""

import asyncio
import re
import socket
from random import Random
from typing import cast

import uvloop

from benchmarks.scale import messages

SLOTS = 100
"""Of a second: streams are sent to in turn, those of a slot together."""
_HEAD = re.compile(rb"(GET|POST) /(\w+)(/[\w/]+) HTTP/1\.1\r\n")
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.I)
_JSON = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_LAST = b"0\r\n\r\n"


class Stream:
    """One open stream."""

    __slots__ = ("_events", "_id", "_sent", "_transport")

    def __init__(self, transport: asyncio.Transport, id: int, events: int) -> None:
        self._transport, self._id, self._events, self._sent = transport, id, events, 0

    def next(self) -> bool:
        """Send the next event; return whether there are more."""
        data = messages.event(self._id, self._sent)
        self._sent += 1
        is_last = self._sent == self._events
        self._transport.write(b"%x\r\n%b\r\n%b" % (len(data), data, _LAST if is_last else b""))
        return not is_last and not self._transport.is_closing()


class Clock:
    """Sends to all streams, each once a second."""

    def __init__(self) -> None:
        self._slots: list[list[Stream]] = [[] for _ in range(SLOTS)]
        self._dice = Random(1)  # noqa: S311 - spreads load, guards nothing

    def add(self, stream: Stream) -> None:
        self._slots[self._dice.randrange(SLOTS)].append(stream)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        began, tick = loop.time(), 0
        while True:
            await asyncio.sleep(began + tick / SLOTS - loop.time())
            slot = tick % SLOTS
            self._slots[slot] = [stream for stream in self._slots[slot] if stream.next()]
            tick += 1


class Connection(asyncio.Protocol):
    """Answers each whole request at once, or begins its stream."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._data = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        data = self._data + data
        end = data.find(b"\r\n\r\n")
        length = _LENGTH.search(data, 0, end + 2) if end >= 0 else None
        size = end + 4 + (int(length[1]) if length else 0)
        if end < 0 or len(data) < size:
            self._data = data
            return
        self._data = data[size:]
        self._transport.write(self._answer(data[: end + 4], data[end + 4 : size]))

    def _answer(self, head: bytes, body: bytes) -> bytes:
        asked = _HEAD.match(head)
        if asked is None:
            return _JSON % (b"400 Bad Request", 2, b"{}")
        if asked[1] == b"GET":
            return _JSON % (b"503 Service Unavailable" if asked[2] == b"down" else b"200 OK", 2, b"{}")
        try:
            turn, events = messages.read_body(body)
        except ValueError:
            return _JSON % (b"500 Internal Server Error", 2, b"{}")
        if events:
            self._clock.add(Stream(self._transport, turn, events))
            return _STREAM_HEAD
        return _JSON % (b"200 OK", messages.ANSWER_BYTES, messages.answer(turn, asked[2]))


async def main() -> None:
    """Serve until killed."""
    loop = asyncio.get_running_loop()
    clock = Clock()
    server = await loop.create_server(lambda: Connection(clock), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await clock.run()


if __name__ == "__main__":
    uvloop.run(main())

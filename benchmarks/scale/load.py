"""The load, a process of its own: ``python -m benchmarks.scale.load JSON`` does what the JSON says and prints RESULT.

Requests in a closed loop, open streams, or single requests at a steady rate. Every byte that comes back is compared
with what it must be; the first one that differs ends the run. CPU of the processes under test is read here, at the
very ends of each window.
"""

import asyncio
import socket
import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter, process_time
from typing import cast

import httptools
import msgspec
import uvloop
from msgspec import Struct

from benchmarks.proxy.processes import cpu_seconds
from benchmarks.scale import messages

TARGET = b"/endpoints/%b/openai/v1/chat/completions"
_HEAD = b"POST %b HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


class Closed(Struct, tag="closed", frozen=True):
    """``connections`` each with one request at a time, over ``endpoints`` and ``prefixes`` in turn."""

    port: int
    connections: int
    endpoints: list[str]
    prefixes: int
    """0: each request has one of its own."""
    windows: int
    seconds: float
    """Of a window."""
    warm_up: int
    """Requests before the first."""
    workers: list[int]
    """Process ids whose CPU is read."""
    redis: int


class Streams(Struct, tag="streams", frozen=True):
    """``count`` streams of ``events`` each, opened at a rate of ``per_second``. Says OPEN when all are."""

    port: int
    endpoint: str
    count: int
    events: int
    per_second: float


class Steady(Struct, tag="steady", frozen=True):
    """``per_second`` single requests through the data plane, and as many to the host without it, by turns."""

    port: int
    host: int
    endpoint: str
    per_second: float
    windows: int
    seconds: float


class Window(Struct, frozen=True):
    """Of a closed loop."""

    requests: int
    seconds: float
    worker_seconds: float
    redis_seconds: float
    load_seconds: float


class Served(Struct, frozen=True):
    """Of a closed loop. ``reached``: instances that answered in all windows together."""

    windows: list[Window]
    reached: int


class Streamed(Struct, frozen=True):
    """Every stream came whole and exact, or there is no result."""

    streams: int
    events: int
    bytes: int


class Probed(Struct, frozen=True):
    """Latencies in ms, a list for each window: through the data plane, and without it."""

    through: list[list[float]]
    direct: list[list[float]]


class Wrong(Exception):
    """An answer is not what it must be."""


class Caller(asyncio.Protocol):
    """One connection for requests that are answered whole, one at a time. ``done`` is called with the instance."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._data = b""
        self._turn = 0
        self._done: Callable[[Caller, bytes], None]
        self._transport: asyncio.Transport
        self.sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes, turn: int, done: "Callable[[Caller, bytes], None]") -> None:
        self._turn, self._done = turn, done
        self.sent_at = perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._data:
            data = self._data + data
        end = data.find(b"\r\n\r\n") + 4
        if end < 4 or (len(data) < end + messages.ANSWER_BYTES and data.startswith(b"HTTP/1.1 200 ")):
            self._data = data
            return
        self._data = b""
        try:
            if not data.startswith(b"HTTP/1.1 200 "):
                raise Wrong(f"answered {data[:300]!r}")
            instance = messages.read_answer(data[end:], self._turn)
        except (Wrong, ValueError) as error:
            self._failed(error)
            return
        self._done(self, instance)

    def connection_lost(self, error: Exception | None) -> None:
        self._failed(Wrong(f"a connection ended ({error})"))


class Loop:
    """Runs a closed loop. Owner of its turns and counts."""

    def __init__(self, plan: Closed) -> None:
        self._plan = plan
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._heads = [_HEAD % (TARGET % name.encode(), messages.BODY_BYTES) for name in plan.endpoints]
        self._prefixes = [messages.prefix(number) for number in range(plan.prefixes)]
        self._turn = 0
        self._served = 0
        self._reached: set[bytes] = set()

    async def run(self) -> Served:
        loop, plan = asyncio.get_running_loop(), self._plan
        for _ in range(plan.connections):
            _, caller = await loop.create_connection(lambda: Caller(self._failed), "127.0.0.1", plan.port)
            self._next(caller)
        while self._served < plan.warm_up:
            await self._wait(0.05)
        self._reached.clear()
        windows = []
        for _ in range(plan.windows):
            before = self._accounts()
            await self._wait(plan.seconds)
            after = self._accounts()
            served, *spent = (b - a for a, b in zip(before, after, strict=True))
            windows.append(Window(int(served), *spent))
        return Served(windows, len(self._reached))

    async def _wait(self, seconds: float) -> None:
        await asyncio.wait([self._over], timeout=seconds)
        if self._over.done():
            self._over.result()

    def _accounts(self) -> tuple[float, ...]:
        plan = self._plan
        workers = sum(map(cpu_seconds, plan.workers))
        return self._served, perf_counter(), workers, cpu_seconds(plan.redis), process_time()

    def _failed(self, error: Exception) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    def _next(self, caller: Caller) -> None:
        self._turn = turn = self._turn + 1
        number = turn % self._plan.prefixes if self._prefixes else turn
        prefix = self._prefixes[number] if self._prefixes else messages.prefix(number)
        head = self._heads[turn % len(self._heads)]
        caller.ask(head + messages.body(prefix, turn), turn, self._done)

    def _done(self, caller: Caller, instance: bytes) -> None:
        self._served += 1
        self._reached.add(instance)
        self._next(caller)


class Reader(asyncio.Protocol):
    """One stream, compared event by event as it comes."""

    __slots__ = ("_data", "_left", "_parser", "_request", "_stream", "_tell", "_transport", "bytes", "seen")

    def __init__(self, stream: int, request: bytes, events: int, tell: "Callable[[Reader, str], None]") -> None:
        self._stream, self._request, self._left, self._tell = stream, request, events, tell
        self._parser = httptools.HttpResponseParser(self)
        self._data = b""
        self._transport: asyncio.Transport
        self.seen = self.bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)
        self._request = b""

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() != 200:
            self._tell(self, f"answered {self._parser.get_status_code()}")

    def on_body(self, data: bytes) -> None:
        self._data += data
        while self._data.startswith(expected := messages.event(self._stream, self.seen)):
            self._data = self._data[len(expected) :]
            self.bytes += len(expected)
            self.seen += 1
            if self.seen == 1:
                self._tell(self, "open")
        if self._data and not expected.startswith(self._data):
            self._tell(self, f"stream {self._stream}, event {self.seen}: {self._data[:200]!r}")

    def on_message_complete(self) -> None:
        whole = self.seen == self._left and not self._data
        self._tell(self, "whole" if whole else f"stream {self._stream} ended after {self.seen} of {self._left} events")
        self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._tell(self, "lost")


def _same(reader: Reader) -> Reader:
    return reader


async def stream(plan: Streams) -> Streamed:
    """Open all streams and read each to its end. Raises Wrong for the first byte that is not as sent."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    counts = {"open": 0, "whole": 0}
    done: set[Reader] = set()

    def tell(reader: Reader, what: str) -> None:
        if what == "lost" and reader in done:
            return
        if what not in counts:
            if not over.done():
                over.set_exception(Wrong(what))
            return
        counts[what] += 1
        if what == "whole":
            done.add(reader)
            if counts["whole"] == plan.count and not over.done():
                over.set_result(None)
        elif counts["open"] == plan.count:
            print("OPEN", flush=True)

    head = _HEAD % (TARGET % plan.endpoint.encode(), messages.BODY_BYTES)
    began = loop.time()
    for number in range(plan.count):
        await asyncio.sleep(began + number / plan.per_second - loop.time())
        request = head + messages.body(messages.prefix(number), number, plan.events)
        reader = Reader(number, request, plan.events, tell)
        await loop.create_connection(partial(_same, reader), "127.0.0.1", plan.port)
        if over.done():
            break
    await over
    return Streamed(len(done), sum(reader.seen for reader in done), sum(reader.bytes for reader in done))


async def probe(plan: Steady) -> Probed:
    """Send single requests at a steady rate, whether or not earlier ones were answered."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    found: tuple[list[list[float]], list[list[float]]] = ([], [])
    idle: tuple[list[Caller], list[Caller]] = ([], [])
    targets = (_HEAD % (TARGET % plan.endpoint.encode(), messages.BODY_BYTES),
               _HEAD % (b"/p0/v1/chat/completions", messages.BODY_BYTES))  # fmt: skip

    def failed(error: Exception) -> None:
        if not over.done():
            over.set_exception(error)

    async def one(way: int, turn: int, window: int) -> None:
        port = (plan.port, plan.host)[way]
        if not idle[way]:
            _, caller = await loop.create_connection(lambda: Caller(failed), "127.0.0.1", port)
        else:
            caller = idle[way].pop()

        def done(caller: Caller, instance: bytes) -> None:
            if window >= 0:
                found[way][window].append(1e3 * (perf_counter() - caller.sent_at))
            idle[way].append(caller)

        caller.ask(targets[way] + messages.body(messages.prefix(turn % 100), turn), turn, done)

    per_window = int(plan.per_second * plan.seconds)
    for found_way in found:
        found_way.extend([] for _ in range(plan.windows))
    began, waiting = loop.time(), set[asyncio.Task[None]]()
    # One second first that does not count: connections are made.
    for turn in range(-int(plan.per_second), per_window * plan.windows):
        await asyncio.sleep(began + turn / plan.per_second + 1 - loop.time())
        for way in (0, 1):
            task = loop.create_task(one(way, turn + 1_000_000, turn // per_window if turn >= 0 else -1))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        if over.done():
            break
    deadline = loop.time() + 1
    while (late := any(len(window) < per_window for way in found for window in way)) and loop.time() < deadline:
        await asyncio.wait([over], timeout=0.01)
        if over.done():
            break
    if over.done():
        over.result()
    if late:
        raise Wrong(f"answered {[[len(window) for window in way] for way in found]} of {per_window} each")
    return Probed(*found)


async def main(plan: Closed | Streams | Steady) -> Served | Streamed | Probed:
    if isinstance(plan, Closed):
        return await Loop(plan).run()
    return await (stream(plan) if isinstance(plan, Streams) else probe(plan))


if __name__ == "__main__":
    asked = msgspec.json.decode(sys.argv[1], type=Closed | Streams | Steady)
    print("RESULT", msgspec.json.encode(uvloop.run(main(asked))).decode(), flush=True)

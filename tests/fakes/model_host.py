"""A scriptable model host on a real socket: the one fake of the product's tests, at their outermost seam.

Raw asyncio, so that it can misbehave byte by byte. Hosts live on a thread of their own with their own loop; everything
public may be called from any thread, from plain and from async tests.
"""

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from tests.fakes.answers import Answer, Gate, Script, Step, echo
from tests.fakes.delivery import BadRequest, Delivery, RequestReader

Result = TypeVar("Result")
RESET = struct.pack("ii", 1, 0)


class HostThread:
    """The thread and loop on which model hosts run."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="model hosts", daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., Result], *args: Any) -> Result:
        """Run a plain function on the loop and return its result."""

        async def run() -> Result:
            return function(*args)

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    def stop(self) -> None:
        """End what still runs on the loop, the loop and the thread."""

        async def cancel() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(cancel(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


class ModelHost:
    """One model host. Answers ``GET ping_path`` with ``ping``, and everything else by script.

    ``queue`` holds scripts for the next requests, one each; ``answer`` is for all others.
    """

    def __init__(self, thread: HostThread, name: str = "host", *, address: str = "127.0.0.1") -> None:
        self.name = name
        self.answer: Script = echo
        self.queue: deque[Script] = deque()
        self.ping: Script = Answer(body=b"")
        self.ping_path = "/ping"
        self.pings: list[Delivery] = []
        self.deliveries: list[Delivery] = []
        """Every request but pings, from the moment its head is here."""
        self.faults: list[str] = []
        """What was wrong with the requests themselves; a test of the product expects none."""
        self.in_flight = 0
        self.peak = 0
        self.connections_made = 0
        self._thread = thread
        self._connections: set[_Connection] = set()
        self._listener: socket.socket | None = None
        self._taking: set[asyncio.Task[None]] = set()
        self._is_dead = False
        # Bound for the host's whole life and never listening: nobody else gets the port while the host is down.
        self._reservation = socket.socket()
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reservation.bind((address, 0))
        self.address, self.port = self._reservation.getsockname()
        self.start()

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}"

    @property
    def open_connections(self) -> int:
        """Connections that are open now, idle ones included."""
        return len(self._connections)

    @property
    def bodies(self) -> list[bytes]:
        """Bodies of the requests that arrived whole, in order of arrival of their heads."""
        return [delivery.body for delivery in list(self.deliveries) if delivery.arrived is not None]

    def start(self) -> None:
        """Take connections, on the same port as ever."""
        if self._listener is None:
            self._is_dead = False
            self._thread.call(self._listen, 1024)

    def refuse(self) -> None:
        """Refuse new connections; open ones go on."""
        self._thread.call(self._shut)

    def stall(self) -> None:
        """Leave new connections unaccepted: one gets into the kernel's queue, later ones are not answered at all."""
        self._thread.call(self._shut)
        self._thread.call(self._listen, None)

    def die(self) -> None:
        """Refuse new connections and throw away the open ones, as when the process is killed."""
        self._thread.call(self._shut)
        self._is_dead = True
        self.drop_connections(reset=True)

    def drop_connections(self, *, reset: bool = False, idle_only: bool = False) -> None:
        """Close open connections by FIN or RST."""
        self._thread.call(self._drop, reset, idle_only)

    def close(self) -> None:
        """End the host and give its port back."""
        self.die()
        self._reservation.close()

    def hold(self, before_head: bool = True, answer: Answer | None = None) -> Gate:
        """Hold every later request until the returned gate opens: before the head, or after head and first chunk."""
        gate = Gate()
        if before_head:
            self.answer = _held(gate, answer or echo)
        else:
            steps: Sequence[Step] = [b"data: first\n\n", gate, b"data: last\n\n"]
            self.answer = Answer(body=steps, headers=(("Content-Type", "text/event-stream"),))
        return gate

    def clear(self) -> None:
        """Forget what was written down; scripts stay."""

        def forget() -> None:
            self.deliveries.clear()
            self.pings.clear()
            self.peak = self.in_flight

        self._thread.call(forget)

    def _listen(self, backlog: int | None) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind((self.address, self.port))
        listener.listen(0 if backlog is None else backlog)
        self._listener = listener
        if backlog is not None:
            self._thread.loop.add_reader(listener.fileno(), self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        """Take one connection in one step: a coroutine that is cancelled just then would lose it, open."""
        try:
            connected, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        connected.setblocking(False)
        # asyncio does this only for sockets that were made with the protocol's number.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Small, so that what was sent is what the other side took and not what this machine keeps for it.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 256 * 1024)
        taking = self._thread.loop.create_task(self._take(connected))
        self._taking.add(taking)
        taking.add_done_callback(self._taking.discard)

    async def _take(self, connected: socket.socket) -> None:
        loop = self._thread.loop
        with contextlib.suppress(OSError):
            await loop.connect_accepted_socket(lambda: _Connection(self, loop), connected)

    def _shut(self) -> None:
        if self._listener is not None:
            self._thread.loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def _drop(self, reset: bool, idle_only: bool) -> None:
        for connection in list(self._connections):
            if not idle_only or connection.is_idle:
                connection.reset() if reset else connection.close()

    def _script(self, delivery: Delivery) -> Script:
        if delivery.method == "GET" and delivery.target == self.ping_path:
            return self.ping
        return self.queue.popleft() if self.queue else self.answer

    def _opened(self, delivery: Delivery) -> None:
        is_ping = delivery.method == "GET" and delivery.target == self.ping_path
        (self.pings if is_ping else self.deliveries).append(delivery)

    def _started(self, delivery: Delivery) -> None:
        if delivery.method == "POST":
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
            delivery.in_flight = self.in_flight

    def _ended(self, delivery: Delivery) -> None:
        if delivery.closed is not None:
            return
        delivery.closed = time.monotonic()
        if delivery.method == "POST":
            self.in_flight -= 1


class _Connection(asyncio.Protocol):
    """One accepted connection; also the Exchange of the request that is being answered on it."""

    def __init__(self, host: ModelHost, loop: asyncio.AbstractEventLoop) -> None:
        self._host = host
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed_here = False
        self.keep_alive = True

    @property
    def is_idle(self) -> bool:
        return self._task is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(64 * 1024, 0)
        self._host.connections_made += 1
        self._host._connections.add(self)
        self._reader = RequestReader(self._host.name, self._host.connections_made, faults=self._host.faults)
        if self._host._is_dead:
            # Accepted in its last moment.
            self.reset()

    def data_received(self, data: bytes) -> None:
        self._reader.buffer += data
        self._advance()

    def eof_received(self) -> None:
        self._peer_left()

    def connection_lost(self, error: Exception | None) -> None:
        self._peer_left()
        self._host._connections.discard(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def send(self, data: bytes) -> None:
        if self._transport.is_closing():
            raise ConnectionResetError
        self._transport.write(data)
        self.delivery.bytes_sent += len(data)
        await self._writable.wait()

    async def finish(self, data: bytes) -> None:
        self._host._ended(self.delivery)
        await self.send(data)

    def close(self) -> None:
        self._closed_here = True
        self._transport.close()

    def reset(self) -> None:
        self._closed_here = True
        connected = self._transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._transport.abort()

    def _advance(self) -> None:
        if self._task is not None or self._transport.is_closing():
            return
        try:
            if self._reader.current is None:
                delivery = self._reader.read_head(time.monotonic())
                if delivery is None:
                    return
                self._host._opened(delivery)
            whole = self._reader.read_body(time.monotonic())
        except BadRequest as error:
            self._host.faults.append(str(error))
            self.close()
            return
        if whole is not None:
            self.delivery = whole
            self._task = self._loop.create_task(self._run(whole))

    async def _run(self, delivery: Delivery) -> None:
        self._host._started(delivery)
        self.keep_alive = True
        try:
            with contextlib.suppress(ConnectionError):
                await self._host._script(delivery)(self)
        finally:
            self._host._ended(delivery)
        self._task = None
        if not self.keep_alive:
            self.close()
        self._advance()

    def _peer_left(self) -> None:
        waiting = self._reader.current or (self.delivery if self._task is not None else None)
        if waiting is not None and waiting.peer_left is None and not self._closed_here:
            waiting.peer_left = time.monotonic()
        if self._task is not None:
            self._task.cancel()


def _held(gate: Gate, then: Script) -> Script:
    async def script(exchange: Any) -> None:
        await gate.wait()
        await then(exchange)

    return script


@contextlib.contextmanager
def host_thread() -> Iterator[HostThread]:
    """Run a HostThread for the length of a with block."""
    thread = HostThread()
    try:
        yield thread
    finally:
        thread.stop()


class Hosts:
    """Makes hosts for one test, and ends them all."""

    def __init__(self, thread: HostThread) -> None:
        self.thread = thread
        self.made: list[ModelHost] = []

    def make(self, count: int = 1, *, names: Sequence[str] = ()) -> list[ModelHost]:
        """Start ``count`` hosts named h1, h2, ... (going on counting), or by ``names``."""
        started = len(self.made)
        wanted = names or [f"h{started + number + 1}" for number in range(count)]
        new = [ModelHost(self.thread, name) for name in wanted]
        self.made += new
        return new

    def one(self, name: str = "") -> ModelHost:
        """Start one host."""
        return self.make(names=[name] if name else ())[0]

    def close(self) -> None:
        """End all hosts. Raises AssertionError when a request was malformed, so that no test can miss it."""
        for host in self.made:
            host.close()
        faults = [f"{host.name}: {fault}" for host in self.made for fault in host.faults]
        assert not faults, faults


def shares(hosts: Sequence[ModelHost]) -> dict[str, int]:
    """Return how many requests each host got."""
    return {host.name: len(host.deliveries) for host in hosts}

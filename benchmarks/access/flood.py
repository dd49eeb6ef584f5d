"""Tenant B's latencies while tenant A sends fifty times its limit, beside those when A is quiet: one worker, real
sockets, signed requests. Windows alternate, so that a machine that changes its mood changes it for both.

``python -m benchmarks.access.flood FILE PORT PER_SECOND SECONDS`` is A: it sends FILE at that rate, and prints counts.
"""

import asyncio
import base64
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import ClassVar, cast

import redis
import uvloop

from access.sealing import Sealing
from benchmarks.access.callers import REGION, Caller, signed_headers
from benchmarks.proxy.processes import Cores, Server, free_port, on_core
from contract import redis_keys
from contract.routing_table import Endpoint, Instance, RoutingTable, Variant, encode
from warmroute.embedded.valkey import Valkey

LIMIT = 20.0
TIMES = 50
HOST_SECONDS = 0.02
CONNECTIONS = 8
PAUSE_SECONDS = 0.05
BODY_BYTES = 8_192
WINDOW_SECONDS = 4.0
WINDOWS = 6
FLOOD_CONNECTIONS = 32
_KEY = base64.b64encode(os.urandom(32)).decode()


@dataclass(frozen=True, slots=True)
class Window:
    """One pair of windows. Seconds; ``answers`` are A's, by status."""

    quiet: tuple[float, ...]
    flooded: tuple[float, ...]
    answers: dict[int, int]
    worker_share: float
    """Of a core, that the worker used during the flood."""

    @property
    def ratio(self) -> float:
        return percentile(self.flooded, 95) / percentile(self.quiet, 95)


def percentile(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def measure(*, quick: bool) -> list[Window]:
    """Start all of it, measure the windows, end all of it."""
    cores = Cores.choose()
    with ExitStack() as stack:
        stack.enter_context(on_core(cores.rest))
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="benchmark-")))
        server = Valkey(directory / "redis", log=directory / "redis.log")
        url = server.start()
        stack.callback(server.stop)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_measure(stack, url, directory, cores, quick=quick))


async def _measure(stack: ExitStack, url: str, directory: Path, cores: Cores, *, quick: bool) -> list[Window]:
    loop = asyncio.get_running_loop()
    hosts = await loop.create_server(_Host, "127.0.0.1", 0)
    port = free_port()
    a, b = Caller.make("a"), Caller.make("b")
    _publish(url, hosts.sockets[0].getsockname()[1], a, b)
    program = [sys.executable, "-m", "warmroute", "dataplane", "--host", "127.0.0.1", "--port", str(port),
               "--workers", "1", "--data-dir", str(directory / "plane")]  # fmt: skip
    settings = {"WARMROUTE_REDIS_URL": url, "WARMROUTE_AUTH": "on", "WARMROUTE_SECRET_KEY": _KEY,
                "WARMROUTE_LOG_LEVEL": "warning"}  # fmt: skip
    plane = Server("the worker", program, cores.proxy, directory / "plane.log", settings)
    stack.callback(plane.stop)
    await loop.run_in_executor(None, plane.wait, lambda: "ready on" in plane.said())
    seconds, count = (0.5, 1) if quick else (WINDOW_SECONDS, WINDOWS)
    request = _signed(b, port)
    await _latencies(request, port, seconds / 2)
    found = []
    for _ in range(count):
        quiet = await _latencies(request, port, seconds)
        file = directory / "flood"
        file.write_bytes(_signed(a, port))
        flood = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.access.flood", str(file), str(port), str(LIMIT * TIMES), str(seconds + 1),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert flood.stdout is not None
        await flood.stdout.readline()
        cpu = plane.cpu_seconds()
        flooded = await _latencies(request, port, seconds)
        share = (plane.cpu_seconds() - cpu) / seconds
        said, _ = await flood.communicate()
        answers = {int(status): int(number) for status, number in (line.split() for line in said.splitlines())}
        found.append(Window(quiet, flooded, answers, share))
    # Here, not by the stack: the host's ends of the worker's connections have to see it, as long as there is a loop.
    await loop.run_in_executor(None, plane.stop)
    hosts.close()
    while _Host.connected:
        await asyncio.sleep(0.01)
    return found


class _Host(asyncio.Protocol):
    """A model host that takes HOST_SECONDS for each request and does no work."""

    connected: ClassVar[set["_Host"]] = set()

    def __init__(self) -> None:
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.connected.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.connected.discard(self)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, mark, body = self._data.partition(b"\r\n\r\n")
        if mark and len(body) >= BODY_BYTES * (b"POST" in head):
            self._data = b""
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
            asyncio.get_running_loop().call_later(HOST_SECONDS, self._transport.write, answer)


def _publish(url: str, host_port: int, a: Caller, b: Caller) -> None:
    sealing = Sealing.of(_KEY)
    host = f"http://127.0.0.1:{host_port}"
    endpoints = tuple(
        Endpoint(f"chat-{tenant}", tenant, 1, (Variant("v", 1.0, (Instance(host, 1, host),)),), tenant)
        for tenant in ("a", "b")
    )
    principals = (a.principal(sealing, rate=LIMIT), b.principal(sealing))
    table = RoutingTable("benchmark", 1, "000000000000", REGION, endpoints, principals)
    with redis.Redis.from_url(url) as client:
        client.hset(redis_keys.ROUTES, mapping={"epoch": "benchmark", "generation": 1, "table": encode(table)})


def _signed(caller: Caller, port: int) -> bytes:
    host, target, body = f"127.0.0.1:{port}", f"/endpoints/chat-{caller.tenant}/invocations", b"x" * BODY_BYTES
    headers = {"Host": host, **signed_headers(caller, host, target, body, {"Content-Type": "application/json"})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {target} HTTP/1.1\r\n{lines}Content-Length: {BODY_BYTES}\r\n\r\n".encode() + body


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    """Send one request, read its answer whole, return the status."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)
    return int(head[9:12])


async def _latencies(request: bytes, port: int, seconds: float) -> tuple[float, ...]:
    """Return B's latencies: CONNECTIONS callers, each with a pause after each answer."""
    found: list[float] = []
    until = time.monotonic() + seconds

    async def call(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(PAUSE_SECONDS * number / CONNECTIONS)
        while (began := time.monotonic()) < until:
            status = await _exchange(reader, writer, request)
            found.append(time.monotonic() - began)
            if status != 200:
                raise RuntimeError(f"B was answered {status}: what it would have waited is not known")
            await asyncio.sleep(PAUSE_SECONDS)
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(call(number) for number in range(CONNECTIONS)))
    return tuple(found)


async def flood(request: bytes, port: int, per_second: float, seconds: float) -> Counter[int]:
    """Send at this rate over FLOOD_CONNECTIONS, as far as answers come back in time; return answers by status."""
    answers: Counter[int] = Counter()
    began = time.monotonic()

    async def call(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        turn = number
        while (due := began + turn / per_second) < began + seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            answers[await _exchange(reader, writer, request)] += 1
            turn += FLOOD_CONNECTIONS
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(call(number) for number in range(FLOOD_CONNECTIONS)))
    return answers


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    return median(values), min(values), max(values)


if __name__ == "__main__":
    print("begun", flush=True)
    answers = uvloop.run(flood(Path(sys.argv[1]).read_bytes(), int(sys.argv[2]), *map(float, sys.argv[3:5])))
    for status, number in sorted(answers.items()):
        print(status, number)

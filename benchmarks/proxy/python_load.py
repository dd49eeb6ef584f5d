"""Our own load generator, for machines without wrk: told by the same environment, prints the same RESULT line.

``python -m benchmarks.proxy.python_load PORT CONNECTIONS``, until SIGINT. On llhttp and uvloop; it takes more CPU
than wrk, which bounds the rates, while the proxy's CPU a request holds.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path
from time import perf_counter
from typing import cast

import httptools
import uvloop

PREFIXES = 8


def requests(environ: dict[str, str]) -> Iterator[bytes]:
    """Yield the requests of load.lua."""
    if "BENCH_SIGNED" in environ:
        yield from cycle(saved(Path(environ["BENCH_SIGNED"])))
    size = int(environ["BENCH_PROMPT_BYTES"])
    head = f"POST {environ['BENCH_TARGET']} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    head += f"{environ['BENCH_HEADERS']}Content-Length: "
    user = '"},{"role":"user","content":"turn '
    prefixes = [f"{environ['BENCH_OPENING']}{chr(97 + i) * size}{user}" for i in range(PREFIXES)]
    for turn in count(int(environ["BENCH_FIRST_TURN"]) + 1):
        body = f'{prefixes[turn % PREFIXES]}{turn}"}}]}}'
        yield f"{head}{len(body)}\r\n\r\n{body}".encode()


def saved(path: Path) -> Iterator[bytes]:
    """Yield the requests in a file: each after its size and a new line."""
    with path.open("rb") as file:
        while size := file.readline():
            yield file.read(int(size))


class Seen:
    """What all connections saw. Owner of the counts."""

    def __init__(self, source: Iterator[bytes]) -> None:
        self.source = source
        self.latencies: list[float] = []
        self.bytes = 0
        self.failed = 0
        self.is_over = False


class Connection(asyncio.Protocol):
    """Sends the next request when it has the answer to the last."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._sent_at = 0.0
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next()

    def _next(self) -> None:
        self._sent_at = perf_counter()
        self._transport.write(next(self._seen.source))

    def data_received(self, data: bytes) -> None:
        if self._seen.is_over:
            return
        self._seen.bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._seen.failed += 1
            self._transport.abort()

    def on_message_complete(self) -> None:
        self._seen.latencies.append(perf_counter() - self._sent_at)
        self._seen.failed += self._parser.get_status_code() != 200
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        # A closed loop with a connection less is another load.
        self._seen.failed += not self._seen.is_over


async def main(port: int, connections: int) -> None:
    """Load the port until SIGINT and print what was seen."""
    loop = asyncio.get_running_loop()
    interrupted = asyncio.Event()
    loop.add_signal_handler(signal.SIGINT, interrupted.set)
    seen = Seen(requests(dict(os.environ)))
    began = perf_counter()
    await asyncio.gather(
        *(loop.create_connection(lambda: Connection(seen), "127.0.0.1", port) for _ in range(connections))
    )
    await interrupted.wait()
    seen.is_over = True
    took = perf_counter() - began
    latencies = sorted(Counter(round(1e6 * latency) for latency in seen.latencies).items())
    result = {"requests": len(seen.latencies), "bytes": seen.bytes, "seconds": took, "failed": seen.failed}
    print("RESULT", json.dumps({**result, "latencies": latencies}))


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))

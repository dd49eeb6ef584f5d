"""Requests at a steady rate, sent whether or not earlier ones were answered, and what became of each."""

import asyncio
import concurrent.futures
import contextlib
import itertools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.fakes.data_plane import DataPlane
from tests.fakes.model_host import HostThread
from tests.fakes.raw_client import request_bytes
from tests.waiting import wait_until

ANSWER_SECONDS = 30.0
_HOST = re.compile(rb'"host": "([\w-]+)"')


@dataclass(frozen=True)
class Shot:
    """What one request is to be. ``key`` is for the test: its results are found by it."""

    target: str
    body: bytes
    key: str = ""
    leaves_after: float | None = None
    """Seconds after which the client goes away without waiting for the answer."""


@dataclass(frozen=True)
class Result:
    """What became of one request. Times are time.monotonic()."""

    shot: Shot
    plane: int
    began: float
    ended: float
    status: int
    """0: the connection ended, or was refused, before the head of an answer."""
    whole: bool
    """The answer came to the end that its framing says."""
    host: str
    left: bool
    """The client left on purpose."""

    @property
    def is_good(self) -> bool:
        return self.left or (self.status == 200 and self.whole)

    @property
    def seconds(self) -> float:
        return self.ended - self.began


async def shoot(port: int, number: int, shot: Shot) -> Result:
    """Send one request on a connection of its own and read the answer to its end."""
    began = time.monotonic()
    data, left = bytearray(), False
    try:
        async with asyncio.timeout(shot.leaves_after or ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                headers = [("Content-Type", "application/json"), ("Connection", "close")]
                writer.write(request_bytes(shot.target, shot.body, headers))
                while more := await reader.read(65_536):
                    data += more
            finally:
                writer.close()
    except TimeoutError:
        left = shot.leaves_after is not None
    except OSError:
        pass
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1]) if head.startswith(b"HTTP/1.1 ") and body else 0
    host = _HOST.search(body)
    return Result(
        shot, number, began, time.monotonic(), status, _is_whole(head, body), host[1].decode() if host else "", left
    )


def _is_whole(head: bytes, body: bytes) -> bool:
    length = re.search(rb"(?i)\ncontent-length: *(\d+)", head)
    return len(body) == int(length[1]) if length else body.endswith(b"0\r\n\r\n")


@dataclass
class Load:
    """``rate`` requests a second in all, over the planes in turn, ``shots`` in turn."""

    thread: HostThread
    planes: Sequence[DataPlane]
    shots: Sequence[Shot]
    rate: float
    results: list[Result] = field(default_factory=list)
    _stop: bool = False
    _run: concurrent.futures.Future[None] | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator["Load"]:
        """Shoot until the block ends; then wait for all answers."""
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def start(self) -> None:
        self._stop = False
        self._run = asyncio.run_coroutine_threadsafe(self._shoot_all(), self.thread.loop)

    def stop(self) -> None:
        self._stop = True
        if self._run is not None:
            self._run.result(ANSWER_SECONDS + 10)
            self._run = None

    def wait(self, count: int, limit_seconds: float = 30.0) -> None:
        """Wait until so many more requests have ended."""
        wanted = len(self.results) + count
        wait_until(lambda: len(self.results) >= wanted, limit_seconds, f"{count} more requests have ended")

    async def _shoot_all(self) -> None:
        loop = asyncio.get_running_loop()
        began, waiting = loop.time(), set[asyncio.Task[None]]()
        shots, ports = itertools.cycle(self.shots), [plane.port for plane in self.planes]
        for number in itertools.count():
            early = began + number / self.rate - loop.time()
            # Held up by a busy machine, it does not catch up: a burst overflows where a steady rate does not.
            began -= min(0.0, early)
            await asyncio.sleep(early)
            if self._stop:
                break
            task = loop.create_task(self._shoot(ports[number % len(ports)], number % len(ports), next(shots)))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        await asyncio.gather(*waiting)

    async def _shoot(self, port: int, number: int, shot: Shot) -> None:
        self.results.append(await shoot(port, number, shot))

    def failed(self, planes: Callable[[int], bool] = lambda number: True) -> list[Result]:
        """Return the requests that were not answered 200 to the end, of these planes."""
        return [result for result in self.results if not result.is_good and planes(result.plane)]


def p95(seconds: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return sorted(seconds)[int(len(seconds) * 0.95)]

"""A mixed load at a steady rate, and whether each request came out as it must.

Every route, unary and streamed, small and large; clients that leave at any moment, read or send slowly; hosts that
break off. Each answer is compared byte for byte; one that a host broke off must look broken.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from enum import StrEnum
from random import Random

from tests.dataplane_e2e.stage import Deployed
from tests.endurance.client import Client, Pieces
from tests.endurance.exchange import Route, Run, Runs, draw
from tests.fakes.answers import Step
from tests.fakes.model_host import HostThread
from tests.fakes.raw_client import ConnectionEnded

SIZES = [(100, 4_000)] * 80 + [(4_000, 100_000)] * 15 + [(100_000, 1_000_000)] * 4 + [(1_000_000, 5_000_000)]
"""Of requests and of answers, in bytes; one of a hundred is taken."""
LIMIT_SECONDS = 120.0
IDLE_SECONDS = 20.0
"""A client's connection is not used again after this; the worker would keep it longer."""
REUSE = 0.8
LATE_SECONDS = 1.0
"""A host may still be reading the request of a client that has left."""
WRONG_MAX = 100


class Manner(StrEnum):
    """How an exchange goes."""

    PLAIN = "whole"
    CUT = "whole, cut anywhere"
    LONG = "whole, streamed for seconds"
    SLOW_READER = "whole, read slowly"
    SLOW_SENDER = "whole, sent slowly"
    LEFT_SENDING = "left while sending"
    LEFT_WAITING = "left before the answer"
    LEFT_READING = "left during the answer"
    NO_ANSWER = "host reset before its answer"
    BROKEN = "host broke off its answer"

    @property
    def is_left(self) -> bool:
        return self in (Manner.LEFT_SENDING, Manner.LEFT_WAITING, Manner.LEFT_READING)


IN_TEN_THOUSAND = {
    Manner.CUT: 500,
    Manner.LONG: 200,
    Manner.SLOW_READER: 60,
    Manner.SLOW_SENDER: 60,
    Manner.LEFT_SENDING: 35,
    Manner.LEFT_WAITING: 30,
    Manner.LEFT_READING: 35,
    Manner.NO_ANSWER: 50,
    Manner.BROKEN: 50,
}
"""All others are plain. One in a hundred leaves, one in a hundred meets a host that fails."""


class Load:
    """``rate`` requests a second to one port, over endpoints and routes at random."""

    def __init__(self, thread: HostThread, port: int, sites: Sequence[Deployed], rate: float, dice: Random) -> None:
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._thread, self._port, self._sites, self._rate, self._dice = thread, port, sites, rate, dice
        self._runs = Runs()
        self._idle: deque[Client] = deque()
        self._stop = False
        for host in (host for site in sites for host in site.hosts):
            host.answer = self._runs.serve

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Load until the block ends, then wait for all answers and close all connections."""
        self._stop = False
        run: concurrent.futures.Future[None] = asyncio.run_coroutine_threadsafe(self._run(), self._thread.loop)
        try:
            yield
        finally:
            self._stop = True
            run.result(LIMIT_SECONDS + 10)

    @property
    def requests(self) -> int:
        return self.done.total()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        waiting: set[asyncio.Task[None]] = set()
        began, number = loop.time(), 0
        while not self._stop:
            await asyncio.sleep(began + number / self._rate - loop.time())
            number += 1
            task = loop.create_task(self._one(number))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        await asyncio.gather(*waiting)
        while self._idle:
            self._idle.pop().close()

    async def _one(self, number: int) -> None:
        manner, run = self._draw(number)
        self._runs.open[run.id] = run
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                found = await self._exchange(manner, run)
            if manner.is_left:
                await asyncio.sleep(LATE_SECONDS)
        except (OSError, ConnectionEnded, TimeoutError, AssertionError) as error:
            found = [f"{type(error).__name__} {str(error)[:200]}"]
        finally:
            del self._runs.open[run.id]
        self.done[manner] += 1
        if len(self.wrong) < WRONG_MAX:
            self.wrong += [f"{run.id} ({manner}): {word}" for word in found]

    def _draw(self, number: int) -> tuple[Manner, Run]:
        dice = self._dice
        manners = [*IN_TEN_THOUSAND, Manner.PLAIN]
        weights = [*IN_TEN_THOUSAND.values(), 10_000 - sum(IN_TEN_THOUSAND.values())]
        (manner,) = dice.choices(manners, weights)
        site = dice.choice(self._sites)
        sizes = SIZES
        if manner in (Manner.SLOW_READER, Manner.SLOW_SENDER, Manner.LEFT_SENDING, Manner.LEFT_READING):
            # More than all buffers on the way hold, so that somebody has to wait.
            sizes = [(1_000_000, 4_000_000)]
        elif manner is Manner.LONG:
            sizes = [(4_000, 20_000)]
        run = draw(dice, f"run-{number}", dice.choice(list(Route)), site.name, sizes)
        if manner is Manner.LONG:
            pauses = [dice.uniform(0.05, 0.5) for _ in run.steps]
            steps: list[Step] = [step for pair in zip(run.steps, pauses, strict=True) for step in pair]
            run = dataclasses.replace(run, steps=steps, framing="chunked")
        elif manner is Manner.NO_ANSWER:
            run = dataclasses.replace(run, is_reset=True)
        elif manner is Manner.BROKEN:
            ending = dice.choice(("cut", "reset"))
            run = dataclasses.replace(run, framing=dice.choice(("length", "chunked")), ending=ending)
        elif manner is Manner.LEFT_WAITING:
            run = dataclasses.replace(run, steps=[0.5, *run.steps])
        return manner, run

    async def _exchange(self, manner: Manner, run: Run) -> list[str]:
        client = await self._client(manner)
        reusable = False
        try:
            await self._send(manner, run, client)
            if manner is Manner.LEFT_WAITING:
                await asyncio.sleep(self._dice.uniform(0.0, 0.2))
            elif manner is Manner.LEFT_READING:
                await self._read_some(client)
            elif manner in (Manner.NO_ANSWER, Manner.BROKEN):
                seen = await run.read_failure(client)
                return [*([] if seen else ["looks whole"]), *(["delivered twice"] if run.deliveries > 1 else [])]
            elif not manner.is_left:
                head, body = await run.read(client)
                reusable = head.keeps_alive
                return run.differences(head.status, body)
            return []
        finally:
            self._put_back(manner, client, reusable)

    async def _client(self, manner: Manner) -> Client:
        if manner is Manner.SLOW_READER:
            return await Client.open(self._port, Pieces(0, 65_536, 0.04), receive_buffer=8_192)
        if manner is Manner.SLOW_SENDER:
            return await Client.open(self._port, Pieces(131_072, pause=0.05))
        if manner is Manner.CUT:
            return await Client.open(self._port, Pieces(70_000, 70_000, 0.001, Random(self._dice.random())))
        now = asyncio.get_running_loop().time()
        while self._idle and now - self._idle[0].idle_since > IDLE_SECONDS:
            self._idle.popleft().close()
        if self._idle and self._dice.random() < REUSE:
            return self._idle.pop()
        return await Client.open(self._port)

    def _put_back(self, manner: Manner, client: Client, reusable: bool) -> None:
        if manner is Manner.PLAIN and reusable:
            client.idle_since = asyncio.get_running_loop().time()
            self._idle.append(client)
        elif self._dice.random() < 0.5:
            client.reset()
        else:
            client.close()

    async def _send(self, manner: Manner, run: Run, client: Client) -> None:
        data = run.request_bytes()
        await client.send(data[: self._dice.randrange(len(data))] if manner is Manner.LEFT_SENDING else data)

    async def _read_some(self, client: Client) -> None:
        head = await client.head()
        left = self._dice.randrange(1_000_000)
        async for piece in client.parts(head):
            left -= len(piece)
            if left <= 0:
                return

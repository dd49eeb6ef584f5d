"""The engine driven by the wall clock: engine time is real time multiplied by a speed."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import contextmanager

from simulator.engine import Engine
from simulator.generation import Generation
from simulator.metrics import Metrics
from simulator.request import Kind, Request

logger = logging.getLogger(__name__)


class HostStopping(Exception):
    """The host shuts down; what was under way ends here."""


class Answer:
    """One generation under way, as its client's handler sees it."""

    def __init__(self, generation: Generation, request: Request) -> None:
        self.generation = generation
        self.request = request
        self.ready = 0
        """Tokens generated so far."""
        self._stopped = False
        self._whole = False
        self._changed = asyncio.Event()

    @property
    def complete(self) -> bool:
        """Whether all tokens are there."""
        return self.ready >= self.generation.output_tokens

    def update(self, ready: int) -> None:
        """Take note that ``ready`` tokens are there."""
        if ready > self.ready:
            self.ready = ready
            if self.complete or not self._whole:
                self._changed.set()

    def stop(self) -> None:
        """End it: whoever waits gets HostStopping."""
        self._stopped = True
        self._changed.set()

    async def start(self) -> None:
        """Wait for the first token."""
        while not self.ready:
            await self._change()

    async def parts(self) -> AsyncIterator[str]:
        """Yield the text as it is generated: all that is new at each look, never nothing."""
        told = 0
        while told < self.generation.output_tokens:
            if told == self.ready:
                await self._change()
            part = self.generation.part(told, self.ready)
            told = self.ready
            if part:
                yield part

    async def finish(self) -> None:
        """Wait until all tokens are there."""
        self._whole = True
        while not self.complete:
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        if not self._stopped:
            await self._changed.wait()
        if self._stopped:
            raise HostStopping


class LiveEngine:
    """Owner of one engine. Everything happens in one event loop; run() must be running."""

    def __init__(self, engine: Engine, metrics: Metrics, speed: float, clock: Callable[[], float]) -> None:
        """``clock`` gives seconds, monotonic. ``speed`` > 0: engine seconds in a second."""
        self.engine = engine
        self.metrics = metrics
        self._speed = speed
        self._clock = clock
        self._start = clock()
        self._answers: dict[Hashable, Answer] = {}
        self._ids = itertools.count()
        self._wake = asyncio.Event()
        self.stopping = False

    @property
    def now(self) -> float:
        """Engine time."""
        return (self._clock() - self._start) * self._speed

    @contextmanager
    def generate(self, generation: Generation) -> Iterator[Answer]:
        """Submit; on leaving the block before the end, abort: the engine is free of it after the step under way."""
        if self.stopping:
            raise HostStopping
        request_id = next(self._ids)
        request = self.engine.submit(
            request_id, generation.blocks, generation.prompt_tokens, generation.output_tokens, self.now
        )
        answer = self._answers[request_id] = Answer(generation, request)
        self._wake.set()
        try:
            yield answer
        finally:
            # One reading of the clock: what ends in between would be told to an answer that is gone.
            now = self.now
            self._catch_up(now)
            del self._answers[request_id]
            if self.engine.abort(request_id, now):
                self.metrics.observe_abort()

    async def run(self) -> None:
        """Advance the engine, step by step, until cancelled. Nothing is answered after that."""
        try:
            while True:
                at = self.engine.next_step_at()
                if at is None:
                    self._wake.clear()
                    await self._wake.wait()
                else:
                    await asyncio.sleep(max(at - self.now, 0.0) / self._speed)
                self.catch_up()
        except Exception:
            logger.exception("the simulated engine failed; this host answers no more, restart it")
            raise
        finally:
            self.stop()

    def catch_up(self) -> None:
        """Let happen what is due, and tell the answers."""
        self._catch_up(self.now)

    def stop(self) -> None:
        """End all answers and take no more."""
        self.stopping = True
        for answer in self._answers.values():
            answer.stop()

    def _catch_up(self, now: float) -> None:
        for event in self.engine.advance(now):
            answer = self._answers[event.request.id]
            self.metrics.observe(event, answer.generation.finish_reason)
            if event.kind is Kind.FINISHED:
                answer.update(answer.generation.output_tokens)
        for request_id, answer in self._answers.items():
            if not answer.complete:
                answer.update(self.engine.generated(request_id))

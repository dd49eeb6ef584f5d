"""Runs the tasks: each alone with itself, woken by a notice, a timer or its own wish, for as long as the plane lives.

What changes here: the ``TaskState`` of each task, by its own loop. An outage is logged when it begins and when it ends.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import asyncpg  # type: ignore[import-untyped]
from redis.exceptions import RedisError

from controlplane.errors import ServiceUnavailable
from controlplane.store.notices import CHANNEL

log = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.02
"""Between two runs of a task: notices that come close together are one."""
_BACKOFF_SECONDS = (0.1, 0.3, 1.0, 3.0)
"""Before the next run after so many failures in a row; the last one stands for all further ones."""
_LISTEN_CHECK_SECONDS = 10.0
"""A subscription can die without a word; timers cover for it until this finds out."""


class Task(Protocol):
    @property
    def name(self) -> str: ...

    async def run(self) -> float:
        """Do what is to be done; return after how many seconds to look again if no notice comes first."""


@dataclass
class TaskState:
    """How a task fares; read by health and metrics."""

    runs: int = 0
    failures: int = 0
    failures_in_a_row: int = 0
    failing_for: str | None = None
    """Why its last run failed; None if it did not."""
    is_outage: bool = False
    """Its last run failed for want of the database or Redis, not by a fault of ours."""
    failing_since: float | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class Driver:
    """``listen`` opens a connection of its own for notices."""

    def __init__(self, tasks: Sequence[Task], listen: Callable[[], Awaitable["asyncpg.Connection[Any]"]]) -> None:
        self._tasks = tasks
        self._listen = listen
        self._stopping = asyncio.Event()
        self.states = {task.name: TaskState() for task in tasks}

    def wake(self) -> None:
        """Let every task look again soon."""
        for state in self.states.values():
            state.wake.set()

    def stop(self) -> None:
        """Let ``run`` return as soon as the runs under way have ended."""
        self._stopping.set()
        self.wake()

    async def run(self) -> None:
        """Run until stopped, or cancelled: that is for when a run does not end, and may cut a transaction off."""
        async with asyncio.TaskGroup() as group:
            hearing = group.create_task(self._hear(), name="notices")
            repeating = [
                group.create_task(self._repeat(task, self.states[task.name]), name=task.name) for task in self._tasks
            ]
            await asyncio.wait(repeating)
            hearing.cancel()

    async def _repeat(self, task: Task, state: TaskState) -> None:
        while not self._stopping.is_set():
            state.wake.clear()
            delay = await self._once(task, state)
            _heed_cancellation()
            if state.failures_in_a_row:
                # Notices are left aside: they come from those for whom it works.
                await _wait(self._stopping, _backoff(state.failures_in_a_row))
                continue
            await _wait(state.wake, delay)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _once(self, task: Task, state: TaskState) -> float:
        state.runs += 1
        try:
            delay = await task.run()
        except (ServiceUnavailable, RedisError, OSError) as error:
            _note_failure(task, state, _reason(error), None)
        except Exception as error:
            # A fault of ours. The other tasks go on, and this one is tried again; it may be the data of one endpoint.
            _note_failure(task, state, repr(error), error)
        except asyncio.CancelledError as error:
            # Without this task being asked to end, it is a library's: what ended another's wait for the same thing.
            _heed_cancellation()
            _note_failure(task, state, repr(error), error)
        else:
            _note_success(task, state)
            return delay
        return 0.0

    async def _hear(self) -> None:
        """Keep a subscription to the notices. Whatever befalls it, the timers go on."""
        failures = 0
        while True:
            try:
                async with self._subscription() as lost:
                    if failures:
                        log.info("notices of changes are heard again")
                    failures = 0
                    # What was changed while nobody listened.
                    self.wake()
                    await lost
            except (Exception, asyncio.CancelledError) as error:
                _heed_cancellation()
                if not failures:
                    log.warning("notices of changes are not heard, so changes are seen by timer: %s", _reason(error))
                failures += 1
                await asyncio.sleep(_backoff(failures))

    @asynccontextmanager
    async def _subscription(self) -> AsyncIterator[Awaitable[None]]:
        """Listen; yields what to await, which raises when the subscription is dead."""
        connection = await self._listen()
        ended = asyncio.Event()

        async def lost() -> None:
            while not ended.is_set():
                await _wait(ended, _LISTEN_CHECK_SECONDS)
                await connection.execute("SELECT 1", timeout=_LISTEN_CHECK_SECONDS)

        try:
            connection.add_termination_listener(lambda _: ended.set())
            await connection.add_listener(CHANNEL, lambda *_: self.wake())
            yield lost()
        finally:
            connection.terminate()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _backoff(failures: int) -> float:
    return _BACKOFF_SECONDS[min(failures, len(_BACKOFF_SECONDS)) - 1]


def _heed_cancellation() -> None:
    """Raise CancelledError if this task was asked to end: redis-py 8.1 swallows that while it connects."""
    this = asyncio.current_task()
    if this is not None and this.cancelling():
        raise asyncio.CancelledError


def _note_failure(task: Task, state: TaskState, reason: str, fault: BaseException | None) -> None:
    state.failures += 1
    state.failures_in_a_row += 1
    state.is_outage = fault is None
    if state.failing_since is None:
        state.failing_since = time.monotonic()
    if state.failing_for != reason:
        state.failing_for = reason
        log.error("%s fails and is tried again: %s", task.name, reason, exc_info=fault)


def _note_success(task: Task, state: TaskState) -> None:
    if state.failing_since is not None:
        log.info("%s works again after %.1f s", task.name, time.monotonic() - state.failing_since)
    state.failures_in_a_row = 0
    state.failing_for = state.failing_since = None
    state.is_outage = False


def _reason(error: BaseException) -> str:
    if isinstance(error, ServiceUnavailable):
        return error.log or error.message
    return f"Redis: {error or type(error).__name__}" if isinstance(error, RedisError) else str(error) or repr(error)

"""Waiting for a condition with a limit, so that no test sleeps and hopes; and a free port for what must be told one."""

import asyncio
import inspect
import socket
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.01


def free_port() -> int:
    """Return a loopback TCP port nobody listens on just now. Prefer port 0 where the server can report its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], T], limit_seconds: float = 10.0, what: str = "") -> T:
    """Return the first truthy result of ``condition``; fail the test when there is none within the limit."""
    deadline = time.monotonic() + limit_seconds
    while True:
        if result := condition():
            return result
        if time.monotonic() > deadline:
            raise AssertionError(_too_late(condition, limit_seconds, what))
        time.sleep(_POLL_SECONDS)


async def wait_until_async(condition: Callable[[], T | Awaitable[T]], limit_seconds: float = 10.0, what: str = "") -> T:
    """Like wait_until, in an event loop; ``condition`` may be a plain or an async function."""
    deadline = time.monotonic() + limit_seconds
    while True:
        found = condition()
        result: T = await found if inspect.isawaitable(found) else found
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(_too_late(condition, limit_seconds, what))
        await asyncio.sleep(_POLL_SECONDS)


def _too_late(condition: object, limit_seconds: float, what: str) -> str:
    return f"not within {limit_seconds:g} s: {what or getattr(condition, '__qualname__', condition)}"

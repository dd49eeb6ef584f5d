"""Tasks that last: an end that nobody asked for is said, whatever its form; the worker makes room for a new one."""

import asyncio
import contextlib
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from contract.settings import load
from dataplane import worker
from dataplane.lasting import LASTING, lasting
from dataplane.state.routes import RouteWatcher
from tests.waiting import wait_until_async


async def _fails() -> None:
    raise ZeroDivisionError("a fault")


async def _returns() -> None:
    return


async def _is_cancelled_from_within() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def _lasts() -> None:
    await asyncio.sleep(60)


async def told(work: Coroutine[Any, Any, None], *, cancel: bool) -> list[dict[str, Any]]:
    """Return what the loop's exception handler is told when the task has ended."""
    contexts: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: contexts.append(context))
    try:
        task = lasting(work, "a task")
        await asyncio.sleep(0)
        if cancel:
            task.cancel()
        await asyncio.wait({task})
        await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(None)
    return contexts


@pytest.mark.parametrize("work", [_fails, _returns, _is_cancelled_from_within])
async def test_an_end_that_nobody_asked_for_is_told(work: Any) -> None:
    (context,) = await told(work(), cancel=False)
    assert context[LASTING] == "a task"
    assert "a task ended by itself" in context["message"]
    assert isinstance(context.get("exception"), ZeroDivisionError) == (work is _fails)


async def test_an_end_that_was_asked_for_is_not() -> None:
    assert await told(_lasts(), cancel=True) == []


async def test_a_worker_that_lost_a_lasting_task_drains_and_ends(
    redis_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = asyncio.Event()

    async def resync(self: RouteWatcher) -> None:
        await broken.wait()
        raise ZeroDivisionError("a fault")

    settings = load({"WARMROUTE_REDIS_URL": redis_url})
    ours, theirs = socket.socketpair()
    with (
        contextlib.closing(ours),
        contextlib.closing(theirs),
        socket.create_server(("127.0.0.1", 0)) as listener,
        patch.object(RouteWatcher, "_resync", resync),
        patch.object(worker, "collect_seldom"),
    ):
        serving = asyncio.create_task(worker.serve(settings, 3, tmp_path, listener, theirs.fileno()))
        ours.setblocking(False)
        async with asyncio.timeout(10):
            assert await asyncio.get_running_loop().sock_recv(ours, 1) == b"1"
        assert not serving.done()
        broken.set()
        await wait_until_async(serving.done, 10.0)
        await serving
    assert "ZeroDivisionError" in caplog.text
    assert "Worker 3 drains and ends, so that it is started anew" in caplog.text

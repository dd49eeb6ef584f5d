"""Fixture ``start_host``: real simulated hosts on free ports of the loopback, in this event loop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from simulator.calibration import LAPTOP
from simulator.host import HostSettings, serve

StartHost = Callable[..., Awaitable[str]]


@pytest.fixture
async def start_host() -> AsyncIterator[StartHost]:
    stop = asyncio.Event()
    hosts: list[asyncio.Task[None]] = []

    async def start(**settings: Any) -> str:
        """Return the URL of a new host."""
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        chosen = replace(HostSettings(LAPTOP, "host-1"), **settings)
        hosts.append(asyncio.create_task(serve(chosen, host="127.0.0.1", port=0, on_ready=ready.set_result, stop=stop)))
        return await ready

    yield start
    stop.set()
    await asyncio.gather(*hosts)

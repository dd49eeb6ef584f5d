"""The driver: wakes by notice and timer, survives outages with one line each, and ends when it is told to."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from controlplane.background.driver import Driver
from controlplane.errors import ServiceUnavailable
from controlplane.store.notices import CHANNEL, notify
from controlplane.store.session import Database
from tests.waiting import wait_until_async


class Recorder:
    """A task that counts its runs and fails as told."""

    def __init__(self, name: str = "recorder", interval: float = 60.0) -> None:
        self.name = name
        self.interval = interval
        self.runs = 0
        self.fault: BaseException | None = None
        self.running = 0
        self.peak = 0
        self.hold: asyncio.Event | None = None

    async def run(self) -> float:
        self.runs += 1
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            if self.hold is not None:
                await self.hold.wait()
            if self.fault is not None:
                raise self.fault
        finally:
            self.running -= 1
        return self.interval


@asynccontextmanager
async def driven(database: Database, *tasks: Recorder) -> AsyncIterator[Driver]:
    driver = Driver(tasks, database.listen)
    running = asyncio.create_task(driver.run())
    try:
        yield driver
    finally:
        driver.stop()
        await asyncio.wait_for(running, 10)


async def listening(url: str) -> None:
    """Wait until the driver's connection listens."""

    def listens() -> bool:
        with psycopg.connect(url) as connection:
            query = "SELECT 1 FROM pg_stat_activity WHERE query LIKE %s AND pid <> pg_backend_pid()"
            return connection.execute(query, (f"LISTEN%{CHANNEL}%",)).fetchone() is not None

    await wait_until_async(listens, 30, "driver listens")


async def test_a_task_runs_at_once_and_by_its_timer(database: Database) -> None:
    task = Recorder(interval=0.01)
    async with driven(database, task):
        await wait_until_async(lambda: task.runs >= 5)
    assert task.peak == 1


async def test_a_committed_notice_wakes_every_task_and_one_rolled_back_none(
    database: Database, migrated_url: str
) -> None:
    tasks = Recorder("a"), Recorder("b")

    async def roll_back() -> None:
        async with database.transaction() as session:
            await notify(session)
            raise ZeroDivisionError

    async with driven(database, *tasks):
        await listening(migrated_url)
        await wait_until_async(lambda: all(task.runs >= 2 for task in tasks))
        before = [task.runs for task in tasks]
        with pytest.raises(ZeroDivisionError):
            await roll_back()
        async with database.transaction() as session:
            await notify(session)
        await wait_until_async(lambda: all(task.runs > runs for task, runs in zip(tasks, before, strict=True)))
        assert [task.runs for task in tasks] == [runs + 1 for runs in before]


async def test_a_notice_during_a_run_leads_to_another_run_not_to_two_at_once(database: Database) -> None:
    task = Recorder()
    task.hold = asyncio.Event()
    async with driven(database, task) as driver:
        await wait_until_async(lambda: task.running == 1)
        for _ in range(5):
            driver.wake()
        task.hold.set()
        await wait_until_async(lambda: task.runs >= 2)
    assert task.peak == 1


async def test_an_outage_is_one_line_at_its_begin_and_one_at_its_end(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="controlplane.background.driver")
    task, other = Recorder(interval=0.01), Recorder("other", interval=0.01)
    task.fault = RedisConnectionError("no route")
    async with driven(database, task, other) as driver:
        state = driver.states["recorder"]
        await wait_until_async(lambda: state.failures >= 3)
        assert state.failing_for == "Redis: no route"
        runs = other.runs
        await wait_until_async(lambda: other.runs > runs)
        task.fault = None
        await wait_until_async(lambda: state.failing_for is None)
    lines = [record.message for record in caplog.records]
    assert len(lines) == 2
    assert lines[0] == "recorder fails and is tried again: Redis: no route"
    assert lines[1].startswith("recorder works again after ")


async def test_another_reason_is_another_line_and_a_fault_of_ours_has_its_traceback(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    task = Recorder(interval=0.01)
    task.fault = ServiceUnavailable("for callers", log="database unavailable: gone")
    async with driven(database, task) as driver:
        state = driver.states["recorder"]
        await wait_until_async(lambda: state.failures >= 1)
        assert state.is_outage
        task.fault = KeyError("a fault of ours")
        await wait_until_async(lambda: "KeyError" in str(state.failing_for))
        assert not state.is_outage
    records = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.message for record in records] == [
        "recorder fails and is tried again: database unavailable: gone",
        "recorder fails and is tried again: KeyError('a fault of ours')",
    ]
    assert not records[0].exc_info
    assert records[1].exc_info


async def test_a_cancellation_that_nobody_asked_for_is_a_failure_like_others(database: Database) -> None:
    """asyncio cancels all who wait for one future with the first of them; the task must not end of it in silence."""
    task = Recorder(interval=0.01)
    task.fault = asyncio.CancelledError()
    async with driven(database, task) as driver:
        await wait_until_async(lambda: driver.states["recorder"].failures >= 2)
        task.fault = None
        await wait_until_async(lambda: not driver.states["recorder"].failures_in_a_row)


async def test_a_failing_task_is_not_tried_in_a_hurry(database: Database) -> None:
    task = Recorder(interval=0.0)
    task.fault = OSError("away")
    async with driven(database, task) as driver:
        started = asyncio.get_running_loop().time()
        while driver.states["recorder"].failures < 4:
            driver.wake()
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - started > 1.3


async def test_a_lost_subscription_is_made_again_and_what_was_missed_is_looked_for(
    private_postgres: Callable[[], Any],
) -> None:
    server = private_postgres()
    database = Database(server.url)
    task = Recorder()
    async with driven(database, task):
        await listening(server.url)
        runs = task.runs
        server.kill()
        server.start()
        await listening(server.url)
        await wait_until_async(lambda: task.runs > runs)
        runs = task.runs
        async with database.transaction() as session:
            await notify(session)
        await wait_until_async(lambda: task.runs > runs)
    await database.dispose()


async def test_it_ends_after_the_runs_under_way(database: Database) -> None:
    task = Recorder()
    task.hold = asyncio.Event()
    driver = Driver([task], database.listen)
    running = asyncio.create_task(driver.run())
    await wait_until_async(lambda: task.running == 1)
    driver.stop()
    await asyncio.sleep(0)
    assert not running.done()
    task.hold.set()
    await asyncio.wait_for(running, 5)
    assert task.runs == 1


async def test_a_swallowed_cancellation_is_heeded(database: Database) -> None:
    class Swallower(Recorder):
        async def run(self) -> float:
            self.runs += 1
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return 60.0
            return 60.0

    task = Swallower()
    running = asyncio.create_task(Driver([task], database.listen).run())
    await wait_until_async(lambda: task.runs == 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 5)

"""Control planes that die at every point of an endpoint's life, and several that work side by side."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import redis as redis_library
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from controlplane.background.driver import Driver
from controlplane.background.probe_hosts import ProbeHosts
from controlplane.snapshot import Limits
from controlplane.store.session import Database
from tests.controlplane.stage import (
    Call,
    Replica,
    create_config,
    create_model,
    table_in,
    wait_for,
)
from tests.fakes.model_host import Hosts

LIMITS = Limits(provision_seconds=60, eject_seconds=60)
TURNS_MAX = 40


class Killed(BaseException):
    """The process is gone: nothing that could catch it runs any more."""


class MortalDatabase(Database):
    """Dies in its transaction number ``last`` of those that write: before the commit, which undoes it, or after it."""

    def __init__(self, url: str, last: int | None = None, *, after_commit: bool = False) -> None:
        super().__init__(url)
        self.writes = 0
        self.last = last
        self.after_commit = after_commit

    @asynccontextmanager
    async def transaction(self, **options: Any) -> AsyncIterator[AsyncSession]:
        async with super().transaction(**options) as session:
            yield session
            wrote = (await session.execute(text("SELECT pg_current_xact_id_if_assigned()"))).scalar_one() is not None
            self.writes += wrote
            dies = wrote and self.last is not None and self.writes > self.last
            if dies and not self.after_commit:
                raise Killed
        if dies:
            raise Killed


class Lives:
    """Runs one whole life of an endpoint after the other, with replicas that die on the way."""

    def __init__(self, database: Database, redis_url: str, call: Call) -> None:
        self.database = database
        self.redis_url = redis_url
        self.call = call

    async def prepare(self) -> None:
        """Two configurations whose pools share one host, so that an update keeps it and swaps the other."""
        for name, numbers in (("a", (1, 2)), ("b", (2, 3))):
            await create_model(self.call, name, *(f"http://10.0.0.{number}:8000" for number in numbers))
            await create_config(self.call, name, {"ModelName": name, "InitialInstanceCount": 2})

    async def live(self, mortal: Database, publishing: Database) -> None:
        """Create, update, delete; the first replica sees the database through these two."""
        replica = Replica(mortal, self.redis_url, LIMITS, publishing)
        try:
            await self.call("CreateEndpoint", EndpointName="e", EndpointConfigName="a")
            replica = await self.turn_until(replica, "InService")
            await self.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="b")
            replica = await self.turn_until(replica, "InService")
            assert await self.count("binding") == await self.count("host_health") == 2
            await self.call("DeleteEndpoint", EndpointName="e")
            replica = await self.turn_until(replica, None)
            for table in ("binding", "host_health", "deployment", "endpoint_variant"):
                assert await self.count(table) == 0
        finally:
            await replica.close()

    async def turn_until(self, replica: Replica, wanted: str | None) -> Replica:
        for _ in range(TURNS_MAX):
            try:
                await replica.turn()
            except Killed:
                await replica.close()
                replica = Replica(self.database, self.redis_url, LIMITS)
            async with self.database.transaction() as session:
                status = (await session.execute(text("SELECT status FROM endpoint"))).scalar_one_or_none()
                if status == wanted:
                    return replica
                await session.execute(text("UPDATE host_health SET healthy = true"))
        raise AssertionError(f"the endpoint is not {wanted} but {status}")

    async def count(self, table: str) -> int:
        async with self.database.transaction() as session:
            return int((await session.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one())


async def test_a_control_plane_may_die_at_any_point_of_an_endpoints_life(
    database: Database, redis: redis_library.Redis, redis_url: str, call: Call
) -> None:
    lives = Lives(database, redis_url, call)
    await lives.prepare()
    everything, publishing = MortalDatabase(database.url), MortalDatabase(database.url)
    await lives.live(everything, publishing)
    settled, published = everything.writes, publishing.writes
    assert settled >= 8
    assert published >= 4
    mortals = [everything, publishing]
    for last in range(settled):
        mortals.append(MortalDatabase(database.url, last))
        await lives.live(mortals[-1], database)
    # What is committed and what Redis holds are two things, so here it matters on which side of the commit it dies.
    for last, after_commit in itertools.product(range(published), (False, True)):
        mortals.append(MortalDatabase(database.url, last, after_commit=after_commit))
        await lives.live(database, mortals[-1])
    for mortal in mortals:
        await mortal.dispose()
    table = table_in(redis)
    assert table is not None
    assert table.endpoints == ()


async def test_replicas_share_the_work_and_no_host_serves_two(
    database: Database, redis: redis_library.Redis, redis_url: str, call: Call, hosts: Hosts
) -> None:
    made = hosts.make(5)
    # Pools that overlap: each endpoint competes for its hosts with its neighbours.
    for number in range(4):
        await create_model(call, f"m{number}", made[number].url, made[number + 1].url)
        await create_config(call, f"c{number}", {"ModelName": f"m{number}"})
    planes = []
    for _ in range(2):
        own = Database(database.url)
        replica = Replica(own, redis_url, Limits(provision_seconds=60, eject_seconds=60))
        driver = Driver([replica.settle, replica.prober, replica.publish], own.listen)
        replica.prober.wake = driver.states[ProbeHosts.name].wake.set
        planes.append((own, replica, driver, asyncio.create_task(driver.run())))
    try:
        names = [f"e{number}" for number in range(4)]
        await asyncio.gather(
            *(call("CreateEndpoint", EndpointName=name, EndpointConfigName=f"c{name[1:]}") for name in names)
        )
        for name in names:
            await wait_for(call, name, "InService")
        table = table_in(redis)
        assert table is not None
        serving = [instance.identity for each in table.endpoints for instance in each.variants[0].instances]
        assert len(serving) == len(set(serving)) == 4
        await asyncio.gather(
            *(call("UpdateEndpoint", EndpointName=name, EndpointConfigName=f"c{name[1:]}") for name in names)
        )
        for name in names:
            await wait_for(call, name, "InService")
        await asyncio.gather(*(call("DeleteEndpoint", EndpointName=name) for name in names))
        for name in names:
            await wait_for(call, name, None)
        for _, _, driver, _ in planes:
            assert {name: state.failing_for for name, state in driver.states.items()} == dict.fromkeys(driver.states)
            assert sum(state.failures for state in driver.states.values()) == 0
    finally:
        for own, replica, driver, running in planes:
            driver.stop()
            await asyncio.wait_for(running, 10)
            await replica.close()
            await own.dispose()

"""Control planes that die at every point of an endpoint's life, and several that work side by side."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import redis as redis_library
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from controlplane.background.driver import Driver
from controlplane.background.probe_hosts import ProbeHosts
from controlplane.snapshot import Limits
from controlplane.store.session import Database
from controlplane.store.tables import Binding, Endpoint, HostHealth
from tests.controlplane.stage import (
    Call,
    Replica,
    create_config,
    create_model,
    status_of,
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
    """Runs one whole life of an endpoint after the other in one database, with replicas that die on the way."""

    def __init__(self, database: Database, redis_url: str, call: Call) -> None:
        self.database = database
        self.redis_url = redis_url
        self.call = call
        self.numbers = itertools.count()

    async def live(self, mortal: Database, publishing: Database) -> None:
        """Create, update, delete; the first replica sees the database through these two."""
        number = next(self.numbers)
        name, model, other = f"e{number}", f"m{number}", f"n{number}"
        urls = [f"http://10.{number // 250}.{number % 250}.{host}:8000" for host in range(1, 5)]
        await create_model(self.call, model, *urls[:2])
        await create_model(self.call, other, *urls[1:])
        await create_config(self.call, f"c{number}", {"ModelName": model, "InitialInstanceCount": 2})
        await create_config(self.call, f"d{number}", {"ModelName": other, "InitialInstanceCount": 2})
        replica = Replica(mortal, self.redis_url, LIMITS, publishing)
        try:
            await self.call("CreateEndpoint", EndpointName=name, EndpointConfigName=f"c{number}")
            replica = await self.turn_until(replica, name, "InService")
            await self.call("UpdateEndpoint", EndpointName=name, EndpointConfigName=f"d{number}")
            replica = await self.turn_until(replica, name, "InService")
            assert await self.hosts_of(name) == 2
            await self.call("DeleteEndpoint", EndpointName=name)
            replica = await self.turn_until(replica, name, None)
            assert await self.leftovers() == 0
        finally:
            await replica.close()

    async def turn_until(self, replica: Replica, name: str, status: str | None) -> Replica:
        for _ in range(TURNS_MAX):
            try:
                await replica.turn()
            except Killed:
                await replica.close()
                replica = Replica(self.database, self.redis_url, LIMITS)
            if await status_of(self.call, name) == status:
                return replica
            async with self.database.transaction() as session:
                await session.execute(text("UPDATE host_health SET healthy = true"))
        raise AssertionError(f"{name} is not {status} but {await status_of(self.call, name)}")

    async def hosts_of(self, name: str) -> int:
        async with self.database.transaction() as session:
            query = select(Binding).join(Endpoint, Endpoint.id == Binding.endpoint_id).where(Endpoint.name == name)  # type: ignore[arg-type]
            return len((await session.execute(query)).all())

    async def leftovers(self) -> int:
        async with self.database.transaction() as session:
            return sum([len((await session.execute(select(table))).all()) for table in (Binding, HostHealth, Endpoint)])


async def test_a_control_plane_may_die_at_any_point_of_an_endpoints_life(
    database: Database, redis: redis_library.Redis, redis_url: str, call: Call
) -> None:
    lives = Lives(database, redis_url, call)
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

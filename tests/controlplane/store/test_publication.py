"""The lock that numbers, and the notes of who is published."""

import asyncio

from sqlalchemy import text

from controlplane.store import publication
from controlplane.store.session import Database, one_snapshot


async def test_the_lock_is_had_before_the_snapshot(database: Database) -> None:
    async def number() -> int:
        async with database.transaction() as session:
            await one_snapshot(session)
            await publication.lock(session)
            row = await publication.get(session)
            row.generation += 1
            return row.generation

    # Were the snapshot older than the lock, all but the first would read what the others have replaced, and fail.
    assert sorted(await asyncio.gather(*(number() for _ in range(8)))) == list(range(1, 9))


async def known(database: Database) -> dict[str, tuple[int, int]]:
    async with database.transaction() as session:
        rows = await session.execute(text("SELECT endpoint_id, revision, generation FROM published_endpoint"))
        return {endpoint_id: (revision, generation) for endpoint_id, revision, generation in rows.all()}


async def record(database: Database, revisions: dict[str, int], generation: int) -> bool:
    async with database.transaction() as session:
        before = await publication.known_revisions(session)
        return await publication.record(session, before, revisions, generation)


async def test_a_revision_keeps_the_generation_that_first_held_it(database: Database) -> None:
    assert await record(database, {"a": 1, "b": 1}, 5)
    assert not await record(database, {"a": 1, "b": 1}, 6)
    assert await known(database) == {"a": (1, 5), "b": (1, 5)}
    assert await record(database, {"a": 2, "b": 1}, 7)
    assert await known(database) == {"a": (2, 7), "b": (1, 5)}


async def test_what_is_gone_is_forgotten(database: Database) -> None:
    await record(database, {"a": 1, "b": 1}, 5)
    assert not await record(database, {"b": 1}, 6)
    assert await known(database) == {"b": (1, 5)}

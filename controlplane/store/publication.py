"""The one row that numbers routing tables, and which revision of each endpoint a table holds."""

from collections.abc import Mapping

from sqlalchemy import delete, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from controlplane.store.tables import Publication, PublishedEndpoint


async def lock(session: AsyncSession) -> None:
    """Let nobody else number a table until this transaction ends.

    Locks the table, as the first statement of the transaction: unlike a row lock it waits before the transaction's
    snapshot is taken, so what is read afterwards includes everything committed before the lock was had.
    """
    await session.execute(text("LOCK TABLE publication IN SHARE ROW EXCLUSIVE MODE"))


async def get(session: AsyncSession) -> Publication:
    return (await session.execute(select(Publication))).scalar_one()


async def record(
    session: AsyncSession, known: Mapping[str, int], revisions: Mapping[str, int], generation: int
) -> bool:
    """Note that routes of ``generation`` hold these revisions, by endpoint id; return whether any was new.

    ``known`` is what was noted before. A revision that changed no routes is held by the present generation too.
    """
    changed = [
        {"endpoint_id": endpoint_id, "revision": revision, "generation": generation}
        for endpoint_id, revision in sorted(revisions.items())
        if known.get(endpoint_id) != revision
    ]
    if changed:
        query = insert(PublishedEndpoint).values(changed)
        updates = {"revision": query.excluded.revision, "generation": query.excluded.generation}
        await session.execute(query.on_conflict_do_update(index_elements=["endpoint_id"], set_=updates))
    gone = known.keys() - revisions.keys()
    if gone:
        await session.execute(delete(PublishedEndpoint).where(col(PublishedEndpoint.endpoint_id).in_(gone)))
    return bool(changed)


async def known_revisions(session: AsyncSession) -> dict[str, int]:
    rows = (await session.execute(select(PublishedEndpoint))).scalars()
    return {row.endpoint_id: row.revision for row in rows}

"""The audit: written once, read by filters, forgotten after its time."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from controlplane.store.tables import AuditRecord


def add(session: AsyncSession, record: AuditRecord) -> None:
    """Write the record when the transaction commits."""
    session.add(record)


async def latest(
    session: AsyncSession, *, equal: dict[str, str], after: datetime | None, before: datetime | None, limit: int
) -> Sequence[AuditRecord]:
    """Return at most ``limit`` records, the newest first. ``equal``: columns and the values they must have."""
    query = select(AuditRecord).order_by(col(AuditRecord.id).desc()).limit(limit)
    for name, value in equal.items():
        query = query.where(getattr(AuditRecord, name) == value)
    if after is not None:
        query = query.where(col(AuditRecord.at) >= after)
    if before is not None:
        query = query.where(col(AuditRecord.at) < before)
    return (await session.execute(query)).scalars().all()


async def forget(session: AsyncSession, before: datetime) -> int:
    """Delete older records; return how many."""
    old = delete(AuditRecord).where(col(AuditRecord.at) < before).returning(col(AuditRecord.id))
    return len((await session.execute(old)).all())

"""Keys of principals."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from controlplane.store.tables import AccessKey


async def find(session: AsyncSession, key_id: str, *, tenant: str = "", lock: bool = False) -> AccessKey | None:
    """Return the key of that id, of that tenant if one is given."""
    query = select(AccessKey).where(col(AccessKey.id) == key_id)
    if tenant:
        query = query.where(col(AccessKey.tenant) == tenant)
    if lock:
        query = query.with_for_update()
    return (await session.execute(query)).scalar_one_or_none()


async def page(session: AsyncSession, *, tenant: str | None, after: str | None, limit: int) -> Sequence[AccessKey]:
    """Return at most ``limit`` keys in the order of their ids, of that tenant if one is given."""
    identity = col(AccessKey.id).collate("C")
    query = select(AccessKey).order_by(identity).limit(limit)
    if tenant:
        query = query.where(col(AccessKey.tenant) == tenant)
    if after is not None:
        query = query.where(identity > after)
    return (await session.execute(query)).scalars().all()


async def valid(session: AsyncSession, now: datetime) -> Sequence[AccessKey]:
    """Return the keys that are enabled and have not run out, in the order of their ids."""
    lasting = or_(col(AccessKey.expires_at).is_(None), col(AccessKey.expires_at) > now)
    query = select(AccessKey).where(col(AccessKey.enabled), lasting)
    return (await session.execute(query.order_by(col(AccessKey.id).collate("C")))).scalars().all()


async def remove_expired(session: AsyncSession, now: datetime) -> int:
    """Forget keys whose grace is over; return how many."""
    query = delete(AccessKey).where(col(AccessKey.expires_at) <= now).returning(col(AccessKey.id))
    return len((await session.execute(query)).all())

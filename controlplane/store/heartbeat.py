"""When a control plane was last alive, so that registrations do not run out while nobody could renew them."""

from datetime import datetime, timedelta

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from controlplane.store.tables import Heartbeat, ModelHost

GAP = timedelta(seconds=5)
"""Silence that counts as an outage; a living plane beats every second."""
_PERIOD = timedelta(seconds=1)


async def beat(session: AsyncSession, now: datetime) -> int | None:
    """Note that a plane is alive; return how many registrations were extended, None if a beat was noted just now.

    After an outage of the planes or the database each registration has as long to run as it had when that began.
    """
    query = select(Heartbeat).with_for_update(skip_locked=True)
    row = (await session.execute(query)).scalar_one_or_none()
    if row is None or timedelta(0) <= now - row.beat_at < _PERIOD:
        return None
    gap, extended = now - row.beat_at, 0
    if gap > GAP:
        running = update(ModelHost).where(col(ModelHost.expires_at) > row.beat_at)
        later = running.values(expires_at=col(ModelHost.expires_at) + gap).returning(col(ModelHost.host_id))
        extended = len((await session.execute(later, execution_options={"synchronize_session": False})).all())
    row.beat_at = now
    return extended

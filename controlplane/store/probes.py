"""Which hosts are to be probed, and what the probes found."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from controlplane.store.tables import Binding, Host, HostHealth


@dataclass(frozen=True)
class Target:
    """A probe that one replica has claimed. ``claimed_until`` stands in its row until the result does."""

    host_id: int
    path: str
    base_url: str
    claimed_until: datetime


async def claim_due(session: AsyncSession, now: datetime, until: datetime, limit: int) -> list[Target]:
    """Take at most ``limit`` probes that are due, each for one replica; without a result they are due at ``until``."""
    due = (
        select(col(HostHealth.host_id), col(HostHealth.path))
        .where(col(HostHealth.next_probe_at) <= now)
        .order_by(col(HostHealth.next_probe_at))
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    keys = [tuple(row) for row in (await session.execute(due)).all()]
    if not keys:
        return []
    key = tuple_(col(HostHealth.host_id), col(HostHealth.path))
    query = update(HostHealth).where(key.in_(keys), col(Host.id) == col(HostHealth.host_id))
    taken = query.values(next_probe_at=until).returning(
        col(HostHealth.host_id), col(HostHealth.path), col(Host.base_url)
    )
    rows = (await session.execute(taken, execution_options={"synchronize_session": False})).all()
    return [Target(host_id, path, base_url, until) for host_id, path, base_url in rows]


async def lock_probed(session: AsyncSession, targets: Sequence[Target]) -> list[tuple[HostHealth, Target, bool]]:
    """Return the rows whose claim still stands, held, and whether the host waits to serve.

    A host that was released, or moved to another URL, since its probe was claimed has another due time by now.
    """
    by_key = {(target.host_id, target.path): target for target in targets}
    key = tuple_(col(HostHealth.host_id), col(HostHealth.path), col(HostHealth.next_probe_at))
    query = (
        select(HostHealth, col(Binding.pending_variant))
        .join(Binding, col(Binding.host_id) == col(HostHealth.host_id))
        .where(key.in_([(target.host_id, target.path, target.claimed_until) for target in targets]))
        .order_by(col(HostHealth.host_id), col(HostHealth.path))
        .with_for_update(of=HostHealth)
    )
    return [
        (health, by_key[health.host_id, health.path], claimed is not None)
        for health, claimed in (await session.execute(query)).all()
    ]


async def next_due(session: AsyncSession) -> datetime | None:
    """Return when the next probe is due."""
    return (await session.execute(select(func.min(col(HostHealth.next_probe_at))))).scalar_one()

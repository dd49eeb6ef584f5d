"""Which hosts are to be probed, and what the probes found."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, func, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from controlplane.store.tables import Binding, EndpointVariant, Host, HostHealth


@dataclass(frozen=True)
class Target:
    """A probe that one replica has claimed. ``claimed_until`` stands in its row until the result does."""

    host_id: int
    path: str
    base_url: str
    claimed_until: datetime
    authorization: bytes | None = None
    """The host's own credential, sealed; of the variant that waits for it, else of the one that it serves."""


async def claim_due(session: AsyncSession, now: datetime, until: datetime, limit: int) -> list[Target]:
    """Take at most ``limit`` probes that are due, each for one replica; without a result they are due at ``until``."""
    due = (
        select(col(HostHealth.host_id), col(HostHealth.path))
        .where(col(HostHealth.next_probe_at) <= now)
        .order_by(col(HostHealth.next_probe_at))
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    keys = [(row[0], row[1]) for row in (await session.execute(due)).all()]
    if not keys:
        return []
    key = tuple_(col(HostHealth.host_id), col(HostHealth.path))
    query = update(HostHealth).where(key.in_(keys), col(Host.id) == col(HostHealth.host_id))
    taken = query.values(next_probe_at=until).returning(
        col(HostHealth.host_id), col(HostHealth.path), col(Host.base_url)
    )
    rows = (await session.execute(taken, execution_options={"synchronize_session": False})).all()
    credentials = await _credentials(session, keys)
    return [Target(host, path, url, until, credentials.get((host, path))) for host, path, url in rows]


async def _credentials(session: AsyncSession, keys: Sequence[tuple[int, str]]) -> dict[tuple[int, str], bytes | None]:
    variant = col(EndpointVariant.name)
    query = (
        select(col(Binding.host_id), col(EndpointVariant.ping_path), col(EndpointVariant.host_authorization))
        .join(EndpointVariant, col(EndpointVariant.endpoint_id) == col(Binding.endpoint_id))
        .where(
            tuple_(col(Binding.host_id), col(EndpointVariant.ping_path)).in_(keys),
            or_(
                variant == col(Binding.pending_variant),
                and_(variant == col(Binding.active_variant), col(EndpointVariant.stage) == "ACTIVE"),
            ),
        )
        # ACTIVE before PENDING: what comes later stands.
        .order_by(col(EndpointVariant.stage))
    )
    return {(host_id, path): sealed for host_id, path, sealed in (await session.execute(query)).all()}


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

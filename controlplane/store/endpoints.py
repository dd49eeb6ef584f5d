"""Configurations' variants, and endpoints with their deployments, variants and hosts."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import Delete, Update, and_, delete, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from controlplane.store import tags
from controlplane.store.tables import (
    Binding,
    Deployment,
    Endpoint,
    EndpointVariant,
    Host,
    HostHealth,
    ProductionVariant,
)


async def config_variants(session: AsyncSession, config_id: int) -> Sequence[ProductionVariant]:
    """Return a configuration's variants in the order sent."""
    query = select(ProductionVariant).where(col(ProductionVariant.config_id) == config_id)
    return (await session.execute(query.order_by(col(ProductionVariant.position)))).scalars().all()


async def variants(session: AsyncSession, endpoint_id: str, stage: str) -> Sequence[EndpointVariant]:
    """Return an endpoint's variants of one stage, in order."""
    query = select(EndpointVariant).where(
        col(EndpointVariant.endpoint_id) == endpoint_id, col(EndpointVariant.stage) == stage
    )
    return (await session.execute(query.order_by(col(EndpointVariant.position)))).scalars().all()


async def begin_deployment(session: AsyncSession, deployment: Deployment, pending: Iterable[EndpointVariant]) -> None:
    session.add(deployment)
    session.add_all(pending)
    await session.flush()


async def claim(session: AsyncSession, endpoint_id: str, host_id: int, variant: EndpointVariant, now: datetime) -> bool:
    """Take a host for a variant, to be probed; False if another endpoint was faster."""
    query = insert(Binding).values(host_id=host_id, endpoint_id=endpoint_id, pending_variant=variant.name)
    query = query.on_conflict_do_update(
        index_elements=["host_id"],
        set_={"pending_variant": variant.name},
        where=col(Binding.endpoint_id) == endpoint_id,
    )
    if (await session.execute(query.returning(col(Binding.host_id)))).first() is None:
        return False
    health = insert(HostHealth).values(
        host_id=host_id, path=variant.ping_path, healthy=False, failures=0, changed_at=now, next_probe_at=now
    )
    await session.execute(health.on_conflict_do_nothing())
    return True


async def drop(session: AsyncSession, host_id: int) -> None:
    """Undo a claim; a host that serves nothing is free again."""
    await _change(
        session, delete(Binding).where(col(Binding.host_id) == host_id, col(Binding.active_variant).is_(None))
    )
    await _change(session, update(Binding).where(col(Binding.host_id) == host_id).values(pending_variant=None))


async def activate(session: AsyncSession, host_id: int) -> None:
    moved = {"active_variant": col(Binding.pending_variant), "pending_variant": None}
    await _change(session, update(Binding).where(col(Binding.host_id) == host_id).values(moved))


async def withdraw(session: AsyncSession, host_id: int) -> None:
    await _change(session, update(Binding).where(col(Binding.host_id) == host_id).values(active_variant=None))


async def release(session: AsyncSession, host_id: int) -> None:
    await _change(session, delete(Binding).where(col(Binding.host_id) == host_id))


async def finish_deployment(session: AsyncSession, deployment: Deployment) -> None:
    """Make the pending stage the active one; hosts that are not in it are free."""
    mine = col(Binding.endpoint_id) == deployment.endpoint_id
    await _change(session, delete(Binding).where(mine, col(Binding.pending_variant).is_(None)))
    moved = {"active_variant": col(Binding.pending_variant), "pending_variant": None}
    await _change(session, update(Binding).where(mine).values(moved))
    of_endpoint = col(EndpointVariant.endpoint_id) == deployment.endpoint_id
    await _change(session, delete(EndpointVariant).where(of_endpoint, col(EndpointVariant.stage) == "ACTIVE"))
    await _change(session, update(EndpointVariant).where(of_endpoint).values(stage="ACTIVE"))
    await session.delete(deployment)
    await session.flush()


async def abandon_deployment(session: AsyncSession, deployment: Deployment) -> None:
    """Forget the pending stage. Its claims must have been dropped."""
    await _change(
        session,
        delete(EndpointVariant).where(
            col(EndpointVariant.endpoint_id) == deployment.endpoint_id, col(EndpointVariant.stage) == "PENDING"
        ),
    )
    await session.delete(deployment)
    await session.flush()


async def remove(session: AsyncSession, endpoint: Endpoint) -> None:
    """Take the endpoint away with all that is its own; its hosts are free."""
    await _change(session, delete(Binding).where(col(Binding.endpoint_id) == endpoint.id))
    await tags.remove(session, tags.resource_of(endpoint))
    await session.delete(endpoint)
    await session.flush()


async def forget_health(session: AsyncSession, host_ids: Iterable[int], now: datetime) -> None:
    """Stop probing these hosts on paths that no variant wants of them any more."""
    ids = list(host_ids)
    wanted = (
        select(1)
        .select_from(Binding)
        .join(EndpointVariant, col(EndpointVariant.endpoint_id) == col(Binding.endpoint_id))
        .where(
            col(Binding.host_id) == col(HostHealth.host_id),
            col(EndpointVariant.ping_path) == col(HostHealth.path),
            or_(
                col(EndpointVariant.name) == col(Binding.pending_variant),
                and_(col(EndpointVariant.name) == col(Binding.active_variant), col(EndpointVariant.stage) == "ACTIVE"),
            ),
        )
        .correlate(HostHealth)
    )
    # Hosts before their health, as registrations do: in the other order the two could wait for each other.
    free = ~select(1).where(col(Binding.host_id) == col(Host.id)).exists()
    await _change(session, update(Host).where(col(Host.id).in_(ids), free).values(seen_at=now))
    await _change(session, delete(HostHealth).where(col(HostHealth.host_id).in_(ids), ~wanted.exists()))


async def _change(session: AsyncSession, statement: Update | Delete) -> None:
    # Rows that the session has loaded are left as they are: nobody looks at them again in a transaction that changes.
    await session.execute(statement, execution_options={"synchronize_session": False})

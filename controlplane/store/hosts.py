"""Hosts and the pools they are in."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, func, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from controlplane.store.tables import Binding, Endpoint, EndpointVariant, Host, HostHealth, ModelHost

_LOCK = 0x686F737473
"""Key of the transaction-level advisory lock under which pools change, "hosts" in ASCII."""
FORGET_AFTER = timedelta(days=1)
"""A host in no pool and in no endpoint's hands keeps its number for so long, should it come back."""


@dataclass(frozen=True)
class PoolRow:
    """A host of a pool with who holds it."""

    host: Host
    member: ModelHost
    endpoint_name: str | None
    variant_name: str | None
    healthy: bool | None


class OfAnotherTenant(Exception):
    """The host is in another tenant's pool or endpoint."""


async def lock_pools(session: AsyncSession) -> None:
    """Let no other transaction change a pool until this one ends."""
    await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


async def put_host(
    session: AsyncSession, identity: str, base_url: str, now: datetime, tenant: str = ""
) -> tuple[Host, bool]:
    """Return the host of that identity, made or moved to ``base_url``, and whether it moved: then it is probed anew.

    Raises OfAnotherTenant for a host that is in use there; one that nobody uses changes hands.
    """
    query = insert(Host).values(identity=identity, tenant=tenant, base_url=base_url, seen_at=now)
    query = query.on_conflict_do_nothing(index_elements=["identity"])
    await session.execute(query)
    # Held weakly enough for an endpoint to take it meanwhile.
    found = select(Host).where(col(Host.identity) == identity).with_for_update(key_share=True)
    host = (await session.execute(found.execution_options(populate_existing=True))).scalar_one()
    if host.tenant != tenant:
        used = select(1).where(col(Host.id) == host.id, or_(_is_member(now), _is_bound()))
        if (await session.execute(used)).first() is not None:
            raise OfAnotherTenant
        host.tenant = tenant
    moved = host.base_url != base_url
    if moved:
        host.base_url = base_url
        await session.execute(
            update(HostHealth)
            .where(col(HostHealth.host_id) == host.id)
            .values(healthy=False, failures=0, error=None, changed_at=now, next_probe_at=now)
        )
    host.seen_at = now
    await session.flush()
    return host, moved


async def put_member(session: AsyncSession, member: ModelHost) -> None:
    """Put a host into a pool, or renew its place."""
    values = member.model_dump()
    renewed = {name: values[name] for name in ("ttl_seconds", "expires_at")}
    query = insert(ModelHost).values(values)
    await session.execute(query.on_conflict_do_update(index_elements=["model_id", "host_id"], set_=renewed))


async def get_member(session: AsyncSession, model_id: int, identity: str) -> ModelHost | None:
    """Return a host's place in a pool, lapsed or not."""
    query = select(ModelHost).join(Host, col(Host.id) == col(ModelHost.host_id))
    query = query.where(col(ModelHost.model_id) == model_id, col(Host.identity) == identity)
    return (await session.execute(query)).scalar_one_or_none()


async def user_of_url(session: AsyncSession, base_url: str, identity: str, now: datetime) -> Host | None:
    """Return another host of the same URL that is in a pool or in an endpoint's hands."""
    query = select(Host).where(col(Host.base_url) == base_url, col(Host.identity) != identity)
    query = query.where(or_(_is_member(now), _is_bound()))
    return (await session.execute(query.limit(1))).scalars().first()


async def remove_member(session: AsyncSession, member: ModelHost) -> None:
    await session.delete(member)


async def remove_lapsed(session: AsyncSession, now: datetime) -> int:
    """Take hosts out of pools whose registration ran out, forget hosts long unused; return how many left a pool."""
    # A registration of the same host locks the same two rows in the opposite order.
    await lock_pools(session)
    lapsed = delete(ModelHost).where(col(ModelHost.expires_at) <= now).returning(col(ModelHost.host_id))
    count = len((await session.execute(lapsed)).all())
    unused = delete(Host).where(col(Host.seen_at) < now - FORGET_AFTER)
    # Any membership counts here: a lapsed one still refers to the host.
    await session.execute(unused.where(~_is_bound(), ~select(1).where(_member_of_host()).exists()))
    return count


async def list_members(
    session: AsyncSession, model_id: int, now: datetime, after: str | None, limit: int
) -> Sequence[PoolRow]:
    """Return at most ``limit`` hosts of a pool whose identity follows ``after``, in the order of identities."""
    identity = col(Host.identity).collate("C")
    query = (
        select(Host, ModelHost, Binding, col(Endpoint.name))
        .join(ModelHost, col(ModelHost.host_id) == col(Host.id))
        .outerjoin(Binding, col(Binding.host_id) == col(Host.id))
        .outerjoin(Endpoint, col(Endpoint.id) == col(Binding.endpoint_id))
        .where(col(ModelHost.model_id) == model_id, is_valid(now))
        .order_by(identity)
        .limit(limit)
    )
    if after is not None:
        query = query.where(identity > after)
    rows = (await session.execute(query)).all()
    health = await _health(session, [host.id for host, *_ in rows])
    return [
        PoolRow(
            host,
            member,
            endpoint_name,
            (binding.active_variant or binding.pending_variant) if binding else None,
            health.get(host.id) if binding else None,
        )
        for host, member, binding, endpoint_name in rows
    ]


def is_valid(now: datetime) -> ColumnElement[bool]:
    """Membership that has not lapsed."""
    return or_(col(ModelHost.expires_at).is_(None), col(ModelHost.expires_at) > now)


async def _health(session: AsyncSession, host_ids: Sequence[int]) -> dict[int, bool]:
    """Return whether bound hosts that were probed are healthy, by the ping path of their variant."""
    if not host_ids:
        return {}
    serving = func.coalesce(col(Binding.active_variant), col(Binding.pending_variant))
    query = (
        select(col(HostHealth.host_id), func.bool_or(col(HostHealth.healthy)))
        .join(Binding, col(Binding.host_id) == col(HostHealth.host_id))
        .join(
            EndpointVariant,
            (col(EndpointVariant.endpoint_id) == col(Binding.endpoint_id))
            & (col(EndpointVariant.name) == serving)
            & (col(EndpointVariant.ping_path) == col(HostHealth.path)),
        )
        .where(col(HostHealth.host_id).in_(host_ids), or_(col(HostHealth.healthy), col(HostHealth.error).is_not(None)))
        .group_by(col(HostHealth.host_id))
    )
    return {row[0]: row[1] for row in await session.execute(query)}


def _member_of_host() -> ColumnElement[bool]:
    return col(ModelHost.host_id) == col(Host.id)


def _is_member(now: datetime) -> ColumnElement[bool]:
    return select(1).where(_member_of_host(), is_valid(now)).exists()


def _is_bound() -> ColumnElement[bool]:
    return select(1).where(col(Binding.host_id) == col(Host.id)).exists()

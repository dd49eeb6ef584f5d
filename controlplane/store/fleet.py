"""Endpoints with all that decides about them, read whole: where the reconcilers, the publisher and Describe start."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from controlplane.store.hosts import is_valid
from controlplane.store.tables import (
    Binding,
    Deployment,
    Endpoint,
    EndpointVariant,
    Host,
    HostHealth,
    Model,
    ModelHost,
    PublishedEndpoint,
)


@dataclass(frozen=True)
class BoundHostRows:
    host: Host
    binding: Binding
    health: Mapping[str, HostHealth]
    """By ping path."""


@dataclass(frozen=True)
class PoolHostRow:
    """A host of a pool, and the endpoint that has it."""

    host_id: int
    identity: str
    endpoint_id: str | None
    endpoint_name: str | None


@dataclass(frozen=True)
class EndpointRows:
    endpoint: Endpoint
    deployment: Deployment | None
    active: tuple[EndpointVariant, ...]
    pending: tuple[EndpointVariant, ...]
    hosts: tuple[BoundHostRows, ...]
    """In the order of their ids."""
    published: PublishedEndpoint | None


@dataclass(frozen=True)
class Fleet:
    """``pools`` is by Model.id and holds the models that exist of those the endpoints need, in order of preference."""

    endpoints: tuple[EndpointRows, ...]
    pools: Mapping[int, tuple[PoolHostRow, ...]] = field(default_factory=dict)


async def load(session: AsyncSession, endpoint_id: str | None = None, *, pools_at: datetime | None = None) -> Fleet:
    """Return all endpoints, in the order of their names, or the one of that id (none if it is gone).

    With ``pools_at``, also the pools as they are at that moment.
    """
    endpoints = await _rows(session, select(Endpoint).order_by(col(Endpoint.name)), col(Endpoint.id), endpoint_id)
    deployments = await _rows(session, select(Deployment), col(Deployment.endpoint_id), endpoint_id)
    variants = await _rows(
        session,
        select(EndpointVariant).order_by(col(EndpointVariant.position)),
        col(EndpointVariant.endpoint_id),
        endpoint_id,
    )
    published = await _rows(session, select(PublishedEndpoint), col(PublishedEndpoint.endpoint_id), endpoint_id)
    hosts = await _bound_hosts(session, endpoint_id)
    deployment_of = {row.endpoint_id: row for row in deployments}
    published_of = {row.endpoint_id: row for row in published}
    variants_of: dict[tuple[str, str], list[EndpointVariant]] = defaultdict(list)
    for row in variants:
        variants_of[row.endpoint_id, row.stage].append(row)
    return Fleet(
        tuple(
            EndpointRows(
                endpoint,
                deployment_of.get(endpoint.id),
                tuple(variants_of[endpoint.id, "ACTIVE"]),
                tuple(variants_of[endpoint.id, "PENDING"]),
                tuple(hosts[endpoint.id]),
                published_of.get(endpoint.id),
            )
            for endpoint in endpoints
        ),
        await _pools(session, {row.model_id for row in variants}, pools_at) if pools_at else {},
    )


async def _rows(session: AsyncSession, query: Select[Any], column: Any, endpoint_id: str | None) -> list[Any]:
    if endpoint_id is not None:
        query = query.where(column == endpoint_id)
    return list((await session.execute(query)).scalars())


async def _bound_hosts(session: AsyncSession, endpoint_id: str | None) -> dict[str, list[BoundHostRows]]:
    query = select(Host, Binding).join(Binding, col(Binding.host_id) == col(Host.id)).order_by(col(Host.id))
    probes = select(HostHealth)
    if endpoint_id is not None:
        query = query.where(col(Binding.endpoint_id) == endpoint_id)
        probes = probes.join(Binding, col(Binding.host_id) == col(HostHealth.host_id))
        probes = probes.where(col(Binding.endpoint_id) == endpoint_id)
    health: dict[int, dict[str, HostHealth]] = defaultdict(dict)
    for row in (await session.execute(probes)).scalars():
        health[row.host_id][row.path] = row
    hosts: dict[str, list[BoundHostRows]] = defaultdict(list)
    for host, binding in (await session.execute(query)).all():
        hosts[binding.endpoint_id].append(BoundHostRows(host, binding, health[host.id]))
    return hosts


async def _pools(session: AsyncSession, model_ids: set[int], now: datetime) -> dict[int, tuple[PoolHostRow, ...]]:
    models = select(col(Model.id)).where(col(Model.id).in_(model_ids))
    pools: dict[int, list[PoolHostRow]] = {model_id: [] for model_id in (await session.execute(models)).scalars()}
    query = (
        select(col(ModelHost.model_id), col(Host.id), col(Host.identity), col(Binding.endpoint_id), col(Endpoint.name))
        .join(Host, col(Host.id) == col(ModelHost.host_id))
        .outerjoin(Binding, col(Binding.host_id) == col(Host.id))
        .outerjoin(Endpoint, col(Endpoint.id) == col(Binding.endpoint_id))
        .where(col(ModelHost.model_id).in_(pools), is_valid(now))
        .order_by(col(ModelHost.registered_at), col(Host.id))
    )
    for model_id, host_id, identity, endpoint_id, name in (await session.execute(query)).all():
        pools[model_id].append(PoolHostRow(host_id, identity, endpoint_id, name))
    return {model_id: tuple(rows) for model_id, rows in pools.items()}

"""Rows to routing table to Redis: numbered under a lock, made of everything there is, written only if it is new.

The lock matters: numbers from a sequence could commit out of order, and a late lower one would never be published.
"""

import logging
import time
from datetime import UTC, datetime

from sqlalchemy.ext.asyncio import AsyncSession

from contract.principals import Principal
from contract.routing_table import Endpoint, Instance, RoutingTable, Strategy, Variant, encode
from controlplane.background.redis_link import RedisLink
from controlplane.endpoint_status import SERVING
from controlplane.principals import principal_of
from controlplane.store import fleet, keys, publication
from controlplane.store.fleet import EndpointRows, Fleet
from controlplane.store.notices import notify
from controlplane.store.session import Database, one_snapshot
from controlplane.store.tables import EndpointVariant

log = logging.getLogger(__name__)

_INTERVAL_SECONDS = 1.0
"""Bounds how long Redis is without a table that it lost."""
_BUDGET_SECONDS = 10.0


class PublishRoutes:
    name = "publish_routes"

    def __init__(
        self, database: Database, redis: RedisLink, account_id: str, region: str, *, with_principals: bool = False
    ) -> None:
        """``with_principals``: AUTH is on, so that workers must know who may call."""
        self._database = database
        self._redis = redis
        self._account_id = account_id
        self._region = region
        self._with_principals = with_principals
        self.generation = 0
        self.published_at: float | None = None
        """When Redis was last seen to hold the present table, in seconds of time.time()."""

    async def run(self) -> float:
        # Before the lock: whatever Redis holds now was committed earlier, so the row must be as new.
        held = await self._redis.held()
        epoch, generation, table = await self._number(held)
        if held is not None and held[0] != epoch:
            log.warning(
                "Redis held the routing table of another database; it is replaced. If this comes again, control planes "
                "with different databases share this Redis: give each database a Redis of its own"
            )
        if held != (epoch, generation):
            await self._redis.publish(epoch, generation, table)
        self.generation, self.published_at = generation, time.time()
        return _INTERVAL_SECONDS

    async def _number(self, held: tuple[str, int] | None) -> tuple[str, int, bytes]:
        """Return the table as it is to be, with a new number if it differs from the last one."""
        async with self._database.transaction(budget_seconds=_BUDGET_SECONDS) as session:
            await one_snapshot(session)
            await publication.lock(session)
            row = await publication.get(session)
            found = await fleet.load(session)
            principals = await self._principals(session)
            table = routing_table(found, row.epoch, row.generation, self._account_id, self._region, principals)
            routes = encode(table)
            # Redis ahead of us: the database lost its latest commits. Workers take only what is newer than they have.
            ahead = held[1] if held is not None and held[0] == row.epoch else 0
            if routes != row.routes or ahead > row.generation:
                row.generation = max(row.generation, ahead) + 1
                table = routing_table(found, row.epoch, row.generation, self._account_id, self._region, principals)
                row.routes = routes = encode(table)
                row.published_at = datetime.now(UTC)
            revisions = {rows.endpoint.id: rows.endpoint.revision for rows in found.endpoints}
            known = await publication.known_revisions(session)
            if await publication.record(session, known, revisions, row.generation):
                await notify(session)
            return row.epoch, row.generation, routes

    async def _principals(self, session: AsyncSession) -> tuple[Principal, ...]:
        if not self._with_principals:
            return ()
        return tuple(map(principal_of, await keys.valid(session, datetime.now(UTC))))


def routing_table(
    found: Fleet,
    epoch: str,
    generation: int,
    account_id: str,
    region: str,
    principals: tuple[Principal, ...] = (),
) -> RoutingTable:
    """Return what traffic may see: serving endpoints, their variants in the stage that is live, the hosts of these."""
    endpoints = tuple(_endpoint(rows) for rows in found.endpoints if _is_served(rows))
    return RoutingTable(epoch, generation, account_id, region, endpoints, principals)


def _is_served(rows: EndpointRows) -> bool:
    return rows.endpoint.status in SERVING or (rows.endpoint.status == "Creating" and _promoted(rows))


def _promoted(rows: EndpointRows) -> bool:
    return rows.deployment is not None and rows.deployment.promoted


def _endpoint(rows: EndpointRows) -> Endpoint:
    variants = rows.pending if _promoted(rows) else rows.active
    return Endpoint(
        name=rows.endpoint.name,
        id=rows.endpoint.id,
        created=int(rows.endpoint.created_at.timestamp()),
        variants=tuple(_variant(rows, variant) for variant in variants),
        tenant=rows.endpoint.tenant,
    )


def _variant(rows: EndpointRows, variant: EndpointVariant) -> Variant:
    return Variant(
        name=variant.name,
        weight=variant.weight,
        instances=_instances(rows, variant),
        strategy=Strategy(variant.routing_strategy),
        prefix_length=variant.prefix_length,
        concurrency_threshold=variant.concurrency_threshold,
        ping_path=variant.ping_path,
        model_name=variant.model_name,
        host_authorization=variant.host_authorization or b"",
    )


def _instances(rows: EndpointRows, variant: EndpointVariant) -> tuple[Instance, ...]:
    instances = []
    for bound in rows.hosts:
        name = bound.binding.pending_variant if _promoted(rows) else bound.binding.active_variant
        if name == variant.name:
            health = bound.health.get(variant.ping_path)
            instances.append(
                Instance(bound.host.identity, bound.host.id, bound.host.base_url, bool(health and health.healthy))
            )
    return tuple(sorted(instances, key=lambda instance: instance.identity))

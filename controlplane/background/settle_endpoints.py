"""Moves every endpoint towards what was asked for: plans from all rows, then acts on one endpoint in one transaction.

Replicas share the work: an endpoint whose row another one holds is left to it. A kill at any point loses at most one
transaction, and the next run plans it again.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from redis.exceptions import RedisError
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from controlplane.background.redis_link import RedisLink
from controlplane.background.workers import Reports, follow
from controlplane.deployment import (
    Action,
    Activate,
    Claim,
    Drop,
    Finish,
    Move,
    Promote,
    Release,
    Withdraw,
    plan,
)
from controlplane.endpoint_status import REMOVED, Event, Status, next_status
from controlplane.errors import ServiceUnavailable
from controlplane.snapshot import Limits, snapshot
from controlplane.store import endpoints, fleet, heartbeat, hosts, publication
from controlplane.store.fleet import EndpointRows, Fleet
from controlplane.store.notices import notify
from controlplane.store.session import Database, one_snapshot
from controlplane.store.tables import Endpoint

log = logging.getLogger(__name__)

_IDLE_SECONDS = 1.0
"""Deadlines, lapses and replacements are due to within this; everything else comes with a notice."""
_WAITING_SECONDS = 0.1
"""While workers are waited for: no notice comes of their reports."""
_BUDGET_SECONDS = 10.0
_STEPS_MAX = 20
"""Transactions on one endpoint in one run; the longest way, from claim to finish, takes four."""


def utc_now() -> datetime:
    """Return the present in whole milliseconds, which is what the API shows of a time."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


class SettleEndpoints:
    name = "settle_endpoints"

    def __init__(
        self, database: Database, redis: RedisLink, limits: Limits, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._database = database
        self._redis = redis
        self._limits = limits
        self._now = now
        self.seen: Fleet = Fleet(())
        """All endpoints as the last run found them, for metrics."""

    async def run(self) -> float:
        await self._keep_pools()
        reports = await self._reports()
        async with self._database.transaction(budget_seconds=_BUDGET_SECONDS) as session:
            await one_snapshot(session)
            epoch = (await publication.get(session)).epoch
            found = await fleet.load(session, pools_at=self._now())
        self.seen = found
        faults = []
        for rows in found.endpoints:
            try:
                if self._plan(found, rows, epoch, reports):
                    await self._settle(rows.endpoint.id, epoch, reports)
            except ServiceUnavailable:
                raise
            except Exception as fault:
                # One endpoint whose rows make no sense must not hold up the others.
                fault.add_note(f"while settling endpoint {rows.endpoint.name}")
                faults.append(fault)
        if faults:
            raise faults[0]
        waiting = reports is not None and any(map(_waits_for_workers, found.endpoints))
        return _WAITING_SECONDS if waiting else _IDLE_SECONDS

    async def _keep_pools(self) -> None:
        """Take hosts whose registration has run out from their pools."""
        async with self._database.transaction(budget_seconds=_BUDGET_SECONDS) as session:
            now = self._now()
            extended = await heartbeat.beat(session, now)
            if extended is None:
                return
            if extended:
                log.info("no control plane was at work for a while; %d registrations run that much longer", extended)
            if await hosts.remove_lapsed(session, now):
                await notify(session)

    async def _reports(self) -> Reports:
        try:
            return await self._redis.workers()
        except (RedisError, OSError):
            # What needs the workers waits; the publisher's failure is the one that is logged.
            return None

    async def _settle(self, endpoint_id: str, epoch: str, reports: Reports) -> None:
        for _ in range(_STEPS_MAX):
            async with self._database.transaction(budget_seconds=_BUDGET_SECONDS) as session:
                query = select(Endpoint).where(col(Endpoint.id) == endpoint_id).with_for_update(skip_locked=True)
                if (await session.execute(query)).scalar_one_or_none() is None:
                    return
                found = await fleet.load(session, endpoint_id, pools_at=self._now())
                (rows,) = found.endpoints
                actions = self._plan(found, rows, epoch, reports)
                if not actions:
                    return
                before = rows.endpoint.status
                await act(session, rows, actions, self._now())
            _log(rows, before, actions)

    def _plan(self, found: Fleet, rows: EndpointRows, epoch: str, reports: Reports) -> tuple[Action, ...]:
        followed = follow(reports, epoch, rows)
        return plan(snapshot(found, rows, self._now(), self._limits, followed=followed))


async def act(session: AsyncSession, rows: EndpointRows, actions: Sequence[Action], now: datetime) -> None:
    """Do what was planned for an endpoint whose row the transaction holds."""
    touched = {bound.host.id for bound in rows.hosts}
    for action in actions:
        match action:
            case Claim(host_id, name):
                touched.add(host_id)
                variant = next(each for each in (rows.pending or rows.active) if each.name == name)
                await endpoints.claim(session, rows.endpoint.id, host_id, variant, now)
            case Drop(host_id):
                await endpoints.drop(session, host_id)
            case Activate(host_id):
                await endpoints.activate(session, host_id)
            case Withdraw(host_id):
                await endpoints.withdraw(session, host_id)
            case Release(host_id):
                await endpoints.release(session, host_id)
            case Promote():
                assert rows.deployment is not None
                rows.deployment.promoted = True
            case Finish():
                await _finish(session, rows, now)
            case Move(event, reason):
                await _move(session, rows, event, reason, now)
    if any(isinstance(action, Activate | Withdraw | Promote) for action in actions):
        rows.endpoint.revision += 1
    await session.flush()
    await endpoints.forget_health(session, touched, now)
    await notify(session)


async def _finish(session: AsyncSession, rows: EndpointRows, now: datetime) -> None:
    done = rows.deployment
    assert done is not None
    rows.endpoint.config_name = done.config_name
    rows.endpoint.sent_config = done.sent_config
    rows.endpoint.deployment_config = done.deployment_config
    await endpoints.finish_deployment(session, done)
    await _move(session, rows, Event.READY, None, now)


async def _move(session: AsyncSession, rows: EndpointRows, event: Event, reason: str | None, now: datetime) -> None:
    status = next_status(Status(rows.endpoint.status), event)
    if status is REMOVED:
        await endpoints.remove(session, rows.endpoint)
        return
    if rows.deployment is not None and (status is Status.FAILED or event is Event.ROLLED_BACK):
        await endpoints.abandon_deployment(session, rows.deployment)
    rows.endpoint.status = status
    rows.endpoint.modified_at = now
    if reason is not None:
        rows.endpoint.failure_reason = reason


def _waits_for_workers(rows: EndpointRows) -> bool:
    if rows.endpoint.status == Status.DELETING or (rows.deployment is not None and rows.deployment.promoted):
        return True
    return any(bound.binding.active_variant is None and bound.binding.pending_variant is None for bound in rows.hosts)


def _log(rows: EndpointRows, before: str, actions: Sequence[Action]) -> None:
    name = rows.endpoint.name
    hosts_by_id = {bound.host.id: bound.host.identity for bound in rows.hosts}
    for action in actions:
        match action:
            case Move(event, reason):
                after = next_status(Status(before), event) or "gone"
                log.info("endpoint %s: %s -> %s%s", name, before, after, f": {reason}" if reason else "")
            case Finish():
                log.info("endpoint %s: %s -> %s", name, before, Status.IN_SERVICE)
            case Activate(host_id) | Withdraw(host_id):
                what = "takes" if isinstance(action, Activate) else "gives up"
                log.info("endpoint %s %s host %s", name, what, hosts_by_id.get(host_id, host_id))
            case _:
                log.debug("endpoint %s: %s", name, action)

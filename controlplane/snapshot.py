"""From rows to what deployment.plan decides on. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane import deployment
from controlplane.deployment import BoundHost, Health, PoolHost, Snapshot, Variant
from controlplane.endpoint_status import Status
from controlplane.store.fleet import EndpointRows, Fleet
from controlplane.store.tables import EndpointVariant


@dataclass(frozen=True)
class Limits:
    """The settings that decide about endpoints, in seconds."""

    provision_seconds: float
    eject_seconds: float


def snapshot(fleet: Fleet, rows: EndpointRows, now: datetime, limits: Limits, *, followed: bool) -> Snapshot:
    """``followed``: every live worker follows the routes of this endpoint's present revision."""
    running = rows.deployment
    return Snapshot(
        status=Status(rows.endpoint.status),
        now=now,
        active=_variants(rows.active),
        pending=_variants(rows.pending),
        deadline=running.started_at + timedelta(seconds=limits.provision_seconds) if running else None,
        promoted=running is not None and running.promoted,
        same_config=running is not None and running.kind == "CAPACITY",
        hosts=_hosts(rows),
        pools=_pools(fleet, rows),
        followed=followed,
        eject_seconds=limits.eject_seconds,
    )


def progress(fleet: Fleet, rows: EndpointRows, now: datetime) -> Mapping[str, str]:
    """Return what each pending variant waits for, by name; empty text once it only waits for the workers."""
    # Neither limit matters to what is missing.
    seen = snapshot(fleet, rows, now, Limits(0, 0), followed=False)
    return {variant.name: deployment.blocked_by(seen, variant) for variant in seen.pending}


def _variants(rows: Sequence[EndpointVariant]) -> tuple[Variant, ...]:
    return tuple(Variant(row.name, row.model_id, row.model_name, row.ping_path, row.instance_count) for row in rows)


def _hosts(rows: EndpointRows) -> tuple[BoundHost, ...]:
    return tuple(
        BoundHost(
            bound.host.id,
            bound.host.identity,
            bound.binding.active_variant,
            bound.binding.pending_variant,
            {path: Health(row.healthy, row.changed_at, row.error) for path, row in bound.health.items()},
        )
        for bound in rows.hosts
    )


def _pools(fleet: Fleet, rows: EndpointRows) -> dict[int, tuple[PoolHost, ...]]:
    wanted = {variant.model_id for variant in (*rows.active, *rows.pending)}
    return {
        model_id: tuple(
            PoolHost(
                member.host_id,
                member.identity,
                member.endpoint_name if member.endpoint_id != rows.endpoint.id else None,
            )
            for member in fleet.pools[model_id]
        )
        for model_id in wanted & fleet.pools.keys()
    }

"""Rows to snapshots."""

from datetime import UTC, datetime, timedelta
from typing import Any

from controlplane.deployment import PoolHost
from controlplane.endpoint_status import Status
from controlplane.snapshot import Limits, progress, snapshot
from controlplane.store.fleet import BoundHostRows, EndpointRows, Fleet, PoolHostRow
from controlplane.store.tables import Binding, Deployment, Endpoint, EndpointVariant, Host, HostHealth

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def variant(stage: str, model_id: int, **values: Any) -> EndpointVariant:
    return EndpointVariant(
        endpoint_id="1",
        stage=stage,
        name="v",
        position=0,
        model_id=model_id,
        model_name=f"m{model_id}",
        ping_path="/ping",
        instance_count=2,
        weight=1.0,
        routing_strategy="RANDOM",
        sent={},
        started_at=NOW,
        **values,
    )


def fleet() -> Fleet:
    endpoint = Endpoint(
        id="1", name="e", status="Updating", config_name="c", sent_config={}, created_at=NOW, modified_at=NOW
    )
    deployment = Deployment(endpoint_id="1", kind="UPDATE", config_name="d", sent_config={}, started_at=NOW)
    health = HostHealth(host_id=7, path="/ping", healthy=True, changed_at=NOW, next_probe_at=NOW)
    host = BoundHostRows(
        Host(id=7, identity="h7", base_url="u", seen_at=NOW),
        Binding(host_id=7, endpoint_id="1", active_variant="v", pending_variant="v"),
        {"/ping": health},
    )
    rows = EndpointRows(endpoint, deployment, (variant("ACTIVE", 1),), (variant("PENDING", 2),), (host,), None)
    pool = (PoolHostRow(7, "h7", "1", "e"), PoolHostRow(8, "h8", "2", "other"), PoolHostRow(9, "h9", None, None))
    return Fleet((rows,), {2: pool, 3: ()})


def test_a_snapshot_has_what_the_plan_needs() -> None:
    found = fleet()
    seen = snapshot(found, found.endpoints[0], NOW, Limits(provision_seconds=600, eject_seconds=10), followed=True)
    assert (seen.status, seen.followed, seen.promoted, seen.eject_seconds) == (Status.UPDATING, True, False, 10)
    assert not seen.same_config
    assert seen.deadline == NOW + timedelta(seconds=600)
    assert [(each.model_id, each.count) for each in (*seen.active, *seen.pending)] == [(1, 2), (2, 2)]
    assert [(host.id, host.active, host.pending) for host in seen.hosts] == [(7, "v", "v")]
    assert seen.hosts[0].health["/ping"].healthy
    # Model 1 is gone and so has no pool; the endpoint's own host has no other holder.
    assert seen.pools == {2: (PoolHost(7, "h7"), PoolHost(8, "h8", "other"), PoolHost(9, "h9"))}


def test_progress_is_told_for_every_pending_variant() -> None:
    found = fleet()
    assert progress(found, found.endpoints[0], NOW) == {"v": 'Instances are being taken from the pool of model "m2".'}

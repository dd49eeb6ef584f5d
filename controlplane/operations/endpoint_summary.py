"""What DescribeEndpoint says about an endpoint's variants and its running deployment. Pure: rows in, members out."""

from collections.abc import Mapping
from typing import Any

from controlplane.store.fleet import EndpointRows
from controlplane.store.tables import Deployment, EndpointVariant

WAITING_FOR_WORKERS = "Instances are healthy; waiting until every worker follows the new routes."


def variant_summaries(rows: EndpointRows, progress: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return ProductionVariants. Current* is what serves now, Desired* what was last asked for."""
    desired = {variant.name: variant for variant in rows.active}
    running = rows.deployment if rows.deployment and rows.deployment.kind == "CAPACITY" else None
    if running is not None:
        desired |= {variant.name: variant for variant in rows.pending}
    summaries = []
    for variant in rows.active:
        wanted = desired[variant.name]
        live = wanted if running is not None and running.promoted else variant
        summary = {
            "VariantName": variant.name,
            "CurrentWeight": live.weight,
            "DesiredWeight": wanted.weight,
            "CurrentInstanceCount": _healthy(rows, variant, claimed=live is not variant),
            "DesiredInstanceCount": wanted.instance_count,
            "RoutingConfig": variant.sent.get("RoutingConfig"),
        }
        if running is not None and (wanted.weight, wanted.instance_count) != (variant.weight, variant.instance_count):
            summary["VariantStatus"] = [_status(running, "Updating", progress.get(variant.name, ""))]
        summaries.append(summary)
    return summaries


def pending_summary(rows: EndpointRows, progress: Mapping[str, str]) -> dict[str, Any] | None:
    """Return PendingDeploymentSummary: there while an endpoint is created or updated to a configuration."""
    running = rows.deployment
    if running is None or running.kind == "CAPACITY":
        return None
    status = "Creating" if running.kind == "CREATE" else "Updating"
    return {
        "EndpointConfigName": running.config_name,
        "ProductionVariants": [
            {
                "VariantName": variant.name,
                "CurrentWeight": variant.weight if running.promoted else 0.0,
                "DesiredWeight": variant.weight,
                "CurrentInstanceCount": _healthy(rows, variant, claimed=True),
                "DesiredInstanceCount": variant.instance_count,
                "InstanceType": variant.sent.get("InstanceType"),
                "RoutingConfig": variant.sent.get("RoutingConfig"),
                "VariantStatus": [_status(running, status, progress.get(variant.name, ""))],
            }
            for variant in rows.pending
        ],
        "StartTime": running.started_at,
    }


def _status(running: Deployment, status: str, missing: str) -> dict[str, Any]:
    """Return one ProductionVariantStatus. Status values and the length of the message are AWS's."""
    return {
        "Status": status if missing else "ActivatingTraffic",
        "StatusMessage": (missing or WAITING_FOR_WORKERS)[:1024],
        "StartTime": running.started_at,
    }


def _healthy(rows: EndpointRows, variant: EndpointVariant, *, claimed: bool) -> int:
    """Return how many hosts that serve the variant, or are claimed for it, are healthy."""
    count = 0
    for bound in rows.hosts:
        name = bound.binding.pending_variant if claimed else bound.binding.active_variant
        health = bound.health.get(variant.ping_path)
        count += name == variant.name and health is not None and health.healthy
    return count

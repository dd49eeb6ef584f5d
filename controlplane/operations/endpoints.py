"""CreateEndpoint, DescribeEndpoint, UpdateEndpoint, ListEndpoints, DeleteEndpoint, UpdateEndpointWeightsAndCapacities.

An operation records what is wanted and returns; background/settle_endpoints.py brings it about.
"""

import secrets
from collections.abc import Iterator, Sequence

from sqlalchemy import ColumnElement
from sqlmodel import col

from controlplane import snapshot
from controlplane.endpoint_status import Event, Status, allows, next_status
from controlplane.errors import (
    ValidationException,
    endpoint_failed,
    endpoint_in_progress,
    existing_endpoint,
    not_found_endpoint,
    repeated_variant,
    unknown_variants,
)
from controlplane.operations.context import Context
from controlplane.operations.endpoint_configs import find_endpoint_config
from controlplane.operations.endpoint_summary import pending_summary, variant_summaries
from controlplane.operations.listing import list_page
from controlplane.operations.models import find_model
from controlplane.shapes.base import Failure
from controlplane.shapes.deployment import DeploymentConfigShape
from controlplane.shapes.endpoints import (
    CreateEndpointInput,
    CreateEndpointOutput,
    DeleteEndpointInput,
    DescribeEndpointInput,
    DescribeEndpointOutput,
    EndpointSummary,
    ListEndpointsInput,
    ListEndpointsOutput,
    UpdateEndpointInput,
    UpdateEndpointOutput,
    UpdateEndpointWeightsAndCapacitiesInput,
    UpdateEndpointWeightsAndCapacitiesOutput,
)
from controlplane.shapes.messages import failures_message
from controlplane.store import endpoints, fleet, named, tags
from controlplane.store.notices import notify
from controlplane.store.session import one_snapshot
from controlplane.store.tables import Deployment, Endpoint, EndpointConfig, EndpointVariant


async def create_endpoint(context: Context, request: CreateEndpointInput) -> CreateEndpointOutput:
    """Raises ValidationException if the name is taken, or the configuration or one of its models does not exist."""
    arn = context.arn("endpoint", request.EndpointName)
    config = await find_endpoint_config(context, request.EndpointConfigName)
    endpoint = Endpoint(
        id=secrets.token_hex(8),
        name=request.EndpointName,
        tenant=context.caller.tenant,
        status=Status.CREATING,
        config_name=config.name,
        sent_config=config.sent,
        created_at=context.now,
        modified_at=context.now,
    )
    try:
        await named.insert(context.session, endpoint)
    except named.NameTaken:
        raise existing_endpoint(arn) from None
    await _begin(
        context, endpoint, "CREATE", config, await _config_variants(context, endpoint, config), request.DeploymentConfig
    )
    await tags.put(context.session, tags.resource_of(endpoint), {tag.Key: tag.Value for tag in request.Tags or ()})
    return CreateEndpointOutput(EndpointArn=arn)


async def describe_endpoint(context: Context, request: DescribeEndpointInput) -> DescribeEndpointOutput:
    await one_snapshot(context.session)
    endpoint = await _find(context, request.EndpointName)
    found = await fleet.load(context.session, endpoint.id, pools_at=context.now)
    rows = found.endpoints[0]
    progress = snapshot.progress(found, rows, context.now)
    return DescribeEndpointOutput.model_validate(
        {
            "EndpointName": endpoint.name,
            "EndpointArn": context.arn("endpoint", endpoint.name),
            "EndpointConfigName": endpoint.config_name,
            "ProductionVariants": variant_summaries(rows, progress) or None,
            "EndpointStatus": endpoint.status,
            "FailureReason": endpoint.failure_reason,
            "CreationTime": endpoint.created_at,
            "LastModifiedTime": endpoint.modified_at,
            "LastDeploymentConfig": endpoint.deployment_config,
            "PendingDeploymentSummary": pending_summary(rows, progress),
            "MetricsConfig": endpoint.sent_config.get("MetricsConfig"),
            "CrossRegionTrafficConfig": endpoint.sent_config.get("CrossRegionTrafficConfig"),
        }
    )


async def list_endpoints(context: Context, request: ListEndpointsInput) -> ListEndpointsOutput:
    rows, token = await list_page(context, Endpoint, request, *_filters(context, request))
    summaries = tuple(
        EndpointSummary(
            EndpointName=row.name,
            EndpointArn=context.arn("endpoint", row.name),
            CreationTime=row.created_at,
            LastModifiedTime=row.modified_at,
            EndpointStatus=row.status,
        )
        for row in rows
    )
    return ListEndpointsOutput(Endpoints=summaries, NextToken=token)


def _filters(context: Context, request: ListEndpointsInput) -> Iterator[ColumnElement[bool]]:
    if context.caller.endpoints:
        yield named.name_matches(Endpoint, context.caller.endpoints)
    if request.StatusEquals is not None:
        yield col(Endpoint.status) == request.StatusEquals
    if request.LastModifiedTimeBefore is not None:
        yield col(Endpoint.modified_at) < request.LastModifiedTimeBefore
    if request.LastModifiedTimeAfter is not None:
        yield col(Endpoint.modified_at) >= request.LastModifiedTimeAfter


async def update_endpoint(context: Context, request: UpdateEndpointInput) -> UpdateEndpointOutput:
    """Begin an update to a configuration; to the one in force it changes nothing and is in service again at once.

    Raises ValidationException if the endpoint is busy or Failed, or the old or the new configuration does not exist.
    """
    endpoint = await _find(context, request.EndpointName, lock=True)
    _check_allowed(context, endpoint, Event.UPDATE)
    # AWS refuses an update from a configuration that was deleted, and names that one.
    await find_endpoint_config(context, endpoint.config_name, owner=endpoint.tenant)
    config = await find_endpoint_config(context, request.EndpointConfigName, owner=endpoint.tenant)
    pending = await _config_variants(context, endpoint, config)
    if request.RetainAllVariantProperties:
        old = {variant.name: variant for variant in await endpoints.variants(context.session, endpoint.id, "ACTIVE")}
        for variant in pending:
            _retain(variant, old.get(variant.name), request.excluded)
        _check_weights(pending, "RetainAllVariantProperties")
    deployment_config = request.DeploymentConfig
    if request.RetainDeploymentConfig and endpoint.deployment_config is not None:
        deployment_config = DeploymentConfigShape.model_validate(endpoint.deployment_config)
    await _begin(context, endpoint, "UPDATE", config, pending, deployment_config)
    _move(endpoint, Event.UPDATE)
    return UpdateEndpointOutput(EndpointArn=context.arn("endpoint", endpoint.name))


async def update_endpoint_weights_and_capacities(
    context: Context, request: UpdateEndpointWeightsAndCapacitiesInput
) -> UpdateEndpointWeightsAndCapacitiesOutput:
    """Change weights and counts of variants, all or none. What is not mentioned stays.

    Raises ValidationException for an unknown or repeated variant, if no weight is left above 0, or the endpoint is
    busy or Failed.
    """
    endpoint = await _find(context, request.EndpointName, lock=True)
    _check_allowed(context, endpoint, Event.UPDATE_CAPACITY)
    active = await endpoints.variants(context.session, endpoint.id, "ACTIVE")
    pending = {variant.name: _copy(variant, context) for variant in active}
    unknown = [item.VariantName for item in request.DesiredWeightsAndCapacities if item.VariantName not in pending]
    if unknown:
        raise unknown_variants(unknown, endpoint.config_name)
    seen = set()
    for item in request.DesiredWeightsAndCapacities:
        if item.VariantName in seen:
            raise repeated_variant(item.VariantName)
        seen.add(item.VariantName)
        variant = pending[item.VariantName]
        variant.weight = variant.weight if item.DesiredWeight is None else item.DesiredWeight
        if item.DesiredInstanceCount is not None:
            variant.instance_count = item.DesiredInstanceCount
    _check_weights(list(pending.values()), "DesiredWeightsAndCapacities")
    deployment = Deployment(
        endpoint_id=endpoint.id,
        kind="CAPACITY",
        config_name=endpoint.config_name,
        sent_config=endpoint.sent_config,
        deployment_config=endpoint.deployment_config,
        started_at=context.now,
    )
    await endpoints.begin_deployment(context.session, deployment, pending.values())
    _move(endpoint, Event.UPDATE_CAPACITY)
    await _touch(context, endpoint)
    return UpdateEndpointWeightsAndCapacitiesOutput(EndpointArn=context.arn("endpoint", endpoint.name))


async def delete_endpoint(context: Context, request: DeleteEndpointInput) -> None:
    """Take the endpoint out of the routes; it is gone, and its hosts are free, once no worker serves it."""
    endpoint = await _find(context, request.EndpointName, lock=True)
    _check_allowed(context, endpoint, Event.DELETE)
    _move(endpoint, Event.DELETE)
    endpoint.revision += 1
    await _touch(context, endpoint)


async def _find(context: Context, name: str, *, lock: bool = False) -> Endpoint:
    endpoint = await named.find(context.session, Endpoint, name, tenant=context.caller.tenant, lock=lock)
    if endpoint is None:
        raise not_found_endpoint(context.arn("endpoint", name))
    return endpoint


def _check_allowed(context: Context, endpoint: Endpoint, event: Event) -> None:
    status = Status(endpoint.status)
    if not allows(status, event):
        arn = context.arn("endpoint", endpoint.name)
        raise endpoint_failed(arn) if status is Status.FAILED else endpoint_in_progress(arn)


def _move(endpoint: Endpoint, event: Event) -> None:
    status = next_status(Status(endpoint.status), event)
    assert status is not None
    endpoint.status = status


async def _begin(
    context: Context,
    endpoint: Endpoint,
    kind: str,
    config: EndpointConfig,
    pending: Sequence[EndpointVariant],
    deployment_config: DeploymentConfigShape | None,
) -> None:
    deployment = Deployment(
        endpoint_id=endpoint.id,
        kind=kind,
        config_name=config.name,
        sent_config=config.sent,
        deployment_config=deployment_config.to_wire() if deployment_config else None,
        started_at=context.now,
    )
    await endpoints.begin_deployment(context.session, deployment, pending)
    await _touch(context, endpoint)


async def _touch(context: Context, endpoint: Endpoint) -> None:
    """Note that a caller changed the endpoint, and wake the reconcilers when it is committed."""
    endpoint.failure_reason = None
    endpoint.modified_at = context.now
    await notify(context.session)


async def _config_variants(context: Context, endpoint: Endpoint, config: EndpointConfig) -> list[EndpointVariant]:
    """Return the configuration's variants as the endpoint's pending ones. Raises if a model does not exist."""
    pending = []
    for variant in await endpoints.config_variants(context.session, config.id):
        model = await find_model(context, variant.model_name, owner=endpoint.tenant or config.tenant)
        own = {"endpoint_id": endpoint.id, "stage": "PENDING", "started_at": context.now}
        of_model = {
            "model_id": model.id,
            "model_name": model.name,
            "ping_path": model.ping_path,
            "host_authorization": model.host_authorization,
        }
        pending.append(EndpointVariant(**{**variant.model_dump(exclude={"config_id"}), **of_model, **own}))
    return pending


def _copy(variant: EndpointVariant, context: Context) -> EndpointVariant:
    return EndpointVariant(**{**variant.model_dump(), "stage": "PENDING", "started_at": context.now})


def _retain(variant: EndpointVariant, old: EndpointVariant | None, excluded: frozenset[str]) -> None:
    """Keep what was live, except what is excluded; a variant that is new has nothing to keep."""
    if old is not None and "DesiredInstanceCount" not in excluded:
        variant.instance_count = old.instance_count
    if old is not None and "DesiredWeight" not in excluded:
        variant.weight = old.weight


def _check_weights(variants: Sequence[EndpointVariant], member: str) -> None:
    if not any(variant.weight > 0 for variant in variants):
        constraint = "At least one variant must keep a weight greater than 0, or no request could be served"
        raise ValidationException(failures_message([Failure((member,), constraint)]))

"""CreateEndpointConfig, DescribeEndpointConfig, ListEndpointConfigs, DeleteEndpointConfig. A config is immutable."""

from controlplane.errors import existing_endpoint_config, not_found_endpoint_config
from controlplane.operations.context import Context
from controlplane.operations.listing import list_page
from controlplane.operations.models import find_model
from controlplane.shapes.endpoint_configs import (
    CreateEndpointConfigInput,
    CreateEndpointConfigOutput,
    DeleteEndpointConfigInput,
    DescribeEndpointConfigInput,
    DescribeEndpointConfigOutput,
    EndpointConfigSummary,
    ListEndpointConfigsInput,
    ListEndpointConfigsOutput,
)
from controlplane.shapes.variants import ProductionVariant as VariantShape
from controlplane.store import endpoints, named, tags
from controlplane.store.tables import EndpointConfig, ProductionVariant

DEFAULT_STRATEGY = "RANDOM"
"""Without a RoutingConfig, as the SageMaker announcement of routing strategies states."""


async def create_endpoint_config(context: Context, request: CreateEndpointConfigInput) -> CreateEndpointConfigOutput:
    """Raises ValidationException if the name is taken or a model does not exist."""
    arn = context.arn("endpoint-config", request.EndpointConfigName)
    for variant in request.ProductionVariants:
        await find_model(context, variant.ModelName or "")
    sent = request.to_wire()
    sent.pop("Tags", None)
    variants = sent.pop("ProductionVariants")
    config = EndpointConfig(
        name=request.EndpointConfigName, tenant=context.caller.tenant, sent=sent, created_at=context.now
    )
    try:
        await named.insert(context.session, config)
    except named.NameTaken:
        raise existing_endpoint_config(arn) from None
    context.session.add_all(
        _variant_row(config, position, variant, variants[position])
        for position, variant in enumerate(request.ProductionVariants)
    )
    await tags.put(context.session, tags.resource_of(config), {tag.Key: tag.Value for tag in request.Tags or ()})
    return CreateEndpointConfigOutput(EndpointConfigArn=arn)


def _variant_row(
    config: EndpointConfig, position: int, variant: VariantShape, sent: dict[str, object]
) -> ProductionVariant:
    routing = variant.RoutingConfig
    prefix = routing.PrefixAwareRoutingConfig if routing else None
    return ProductionVariant(
        config_id=config.id,
        position=position,
        name=variant.VariantName,
        model_name=variant.ModelName or "",
        instance_count=variant.instance_count,
        weight=variant.InitialVariantWeight,
        routing_strategy=routing.RoutingStrategy if routing else DEFAULT_STRATEGY,
        prefix_length=prefix.PrefixLength if prefix else None,
        concurrency_threshold=prefix.ConcurrencyThreshold if prefix else None,
        sent=sent,
    )


async def describe_endpoint_config(
    context: Context, request: DescribeEndpointConfigInput
) -> DescribeEndpointConfigOutput:
    config = await find_endpoint_config(context, request.EndpointConfigName)
    variants = await endpoints.config_variants(context.session, config.id)
    return DescribeEndpointConfigOutput.model_validate(
        {
            **config.sent,
            "EndpointConfigArn": context.arn("endpoint-config", config.name),
            "ProductionVariants": [variant.sent for variant in variants],
            "CreationTime": config.created_at,
        }
    )


async def list_endpoint_configs(context: Context, request: ListEndpointConfigsInput) -> ListEndpointConfigsOutput:
    configs, token = await list_page(context, EndpointConfig, request)
    summaries = tuple(
        EndpointConfigSummary(
            EndpointConfigName=config.name,
            EndpointConfigArn=context.arn("endpoint-config", config.name),
            CreationTime=config.created_at,
        )
        for config in configs
    )
    return ListEndpointConfigsOutput(EndpointConfigs=summaries, NextToken=token)


async def delete_endpoint_config(context: Context, request: DeleteEndpointConfigInput) -> None:
    """Forget the configuration. Endpoints that use it go on; UpdateEndpoint then refuses them, as AWS does."""
    config = await find_endpoint_config(context, request.EndpointConfigName, lock=True)
    await tags.remove(context.session, tags.resource_of(config))
    await context.session.delete(config)


async def find_endpoint_config(context: Context, name: str, *, owner: str = "", lock: bool = False) -> EndpointConfig:
    """Return the configuration, held if ``lock``. Raises ValidationException if there is none of that name.

    ``owner``: tenant of the endpoint that is to use it, as for find_model.
    """
    tenant = context.caller.tenant or owner
    config = await named.find(context.session, EndpointConfig, name, tenant=tenant, lock=lock)
    if config is None:
        raise not_found_endpoint_config(context.arn("endpoint-config", name))
    return config

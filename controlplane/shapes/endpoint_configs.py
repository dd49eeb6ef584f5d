"""CreateEndpointConfig, DescribeEndpointConfig, ListEndpointConfigs, DeleteEndpointConfig."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from controlplane.shapes import types as t
from controlplane.shapes.base import Failure, Items, Refused, Shape, StoredOnly
from controlplane.shapes.common import (
    NO_CONTAINERS,
    OWN_METRICS,
    CrossRegionTrafficConfigShape,
    ListInput,
    MetricsConfigShape,
    TagList,
    VpcConfigShape,
    repeated,
)
from controlplane.shapes.refused import AsyncInferenceConfigShape, DataCaptureConfigShape, ExplainerConfigShape
from controlplane.shapes.variants import ProductionVariantList


class CreateEndpointConfigInput(Shape):
    EndpointConfigName: t.EndpointConfigName
    ProductionVariants: ProductionVariantList
    DataCaptureConfig: Annotated[DataCaptureConfigShape | None, Refused()] = None
    Tags: TagList | None = None
    KmsKeyId: Annotated[t.KmsKeyId | None, NO_CONTAINERS] = None
    AsyncInferenceConfig: Annotated[AsyncInferenceConfigShape | None, Refused()] = None
    ExplainerConfig: Annotated[ExplainerConfigShape | None, Refused()] = None
    ShadowProductionVariants: Annotated[ProductionVariantList | None, Refused()] = None
    ExecutionRoleArn: Annotated[t.RoleArn | None, NO_CONTAINERS] = None
    VpcConfig: Annotated[VpcConfigShape | None, NO_CONTAINERS] = None
    EnableNetworkIsolation: Annotated[bool | None, NO_CONTAINERS] = None
    MetricsConfig: Annotated[MetricsConfigShape | None, OWN_METRICS] = None
    CrossRegionTrafficConfig: Annotated[
        CrossRegionTrafficConfigShape | None,
        StoredOnly("limits traffic of inference routers between regions, which do not exist here"),
    ] = None

    @classmethod
    def rules(cls, sent: Mapping[str, Any]) -> Iterator[Failure]:
        yield from repeated("Tags", "Key", sent.get("Tags"))
        yield from repeated("ProductionVariants", "VariantName", sent.get("ProductionVariants"))
        if _no_traffic(sent.get("ProductionVariants")):
            yield Failure(
                ("ProductionVariants",),
                "At least one variant must have InitialVariantWeight greater than 0, or no request could be served",
            )


def _no_traffic(variants: object) -> bool:
    if not isinstance(variants, list) or not variants:
        return False
    weights = [variant.get("InitialVariantWeight") if isinstance(variant, Mapping) else None for variant in variants]
    return all(type(weight) in (int, float) and weight == 0 for weight in weights)


class CreateEndpointConfigOutput(Shape):
    EndpointConfigArn: t.EndpointConfigArn


class DescribeEndpointConfigInput(Shape):
    EndpointConfigName: t.EndpointConfigName


class DescribeEndpointConfigOutput(Shape):
    EndpointConfigName: t.EndpointConfigName
    EndpointConfigArn: t.EndpointConfigArn
    ProductionVariants: ProductionVariantList
    KmsKeyId: t.KmsKeyId | None = None
    CreationTime: t.Timestamp
    ExecutionRoleArn: t.RoleArn | None = None
    VpcConfig: VpcConfigShape | None = None
    EnableNetworkIsolation: bool | None = None
    MetricsConfig: MetricsConfigShape | None = None
    CrossRegionTrafficConfig: CrossRegionTrafficConfigShape | None = None


class ListEndpointConfigsInput(ListInput): ...


class EndpointConfigSummary(Shape):
    EndpointConfigName: t.EndpointConfigName
    EndpointConfigArn: t.EndpointConfigArn
    CreationTime: t.Timestamp


class ListEndpointConfigsOutput(Shape):
    EndpointConfigs: Annotated[tuple[EndpointConfigSummary, ...], Items()]
    NextToken: t.NextToken | None = None


class DeleteEndpointConfigInput(Shape):
    EndpointConfigName: t.EndpointConfigName

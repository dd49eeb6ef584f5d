"""The operations on endpoints: create, describe, update, list, delete, and UpdateEndpointWeightsAndCapacities."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from controlplane.shapes import types as t
from controlplane.shapes.base import Failure, Items, Refused, Shape
from controlplane.shapes.common import (
    CrossRegionTrafficConfigShape,
    ListInput,
    MetricsConfigShape,
    TagList,
    repeated,
)
from controlplane.shapes.deployment import DeploymentConfigShape
from controlplane.shapes.refused import ServerlessUpdateConfigShape
from controlplane.shapes.variants import RoutingConfigShape


class CreateEndpointInput(Shape):
    EndpointName: t.EndpointName
    EndpointConfigName: t.EndpointConfigName
    DeploymentConfig: DeploymentConfigShape | None = None
    """Only remembered, for a later RetainDeploymentConfig."""
    Tags: TagList | None = None

    @classmethod
    def rules(cls, sent: Mapping[str, Any]) -> Iterator[Failure]:
        yield from repeated("Tags", "Key", sent.get("Tags"))


class CreateEndpointOutput(Shape):
    EndpointArn: t.EndpointArn


class VariantProperty(Shape):
    VariantPropertyType: t.VariantPropertyType


class UpdateEndpointInput(Shape):
    EndpointName: t.EndpointName
    EndpointConfigName: t.EndpointConfigName
    RetainAllVariantProperties: bool = False
    ExcludeRetainedVariantProperties: Annotated[tuple[VariantProperty, ...], Items(0, 3)] | None = None
    DeploymentConfig: DeploymentConfigShape | None = None
    RetainDeploymentConfig: bool = False

    @property
    def excluded(self) -> frozenset[str]:
        """Property types that are taken from the new config although the others are retained."""
        return frozenset(item.VariantPropertyType for item in self.ExcludeRetainedVariantProperties or ())


class UpdateEndpointOutput(Shape):
    EndpointArn: t.EndpointArn


class DesiredWeightAndCapacity(Shape):
    VariantName: t.VariantName
    DesiredWeight: t.VariantWeight | None = None
    DesiredInstanceCount: t.TaskCount | None = None
    ServerlessUpdateConfig: Annotated[ServerlessUpdateConfigShape | None, Refused()] = None


class UpdateEndpointWeightsAndCapacitiesInput(Shape):
    EndpointName: t.EndpointName
    DesiredWeightsAndCapacities: Annotated[tuple[DesiredWeightAndCapacity, ...], Items(1)]


class UpdateEndpointWeightsAndCapacitiesOutput(Shape):
    EndpointArn: t.EndpointArn


class DeleteEndpointInput(Shape):
    EndpointName: t.EndpointName


class DescribeEndpointInput(Shape):
    EndpointName: t.EndpointName


class DeployedImage(Shape):
    SpecifiedImage: t.ContainerImage | None = None
    ResolvedImage: t.ContainerImage | None = None
    ResolutionTime: t.Timestamp | None = None


class ProductionVariantStatus(Shape):
    Status: t.VariantStatus
    StatusMessage: t.VariantStatusMessage | None = None
    StartTime: t.Timestamp | None = None


class ProductionVariantSummary(Shape):
    """Desired* is what was last asked for, Current* what serves. InstanceType and ModelName stand in the config."""

    VariantName: t.VariantName
    DeployedImages: Annotated[tuple[DeployedImage, ...], Items()] | None = None
    CurrentWeight: t.VariantWeight | None = None
    DesiredWeight: t.VariantWeight | None = None
    CurrentInstanceCount: t.TaskCount | None = None
    DesiredInstanceCount: t.TaskCount | None = None
    VariantStatus: Annotated[tuple[ProductionVariantStatus, ...], Items(0, 5)] | None = None
    RoutingConfig: RoutingConfigShape | None = None


class PendingProductionVariantSummary(ProductionVariantSummary):
    InstanceType: t.InstanceType | None = None


class PendingDeploymentSummaryShape(Shape):
    EndpointConfigName: t.EndpointConfigName
    ProductionVariants: Annotated[tuple[PendingProductionVariantSummary, ...], Items(1)] | None = None
    StartTime: t.Timestamp | None = None


class DescribeEndpointOutput(Shape):
    EndpointName: t.EndpointName
    EndpointArn: t.EndpointArn
    EndpointConfigName: t.EndpointConfigName | None = None
    ProductionVariants: Annotated[tuple[ProductionVariantSummary, ...], Items(1)] | None = None
    EndpointStatus: t.EndpointStatus
    FailureReason: t.FailureReason | None = None
    CreationTime: t.Timestamp
    LastModifiedTime: t.Timestamp
    LastDeploymentConfig: DeploymentConfigShape | None = None
    PendingDeploymentSummary: PendingDeploymentSummaryShape | None = None
    MetricsConfig: MetricsConfigShape | None = None
    CrossRegionTrafficConfig: CrossRegionTrafficConfigShape | None = None


class ListEndpointsInput(ListInput):
    SortBy: t.EndpointSortKey = "CreationTime"
    LastModifiedTimeBefore: t.Timestamp | None = None
    LastModifiedTimeAfter: t.Timestamp | None = None
    StatusEquals: t.EndpointStatus | None = None


class EndpointSummary(Shape):
    EndpointName: t.EndpointName
    EndpointArn: t.EndpointArn
    CreationTime: t.Timestamp
    LastModifiedTime: t.Timestamp
    EndpointStatus: t.EndpointStatus


class ListEndpointsOutput(Shape):
    Endpoints: Annotated[tuple[EndpointSummary, ...], Items()]
    NextToken: t.NextToken | None = None

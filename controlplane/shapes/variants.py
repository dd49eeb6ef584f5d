"""ProductionVariant and its RoutingConfig."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from controlplane.shapes import types as t
from controlplane.shapes.base import Accepts, Failure, Items, Refused, Shape, StoredOnly
from controlplane.shapes.common import NO_CONTAINERS
from controlplane.shapes.refused import (
    AcceleratorPartitionLayout,
    CapacityReservationConfigShape,
    CoreDumpConfigShape,
    InstancePool,
    ManagedInstanceScalingShape,
    ServerlessConfigShape,
)

PREFIX_AWARE = "PREFIX_AWARE"


class PrefixAwareRoutingConfigShape(Shape):
    PrefixLength: t.PrefixLength | None = None
    ConcurrencyThreshold: t.ConcurrencyThreshold | None = None


class RoutingConfigShape(Shape):
    RoutingStrategy: Annotated[t.RoutingStrategy, Accepts(("LEAST_OUTSTANDING_REQUESTS", "RANDOM", PREFIX_AWARE))]
    PrefixAwareRoutingConfig: PrefixAwareRoutingConfigShape | None = None

    @classmethod
    def rules(cls, sent: Mapping[str, Any]) -> Iterator[Failure]:
        """The service model marks block and numbers optional; its text requires them, with PREFIX_AWARE only."""
        strategy, block = sent.get("RoutingStrategy"), sent.get("PrefixAwareRoutingConfig")
        name = "PrefixAwareRoutingConfig"
        if strategy != PREFIX_AWARE:
            if block is not None and isinstance(strategy, str):
                yield Failure((name,), f"Member must be absent unless RoutingStrategy is {PREFIX_AWARE}")
            return
        if block is None:
            yield Failure((name,), f"Member must not be null when RoutingStrategy is {PREFIX_AWARE}", None)
        elif isinstance(block, Mapping):
            for member in PrefixAwareRoutingConfigShape.model_fields:
                if block.get(member) is None:
                    yield Failure(
                        (name, member), f"Member must not be null when RoutingStrategy is {PREFIX_AWARE}", None
                    )


class ProductionVariant(Shape):
    VariantName: t.VariantName
    ModelName: t.ModelName | None = None
    InitialInstanceCount: t.InitialTaskCount | None = None
    """Absent: 1 instance."""
    InstanceType: Annotated[t.InstanceType | None, NO_CONTAINERS] = None
    InstancePools: Annotated[Annotated[tuple[InstancePool, ...], Items(1, 5)] | None, Refused()] = None
    VariantInstanceProvisionTimeoutInSeconds: Annotated[
        t.VariantInstanceProvisionTimeoutInSeconds | None,
        StoredOnly("the setting WARMROUTE_PROVISION_TIMEOUT_SECONDS bounds every deployment"),
    ] = None
    InitialVariantWeight: t.VariantWeight = 1.0
    AcceleratorType: Annotated[t.AcceleratorType | None, Refused()] = None
    CoreDumpConfig: Annotated[CoreDumpConfigShape | None, Refused()] = None
    ServerlessConfig: Annotated[ServerlessConfigShape | None, Refused()] = None
    VolumeSizeInGB: Annotated[t.VolumeSizeInGB | None, NO_CONTAINERS] = None
    ModelDataDownloadTimeoutInSeconds: Annotated[t.ModelDataDownloadTimeoutInSeconds | None, NO_CONTAINERS] = None
    ContainerStartupHealthCheckTimeoutInSeconds: Annotated[
        t.ContainerStartupHealthCheckTimeoutInSeconds | None,
        StoredOnly("the setting WARMROUTE_PROVISION_TIMEOUT_SECONDS bounds every deployment"),
    ] = None
    EnableSSMAccess: Annotated[bool | None, Accepts((False,)), NO_CONTAINERS] = None
    ManagedInstanceScaling: Annotated[
        ManagedInstanceScalingShape | None,
        Refused("ManagedInstanceScaling is only supported for inference component endpoints."),
    ] = None
    RoutingConfig: RoutingConfigShape | None = None
    InferenceAmiVersion: Annotated[t.InferenceAmiVersion | None, NO_CONTAINERS] = None
    CapacityReservationConfig: Annotated[CapacityReservationConfigShape | None, Refused()] = None
    AcceleratorPartitionLayouts: Annotated[
        Annotated[tuple[AcceleratorPartitionLayout, ...], Items(1, 32)] | None, Refused()
    ] = None

    @property
    def instance_count(self) -> int:
        """Model hosts that the variant takes of its model's pool."""
        return self.InitialInstanceCount or 1

    @classmethod
    def rules(cls, sent: Mapping[str, Any]) -> Iterator[Failure]:
        if sent.get("ModelName") is None:
            yield Failure(
                ("ModelName",),
                "Member must not be null: variants without a model (inference component endpoints) are not supported "
                "by this version",
                None,
            )


ProductionVariantList = Annotated[tuple[ProductionVariant, ...], Items(1, 10)]

"""DeploymentConfig of CreateEndpoint and UpdateEndpoint. This version shifts traffic all at once."""

from typing import Annotated

from controlplane.shapes import types as t
from controlplane.shapes.base import Accepts, Items, Refused, Shape, StoredOnly


class CapacitySize(Shape):
    Type: t.CapacitySizeType
    Value: t.CapacitySizeValue


class TrafficRoutingConfig(Shape):
    Type: Annotated[t.TrafficRoutingConfigType, Accepts(("ALL_AT_ONCE",))]
    WaitIntervalInSeconds: Annotated[
        t.WaitIntervalInSeconds, StoredOnly("the wait between steps; ALL_AT_ONCE has one step")
    ]
    CanarySize: Annotated[CapacitySize | None, Refused()] = None
    LinearStepSize: Annotated[CapacitySize | None, Refused()] = None


class BlueGreenUpdatePolicyShape(Shape):
    TrafficRoutingConfiguration: TrafficRoutingConfig
    TerminationWaitInSeconds: Annotated[t.TerminationWaitInSeconds | None, Accepts((0,))] = None
    MaximumExecutionTimeoutInSeconds: Annotated[
        t.MaximumExecutionTimeoutInSeconds | None,
        StoredOnly("the setting WARMROUTE_PROVISION_TIMEOUT_SECONDS bounds every deployment"),
    ] = None


class RollingUpdatePolicyShape(Shape):
    MaximumBatchSize: CapacitySize
    WaitIntervalInSeconds: t.WaitIntervalInSeconds
    MaximumExecutionTimeoutInSeconds: t.MaximumExecutionTimeoutInSeconds | None = None
    RollbackMaximumBatchSize: CapacitySize | None = None


class Alarm(Shape):
    AlarmName: t.AlarmName | None = None


class AutoRollbackConfig(Shape):
    Alarms: Annotated[tuple[Alarm, ...], Items(1, 10)] | None = None


class DeploymentConfigShape(Shape):
    BlueGreenUpdatePolicy: BlueGreenUpdatePolicyShape | None = None
    RollingUpdatePolicy: Annotated[RollingUpdatePolicyShape | None, Refused()] = None
    AutoRollbackConfiguration: Annotated[AutoRollbackConfig | None, Refused()] = None

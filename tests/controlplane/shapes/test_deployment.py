from typing import Any

import pytest

from controlplane.errors import ServiceError
from controlplane.shapes.deployment import DeploymentConfigShape
from controlplane.shapes.parse import parse


def blue_green(traffic: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": traffic, **members}}


ALL_AT_ONCE = {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 60}
SIZE = {"Type": "CAPACITY_PERCENT", "Value": 10}


def test_all_at_once_is_what_this_version_does() -> None:
    sent = blue_green(ALL_AT_ONCE, TerminationWaitInSeconds=0, MaximumExecutionTimeoutInSeconds=600)
    assert parse(DeploymentConfigShape, sent).to_wire() == sent


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        (blue_green({"Type": "CANARY", "WaitIntervalInSeconds": 0}), "Type CANARY"),
        (blue_green({"Type": "LINEAR", "WaitIntervalInSeconds": 0}), "Type LINEAR"),
        (blue_green(ALL_AT_ONCE | {"CanarySize": SIZE}), "CanarySize"),
        (blue_green(ALL_AT_ONCE | {"LinearStepSize": SIZE}), "LinearStepSize"),
        (blue_green(ALL_AT_ONCE, TerminationWaitInSeconds=600), "TerminationWaitInSeconds 600"),
        ({"RollingUpdatePolicy": {"MaximumBatchSize": SIZE, "WaitIntervalInSeconds": 0}}, "RollingUpdatePolicy"),
        ({"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "a"}]}}, "AutoRollbackConfiguration"),
    ],
)
def test_everything_else_is_refused_by_name(sent: dict[str, Any], name: str) -> None:
    with pytest.raises(ServiceError, match=f"{name} is not supported by this version"):
        parse(DeploymentConfigShape, sent)


def test_a_value_out_of_range_is_told_the_range() -> None:
    with pytest.raises(ServiceError, match="less than or equal to 3600"):
        parse(DeploymentConfigShape, blue_green(ALL_AT_ONCE, TerminationWaitInSeconds=3601))

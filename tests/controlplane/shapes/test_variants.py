from typing import Any

import pytest

from controlplane.errors import ServiceError
from controlplane.shapes.parse import parse
from controlplane.shapes.variants import ProductionVariant, RoutingConfigShape

BLOCK = {"PrefixLength": 2048, "ConcurrencyThreshold": 4}


def message(routing: dict[str, Any]) -> str:
    with pytest.raises(ServiceError) as raised:
        parse(RoutingConfigShape, routing)
    return raised.value.message


@pytest.mark.parametrize("strategy", ["RANDOM", "LEAST_OUTSTANDING_REQUESTS"])
def test_the_block_goes_with_prefix_aware_only(strategy: str) -> None:
    parse(RoutingConfigShape, {"RoutingStrategy": strategy})
    text = message({"RoutingStrategy": strategy, "PrefixAwareRoutingConfig": BLOCK})
    assert "at 'prefixAwareRoutingConfig' failed to satisfy constraint: Member must be absent unless" in text


def test_prefix_aware_needs_the_block() -> None:
    text = message({"RoutingStrategy": "PREFIX_AWARE"})
    assert "Value null at 'prefixAwareRoutingConfig' failed to satisfy constraint: Member must not be null when" in text


@pytest.mark.parametrize(
    ("block", "missing"),
    [
        ({"PrefixLength": 2048}, ["concurrencyThreshold"]),
        ({"ConcurrencyThreshold": 4}, ["prefixLength"]),
        ({}, ["prefixLength", "concurrencyThreshold"]),
    ],
)
def test_prefix_aware_needs_both_numbers(block: dict[str, int], missing: list[str]) -> None:
    text = message({"RoutingStrategy": "PREFIX_AWARE", "PrefixAwareRoutingConfig": block})
    assert text.startswith(f"{len(missing)} validation error")
    assert all(f"Value null at 'prefixAwareRoutingConfig.{name}'" in text for name in missing)


def test_kv_aware_is_known_but_not_served() -> None:
    text = message({"RoutingStrategy": "KV_AWARE"})
    assert "RoutingStrategy KV_AWARE is not supported by this version" in text


@pytest.mark.parametrize("strategy", ["prefix_aware", "NOPE", ""])
def test_an_unknown_strategy_gets_the_known_ones(strategy: str) -> None:
    assert "enum value set: [LEAST_OUTSTANDING_REQUESTS, RANDOM, PREFIX_AWARE, KV_AWARE]" in message(
        {"RoutingStrategy": strategy}
    )


def test_the_strategy_is_required() -> None:
    assert "Value null at 'routingStrategy'" in message({})


def refused(**members: Any) -> str:
    with pytest.raises(ServiceError) as raised:
        parse(ProductionVariant, {"VariantName": "v", "ModelName": "m", **members})
    return raised.value.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ServerlessConfig", {"MemorySizeInMB": 1024, "MaxConcurrency": 1}),
        ("InstancePools", [{"InstanceType": "ml.g5.xlarge", "Priority": 1}]),
        ("CapacityReservationConfig", {}),
        ("CoreDumpConfig", {"DestinationS3Uri": "s3://b"}),
        ("AcceleratorType", "ml.eia1.medium"),
        ("AcceleratorPartitionLayouts", [{}]),
    ],
)
def test_features_of_aws_are_refused_by_name(name: str, value: object) -> None:
    assert refused(**{name: value}).endswith(f"{name} is not supported by this version")


def test_managed_scaling_has_the_text_of_aws() -> None:
    text = refused(ManagedInstanceScaling={"Status": "ENABLED"})
    assert text.endswith("ManagedInstanceScaling is only supported for inference component endpoints.")


def test_shell_access_is_refused_only_when_asked_for() -> None:
    assert "EnableSSMAccess true is not supported" in refused(EnableSSMAccess=True)
    parse(ProductionVariant, {"VariantName": "v", "ModelName": "m", "EnableSSMAccess": False})


def test_a_variant_without_model_is_refused_with_the_reason() -> None:
    text = refused(ModelName=None)
    assert "Value null at 'modelName'" in text
    assert "inference component endpoints" in text


def test_counts() -> None:
    assert parse(ProductionVariant, {"VariantName": "v", "ModelName": "m"}).instance_count == 1
    assert (
        parse(ProductionVariant, {"VariantName": "v", "ModelName": "m", "InitialInstanceCount": 3}).instance_count == 3
    )
    assert "greater than or equal to 1" in refused(InitialInstanceCount=0)
    assert "less than or equal to 2147483647" in refused(InitialInstanceCount=2**31)

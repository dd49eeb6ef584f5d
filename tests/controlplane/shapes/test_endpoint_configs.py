from typing import Any

import pytest

from controlplane.errors import ServiceError
from controlplane.shapes.endpoint_configs import CreateEndpointConfigInput
from controlplane.shapes.parse import parse

VARIANT = {"VariantName": "v1", "ModelName": "m", "InitialInstanceCount": 1}
ROLE = "arn:aws:iam::123456789012:role/r"


def message(*variants: dict[str, Any], **members: Any) -> str:
    with pytest.raises(ServiceError) as raised:
        parse(
            CreateEndpointConfigInput,
            {"EndpointConfigName": "c1", "ProductionVariants": list(variants or [VARIANT]), **members},
        )
    return raised.value.message


def test_a_full_config_is_echoed_whole() -> None:
    sent = {
        "EndpointConfigName": "c1",
        "ProductionVariants": [
            VARIANT
            | {
                "InitialVariantWeight": 0.8,
                "InstanceType": "ml.p5.48xlarge",
                "VolumeSizeInGB": 512,
                "ModelDataDownloadTimeoutInSeconds": 3600,
                "ContainerStartupHealthCheckTimeoutInSeconds": 60,
                "VariantInstanceProvisionTimeoutInSeconds": 300,
                "EnableSSMAccess": False,
                "InferenceAmiVersion": "al2-ami-sagemaker-inference-gpu-2",
            },
            {
                "VariantName": "v2",
                "ModelName": "m",
                "InitialVariantWeight": 1e-7,
                "RoutingConfig": {"RoutingStrategy": "RANDOM"},
            },
        ],
        "KmsKeyId": "alias/k",
        "ExecutionRoleArn": ROLE,
        "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
        "EnableNetworkIsolation": True,
        "MetricsConfig": {"EnableEnhancedMetrics": True, "MetricPublishFrequencyInSeconds": 10},
        "CrossRegionTrafficConfig": {"MaxInvocationsPerSecondPerInstance": 1, "MaxCrossRegionPercentPerEndpoint": 100},
        "Tags": [],
    }
    assert parse(CreateEndpointConfigInput, sent).to_wire() == sent


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ShadowProductionVariants", [VARIANT]),
        ("AsyncInferenceConfig", {"OutputConfig": {"S3OutputPath": "s3://b/k"}}),
        ("ExplainerConfig", {}),
        ("DataCaptureConfig", {"EnableCapture": False}),
    ],
)
def test_features_of_aws_are_refused_by_name(name: str, value: object) -> None:
    assert message(**{name: value}).endswith(f"{name} is not supported by this version")


def test_variant_names_are_unique() -> None:
    assert "Value 'v1' at 'productionVariants.2.member.variantName'" in message(VARIANT, VARIANT)


@pytest.mark.parametrize("zero", [0, 0.0, -0.0])
def test_weights_that_are_all_zero_are_refused(zero: float) -> None:
    variants = [VARIANT | {"VariantName": name, "InitialVariantWeight": zero} for name in ("a", "b")]
    assert "At least one variant must have InitialVariantWeight greater than 0" in message(*variants)


def test_one_weight_may_be_zero() -> None:
    variants = [VARIANT | {"InitialVariantWeight": 0}, VARIANT | {"VariantName": "b"}]
    parse(CreateEndpointConfigInput, {"EndpointConfigName": "c1", "ProductionVariants": variants})


@pytest.mark.parametrize("seconds", [0, 11, 301])
def test_publish_frequencies_are_those_of_aws(seconds: int) -> None:
    assert "[10, 30, 60, 120, 180, 240, 300]" in message(MetricsConfig={"MetricPublishFrequencyInSeconds": seconds})

from typing import Any

import pytest

from controlplane.errors import ServiceError, ValidationException
from controlplane.shapes.models import ENVIRONMENT_BYTES_MAX, CreateModelInput
from controlplane.shapes.parse import parse


def message(**members: Any) -> str:
    with pytest.raises(ServiceError) as raised:
        parse(CreateModelInput, {"ModelName": "m", **members})
    assert isinstance(raised.value, ValidationException)
    return raised.value.message


def test_a_full_model_is_echoed_whole() -> None:
    container = {
        "ContainerHostname": "main",
        "Image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm:latest",
        "ImageConfig": {
            "RepositoryAccessMode": "Vpc",
            "RepositoryAuthConfig": {"RepositoryCredentialsProviderArn": "arn:aws:lambda:x"},
        },
        "Mode": "SingleModel",
        "ModelDataSource": {
            "S3DataSource": {
                "S3Uri": "s3://b/k/",
                "S3DataType": "S3Prefix",
                "CompressionType": "None",
                "ModelAccessConfig": {"AcceptEula": False},
            }
        },
        "Environment": {"WARMROUTE_HOSTS": "http://a:1,http://b:1", "WARMROUTE_PING_PATH": "/health", "EMPTY": ""},
        "ContainerMetricsConfig": {"MetricsEndpoints": [{"MetricsEndpointPath": "/metrics"}]},
    }
    sent = {
        "ModelName": "m",
        "PrimaryContainer": container,
        "ExecutionRoleArn": "arn:aws:iam::123456789012:role/service-role/r",
        "Tags": [{"Key": "k", "Value": "v"}],
        "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
        "EnableNetworkIsolation": False,
    }
    assert parse(CreateModelInput, sent).to_wire() == sent


@pytest.mark.parametrize("key", ["PrimaryContainer", "Containers"])
def test_the_environment_of_the_one_container(key: str) -> None:
    container = {"Environment": {"A": "1"}}
    request = parse(CreateModelInput, {"ModelName": "m", key: [container] if key == "Containers" else container})
    assert request.environment == {"A": "1"}


@pytest.mark.parametrize("members", [{}, {"PrimaryContainer": {}}, {"Containers": []}])
def test_a_model_without_environment(members: dict[str, Any]) -> None:
    assert parse(CreateModelInput, {"ModelName": "m", **members}).environment == {}


def test_inference_pipelines_are_refused_by_name() -> None:
    assert "Inference pipelines" in message(Containers=[{}, {}])
    assert "PrimaryContainer is given" in message(Containers=[{}], PrimaryContainer={})


@pytest.mark.parametrize(
    ("container", "name"),
    [
        ({"Mode": "MultiModel"}, "Mode MultiModel"),
        ({"MultiModelConfig": {"ModelCacheSetting": "Enabled"}}, "MultiModelConfig"),
    ],
)
def test_multi_model_is_refused_by_name(container: dict[str, Any], name: str) -> None:
    assert f"{name} is not supported by this version" in message(PrimaryContainer=container)


def test_direct_execution_is_refused_by_name() -> None:
    assert "Mode Direct is not supported" in message(InferenceExecutionConfig={"Mode": "Direct"})


def test_the_environment_is_bounded_as_a_whole() -> None:
    full = {f"K{n:02}": "v" * 1021 for n in range(32)}
    parse(CreateModelInput, {"ModelName": "m", "PrimaryContainer": {"Environment": full}})
    over = full | {"X": ""}
    assert f"{ENVIRONMENT_BYTES_MAX} bytes" in message(PrimaryContainer={"Environment": over})
    wide = {f"K{n:02}": "\u00e9" * 1021 for n in range(17)}
    assert "bytes or less" in message(PrimaryContainer={"Environment": wide})


@pytest.mark.parametrize(
    ("environment", "part"),
    [
        ({"WARMROUTE_HOSTS": ""}, "entry 1 is no base URL"),
        ({"WARMROUTE_HOSTS": "http://0.0.0.0"}, "unspecified"),
        ({"WARMROUTE_HOST_AUTHORIZATION": "Bearer a\nb"}, "Authorization header"),
        ({"WARMROUTE_HOST_AUTHORIZATION": "***"}, "Authorization header"),
        ({"WARMROUTE_PING_PATH": "health"}, "starts with /"),
        ({"WARMROUTE_HOST": "http://a"}, "did you mean WARMROUTE_HOSTS?"),
    ],
)
def test_own_variables_are_checked(environment: dict[str, str], part: str) -> None:
    text = message(PrimaryContainer={"Environment": environment})
    assert part in text
    assert f"primaryContainer.environment.{next(iter(environment))}" in text


def test_repeated_and_reserved_tag_keys() -> None:
    tags = [{"Key": "k", "Value": "1"}, {"Key": "k", "Value": "2"}, {"Key": "AWS:x", "Value": ""}]
    text = message(Tags=tags)
    assert "Value 'k' at 'tags.2.member.key' failed to satisfy constraint: Member must be unique" in text
    assert "Value 'AWS:x' at 'tags.3.member.key'" in text


def test_fifty_one_tags() -> None:
    assert "less than or equal to 50" in message(Tags=[{"Key": f"k{n}", "Value": ""} for n in range(51)])

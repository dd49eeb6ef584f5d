"""The official client as judge of the wire: what the doors send, unmodified boto3 and botocore must understand."""

import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, WaiterError

from controlplane.api.body import BODY_BYTES_MAX
from controlplane.errors import ResourceLimitExceeded, not_found_endpoint
from tests.controlplane.api.stubs import Stubs, served

ARN = "arn:aws:sagemaker:us-east-1:000000000000:endpoint/e1"
MOMENT = datetime(2026, 1, 1, 0, 0, 0, 123000, UTC)
DESCRIBED = {
    "EndpointName": "e1",
    "EndpointArn": ARN,
    "EndpointConfigName": "c1",
    "EndpointStatus": "InService",
    "CreationTime": MOMENT,
    "LastModifiedTime": MOMENT,
    "ProductionVariants": [
        {
            "VariantName": "v1",
            "CurrentWeight": 0.8,
            "DesiredWeight": 0.8,
            "CurrentInstanceCount": 2,
            "DesiredInstanceCount": 2,
            "RoutingConfig": {
                "RoutingStrategy": "PREFIX_AWARE",
                "PrefixAwareRoutingConfig": {"PrefixLength": 4096, "ConcurrencyThreshold": 8},
            },
        }
    ],
}


@pytest.fixture
def url(stubs: Stubs) -> Iterator[str]:
    with served(stubs.app()) as url:
        yield url


@pytest.fixture
def sagemaker(url: str) -> Any:
    return boto3.client(
        "sagemaker",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="s",
        config=Config(retries={"total_max_attempts": 1}),
    )


def test_describe(stubs: Stubs, sagemaker: Any) -> None:
    stubs.add("DescribeEndpoint", DESCRIBED)
    answer = sagemaker.describe_endpoint(EndpointName="e1")
    metadata = answer.pop("ResponseMetadata")
    assert metadata["RequestId"]
    assert answer == DESCRIBED


def test_nested_members_arrive_as_they_were_sent(stubs: Stubs, sagemaker: Any) -> None:
    stubs.add("CreateEndpointConfig", {"EndpointConfigArn": ARN.replace("endpoint/", "endpoint-config/")})
    variants = [{"VariantName": "v1", "ModelName": "m", "InitialInstanceCount": 4, "InitialVariantWeight": 0.2}]
    tags = [{"Key": "caf\u00e9", "Value": "\u30ad\u30fc"}]
    sagemaker.create_endpoint_config(EndpointConfigName="c1", ProductionVariants=variants, Tags=tags)
    assert stubs.calls[0][1].to_wire() == {"EndpointConfigName": "c1", "ProductionVariants": variants, "Tags": tags}


def test_what_the_client_does_not_check_itself(stubs: Stubs, sagemaker: Any) -> None:
    stubs.add("CreateEndpointConfig")
    routing = {"RoutingStrategy": "NOPE", "PrefixAwareRoutingConfig": {"PrefixLength": 99999999}}
    variants = [{"VariantName": "v" * 64, "ModelName": "BAD NAME", "RoutingConfig": routing}]
    with pytest.raises(ClientError) as raised:
        sagemaker.create_endpoint_config(EndpointConfigName="c1", ProductionVariants=variants)
    assert raised.value.response["Error"]["Code"] == "ValidationException"
    text = str(raised.value)
    for name in ("variantName", "modelName", "routingStrategy", "prefixLength"):
        assert f"productionVariants.1.member.{name}" in text or f".{name}'" in text


def test_delete_has_no_result(stubs: Stubs, sagemaker: Any) -> None:
    stubs.add("DeleteEndpoint")
    answer = sagemaker.delete_endpoint(EndpointName="e1")
    assert answer.keys() == {"ResponseMetadata"}


def test_filters_by_time_keep_their_milliseconds(stubs: Stubs, sagemaker: Any) -> None:
    stubs.add("ListEndpoints", {"Endpoints": []})
    sagemaker.list_endpoints(CreationTimeAfter=MOMENT)
    request: Any = stubs.calls[0][1]
    assert request.CreationTimeAfter == MOMENT


def test_waiters_understand_a_missing_endpoint(stubs: Stubs, sagemaker: Any) -> None:
    stubs.add("DescribeEndpoint", not_found_endpoint(ARN))
    sagemaker.get_waiter("endpoint_deleted").wait(EndpointName="e1", WaiterConfig={"Delay": 1, "MaxAttempts": 2})
    with pytest.raises(WaiterError):
        sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="e1", WaiterConfig={"Delay": 1, "MaxAttempts": 2})


def test_waiters_understand_an_endpoint_in_service(stubs: Stubs, sagemaker: Any) -> None:
    stubs.add("DescribeEndpoint", DESCRIBED)
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="e1", WaiterConfig={"Delay": 1, "MaxAttempts": 2})


def test_modelled_errors_are_classes_of_the_client(stubs: Stubs, sagemaker: Any) -> None:
    stubs.add("CreateEndpoint", ResourceLimitExceeded("too many"))
    with pytest.raises(sagemaker.exceptions.ResourceLimitExceeded):
        sagemaker.create_endpoint(EndpointName="e1", EndpointConfigName="c1")


def test_operations_that_are_not_served(sagemaker: Any) -> None:
    with pytest.raises(ClientError, match="is not supported by this version") as raised:
        sagemaker.create_inference_component(InferenceComponentName="i", EndpointName="e")
    assert raised.value.response["Error"]["Code"] == "UnknownOperationException"
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404


def test_a_fault_of_ours(stubs: Stubs, sagemaker: Any) -> None:
    stubs.add("DescribeEndpoint", RuntimeError("canary"))
    with pytest.raises(ClientError) as raised:
        sagemaker.describe_endpoint(EndpointName="e1")
    assert raised.value.response["Error"]["Code"] == "InternalFailure"
    assert "canary" not in str(raised.value)


def raw(length: int, path: str = "/") -> bytes:
    """Return the head of a DescribeEndpoint request whose body has ``length`` bytes."""
    target = "X-Amz-Target: SageMaker.DescribeEndpoint"
    return f"POST {path} HTTP/1.1\r\nHost: h\r\n{target}\r\nContent-Length: {length}\r\n\r\n".encode()


@pytest.mark.parametrize("path", ["/x/../", "//", "/.", "/;x", "/%2f"])
def test_paths_are_taken_literally(stubs: Stubs, url: str, path: str) -> None:
    stubs.add("DescribeEndpoint", DESCRIBED)
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=5) as connection:
        connection.sendall(raw(2, path) + b"{}")
        assert connection.recv(100).startswith(b"HTTP/1.1 404 ")


def test_a_large_body_is_refused_and_the_server_goes_on(stubs: Stubs, sagemaker: Any, url: str) -> None:
    stubs.add("DescribeEndpoint", DESCRIBED)
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=5) as connection:
        connection.sendall(raw(BODY_BYTES_MAX + 1))
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
    assert sagemaker.describe_endpoint(EndpointName="e1")["EndpointStatus"] == "InService"


def test_a_client_that_leaves_early_does_no_harm(stubs: Stubs, sagemaker: Any, url: str) -> None:
    stubs.add("DescribeEndpoint", DESCRIBED)
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=5) as connection:
        connection.sendall(raw(100) + b"{")
    assert sagemaker.describe_endpoint(EndpointName="e1")["EndpointStatus"] == "InService"
    assert len(stubs.calls) == 1

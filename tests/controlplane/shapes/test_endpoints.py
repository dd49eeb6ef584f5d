from datetime import UTC, datetime
from typing import Any

import pytest

from controlplane.errors import ServiceError, ValidationException
from controlplane.shapes.endpoints import (
    DescribeEndpointOutput,
    ListEndpointsInput,
    UpdateEndpointInput,
    UpdateEndpointWeightsAndCapacitiesInput,
)
from controlplane.shapes.parse import parse


def test_excluded_properties() -> None:
    sent = {
        "EndpointName": "e",
        "EndpointConfigName": "c",
        "RetainAllVariantProperties": True,
        "ExcludeRetainedVariantProperties": [{"VariantPropertyType": "DesiredWeight"}],
    }
    request = parse(UpdateEndpointInput, sent)
    assert request.RetainAllVariantProperties
    assert request.excluded == {"DesiredWeight"}


@pytest.mark.parametrize(
    "item",
    [
        {"DesiredWeight": -1},
        {"DesiredInstanceCount": -1},
        {"DesiredInstanceCount": 1.0},
        {"ServerlessUpdateConfig": {}},
    ],
)
def test_weights_and_capacities_that_are_refused(item: dict[str, Any]) -> None:
    sent = {"EndpointName": "e", "DesiredWeightsAndCapacities": [{"VariantName": "v", **item}]}
    with pytest.raises(ServiceError, match=r"desiredWeightsAndCapacities\.1\.member\."):
        parse(UpdateEndpointWeightsAndCapacitiesInput, sent)


@pytest.mark.parametrize(
    "sent",
    [
        {"MaxResults": 0},
        {"MaxResults": 101},
        {"NameContains": "a_b"},
        {"NameContains": "\0"},
        {"NextToken": "\0"},
        {"NextToken": "x" * 8193},
        {"SortBy": "name"},
        {"SortOrder": "ascending"},
        {"StatusEquals": "inservice"},
        {"CreationTimeAfter": float("nan")},
    ],
)
def test_list_parameters_that_are_refused(sent: dict[str, Any]) -> None:
    with pytest.raises(ValidationException):
        parse(ListEndpointsInput, sent)


def test_the_parameters_of_a_list() -> None:
    request = parse(ListEndpointsInput, {"SortBy": "Status", "StatusEquals": "Failed", "CreationTimeAfter": 1.5})
    assert request.CreationTimeAfter == datetime(1970, 1, 1, 0, 0, 1, 500000, UTC)


def test_a_description_leaves_out_what_is_absent() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    output = DescribeEndpointOutput(
        EndpointName="e",
        EndpointArn="arn:aws:sagemaker:us-east-1:000000000000:endpoint/e",
        EndpointStatus="Creating",
        CreationTime=moment,
        LastModifiedTime=moment,
    )
    assert output.to_wire() == {
        "EndpointName": "e",
        "EndpointArn": "arn:aws:sagemaker:us-east-1:000000000000:endpoint/e",
        "EndpointStatus": "Creating",
        "CreationTime": 1767225600.0,
        "LastModifiedTime": 1767225600.0,
    }

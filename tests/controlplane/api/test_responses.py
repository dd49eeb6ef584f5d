import pytest

from controlplane.api.responses import AWS_JSON, REST, Door, encode, failure, success
from controlplane.errors import ValidationException
from controlplane.shapes.endpoints import CreateEndpointOutput
from controlplane.shapes.tags import DeleteTagsOutput

ARN = "arn:aws:sagemaker:us-east-1:000000000000:endpoint/e1"


@pytest.mark.parametrize("door", [AWS_JSON, REST])
def test_results(door: Door) -> None:
    response = success(door, CreateEndpointOutput(EndpointArn=ARN), "id-1")
    assert response.body == b'{"EndpointArn":"%s"}' % ARN.encode()
    assert response.headers["x-amzn-requestid"] == "id-1"
    assert response.headers["content-type"] == door.media_type


def test_an_empty_structure_is_not_nothing() -> None:
    assert success(AWS_JSON, DeleteTagsOutput(), "id").body == b"{}"
    assert success(AWS_JSON, None, "id").body == b""


def test_errors() -> None:
    response = failure(AWS_JSON, ValidationException("caf\u00e9"), "id")
    assert response.status_code == 400
    assert response.body.decode() == '{"__type":"ValidationException","message":"caf\u00e9"}'


def test_what_is_no_json_is_never_sent() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode({"a": float("nan")})

"""InvokeEndpoint: what the host gets, what the caller gets back, and how the host's faults are told."""

import hashlib
import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.dataplane_e2e.stage import PREFIX_ID, Fleet, invoke, native_error, runtime
from tests.fakes.answers import Answer, gzip_answer, redirect
from tests.fakes.data_plane import DataPlane

EVERY_BYTE = bytes(range(256)) * 33


def test_body_and_headers_reach_the_host_and_its_answer_the_caller(boto: Any, fleet: Fleet) -> None:
    """Attributes pass both ways; the caller's credentials and the SDK's own headers do not pass at all."""
    deployed = fleet.deploy(1)
    host = deployed.hosts[0]
    host.answer = Answer(
        body=b"a,b", headers=(("Content-Type", "text/csv"), ("X-Amzn-SageMaker-Custom-Attributes", "r=2"))
    )
    answer = boto.invoke_endpoint(
        EndpointName=deployed.name,
        Body=EVERY_BYTE,
        ContentType="application/x-npy",
        Accept="text/csv",
        CustomAttributes='a=1,b="x y"',
        InferenceId="i1",
        PrefixAwareId="t1",
    )
    assert answer["Body"].read() == b"a,b"
    assert answer["ContentType"] == "text/csv"
    assert answer["InvokedProductionVariant"] == "AllTraffic"
    assert answer["CustomAttributes"] == "r=2"
    (delivery,) = host.deliveries
    assert (delivery.method, delivery.target) == ("POST", "/invocations")
    assert delivery.body == EVERY_BYTE
    assert delivery.header("content-type") == b"application/x-npy"
    assert delivery.header("accept") == b"text/csv"
    assert delivery.header("x-amzn-sagemaker-custom-attributes") == b'a=1,b="x y"'
    assert delivery.header("x-amzn-sagemaker-inference-id") == b"i1"
    unwanted = ("authorization", "x-amz-date", "amz-sdk-invocation-id", "amz-sdk-request", "expect")
    assert not [name for name in unwanted if delivery.header(name)]


def test_attributes_are_not_echoed_when_the_host_sets_none(boto: Any, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    answer = boto.invoke_endpoint(EndpointName=deployed.name, Body=b"x", CustomAttributes="a=1")
    assert not answer.get("CustomAttributes")


@pytest.mark.parametrize("content_type", [None, "text/csv", "application/x-npy", "application/json; charset=utf-16"])
def test_any_bytes_pass_with_their_type_or_none(boto: Any, fleet: Fleet, content_type: str | None) -> None:
    """No type is invented, no body is parsed."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = Answer(body=EVERY_BYTE, headers=(("Content-Type", "image/png"),))
    given = {"ContentType": content_type} if content_type else {}
    answer = boto.invoke_endpoint(EndpointName=deployed.name, Body=EVERY_BYTE, Accept="image/png", **given)
    assert hashlib.sha256(answer["Body"].read()).digest() == hashlib.sha256(EVERY_BYTE).digest()
    assert answer["ContentType"] == "image/png"
    (delivery,) = deployed.hosts[0].deliveries
    assert delivery.body == EVERY_BYTE
    assert delivery.all("content-type") == ([content_type.encode()] if content_type else [])
    assert delivery.header("accept") == b"image/png"


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503, 507])
def test_a_host_error_is_a_model_error(boto: Any, fleet: Fleet, status: int) -> None:
    """424 with the host's status and words, and one delivery: the SDK has nothing to retry."""
    deployed = fleet.deploy(2)
    said = f"out of luck {status} ".encode() + b"x" * 5_000
    for host in deployed.hosts:
        host.answer = Answer(body=said, status=status, headers=(("Content-Type", "text/plain"),))
    with pytest.raises(boto.exceptions.ModelError) as caught:
        boto.invoke_endpoint(EndpointName=deployed.name, Body=b"{}")
    answer = caught.value.response
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 424
    assert answer["OriginalStatusCode"] == status
    assert answer["OriginalMessage"] == said.decode()[:2_048]
    assert len(answer["Message"]) <= 2_048
    kind = "client" if status < 500 else "server"
    assert answer["Message"].startswith(f'Received {kind} error ({status}) from primary with message "out of luck')
    group = f"/aws/sagemaker/Endpoints/{deployed.name}"
    assert answer["LogStreamArn"] == f"arn:aws:logs:us-east-1:000000000000:log-group:{group}"
    assert deployed.delivered == 1


def test_a_short_host_error_is_quoted_whole(boto: Any, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = Answer(body=b'{"detail":"bad input"}', status=400)
    with pytest.raises(boto.exceptions.ModelError) as caught:
        boto.invoke_endpoint(EndpointName=deployed.name, Body=b"{}")
    message = caught.value.response["Message"]
    assert message.startswith(
        'Received client error (400) from primary with message "{"detail":"bad input"}". See https://'
    )
    assert message.endswith(" in account 000000000000 for more information.")


def test_the_sdk_with_its_own_retries_does_not_repeat_a_model_error(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = Answer(body=b"boom", status=500)
    client = runtime(plane, retries={"mode": "standard", "total_max_attempts": 3})
    with pytest.raises(client.exceptions.ModelError):
        client.invoke_endpoint(EndpointName=deployed.name, Body=b"{}")
    client.close()
    assert deployed.delivered == 1


def test_an_unknown_endpoint_is_a_validation_error(boto: Any, fleet: Fleet) -> None:
    """Whether it never was, or another has the name in other letter case."""
    deployed = fleet.deploy(1, name="Case-Matters")
    for name in ("nope", "case-matters"):
        with pytest.raises(ClientError) as caught:
            boto.invoke_endpoint(EndpointName=name, Body=b"{}")
        answer = caught.value.response
        assert answer["Error"]["Code"] == "ValidationError"
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 400
        assert answer["Error"]["Message"] == f"Endpoint {name} of account 000000000000 not found."
    assert deployed.delivered == 0


def test_an_endpoint_is_unknown_once_it_is_gone(boto: Any, fleet: Fleet) -> None:
    """Deleting endpoints have left the table."""
    deployed = fleet.deploy(1)
    boto.invoke_endpoint(EndpointName=deployed.name, Body=b"{}")
    fleet.stage.routes.remove(deployed.name)
    fleet.stage.settle()
    with pytest.raises(ClientError, match="not found"):
        boto.invoke_endpoint(EndpointName=deployed.name, Body=b"{}")
    assert deployed.delivered == 1


def test_an_unknown_target_variant_is_named(boto: Any, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    with pytest.raises(ClientError, match="ghost") as caught:
        boto.invoke_endpoint(EndpointName=deployed.name, Body=b"{}", TargetVariant="ghost")
    assert caught.value.response["Error"]["Code"] == "ValidationError"
    assert deployed.delivered == 0


def test_a_component_header_is_refused_where_no_components_are(boto: Any, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    with pytest.raises(ClientError) as caught:
        boto.invoke_endpoint(EndpointName=deployed.name, Body=b"{}", InferenceComponentName="ic")
    assert caught.value.response["Error"]["Code"] == "ValidationError"
    assert "Inference Component Name header is not allowed" in caught.value.response["Error"]["Message"]
    assert deployed.delivered == 0


def test_target_variant_beats_weights(boto: Any, fleet: Fleet) -> None:
    """Also for a weight of zero; without it, weights decide."""
    first, second = fleet.hosts.make(2)
    deployed = fleet.deploy_variants(
        [
            (fleet.variant([first], name="v1", weight=1.0, strategy="RANDOM"), [first]),
            (fleet.variant([second], name="v2", weight=0.0, strategy="RANDOM"), [second]),
        ]
    )
    for _ in range(10):
        assert boto.invoke_endpoint(EndpointName=deployed.name, Body=b"{}")["InvokedProductionVariant"] == "v1"
    answer = boto.invoke_endpoint(EndpointName=deployed.name, Body=b"{}", TargetVariant="v2")
    assert answer["InvokedProductionVariant"] == "v2"
    assert deployed.shares() == {"h1": 10, "h2": 1}


def test_weights_share_the_traffic(plane: DataPlane, fleet: Fleet) -> None:
    """Share = weight / sum of weights."""
    first, second = fleet.hosts.make(2)
    parts = [
        (fleet.variant([host], name=name, weight=weight, strategy="RANDOM"), [host])
        for host, name, weight in ((first, "v1", 3.0), (second, "v2", 1.0))
    ]
    deployed = fleet.deploy_variants(parts)
    with plane.client() as client:
        for _ in range(400):
            invoke(client, deployed, b"{}")
    # 300 expected; six deviations of 8.7 to each side.
    assert 248 <= deployed.shares()["h1"] <= 352


def test_the_host_is_called_by_its_own_name(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    with plane.client() as client:
        client.request(deployed.invocations, b"x", [("Host", "api.example.test")])
    host = deployed.hosts[0]
    assert host.deliveries[0].header("host") == f"127.0.0.1:{host.port}".encode()


@pytest.mark.parametrize("location", ["http://10.0.0.9:1/x", "/invocations/", "{other}/invocations"])
def test_redirects_are_never_followed_nor_shown(plane: DataPlane, fleet: Fleet, location: str) -> None:
    """One delivery, a host error, and no trace of where the host pointed."""
    deployed = fleet.deploy(1)
    other = fleet.hosts.one()
    deployed.hosts[0].answer = redirect(location.format(other=other.url))
    with plane.client() as client:
        native = client.request(deployed.invocations, b"{}")
        assert native_error(native)[:2] == (424, "ModelError")
        assert json.loads(native.body)["OriginalStatusCode"] == 307
        stream = client.request(deployed.stream, b"{}")
        assert native_error(stream)[:2] == (424, "ModelError")
        openai = client.request(deployed.chat, b'{"messages":[]}')
        assert openai.status >= 300
    for answer in (native, stream, openai):
        assert answer.header("location") is None
        assert b"10.0.0.9" not in answer.raw_head + answer.body
    assert len(deployed.hosts[0].deliveries) == 3
    assert other.deliveries == []


def test_proxy_variables_of_the_shell_change_nothing(plane: DataPlane, fleet: Fleet) -> None:
    """This plane runs with HTTP_PROXY, ALL_PROXY and a NO_PROXY of odd form set."""
    with open(f"/proc/{plane.pids()[0]}/environ", "rb") as file:
        assert b"\0HTTP_PROXY=http://127.0.0.1:9\0" in file.read()
    deployed = fleet.deploy(2)
    with plane.client() as client:
        assert invoke(client, deployed, b"{}") in ("h1", "h2")


def test_a_target_variant_is_a_name_not_a_path(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    with plane.client() as client:
        answer = client.request(deployed.invocations, b"{}", [("X-Amzn-SageMaker-Target-Variant", "../x")])
    assert native_error(answer)[:2] == (400, "ValidationError")
    assert deployed.delivered == 0


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("X-Amzn-SageMaker-Custom-Attributes", b"\xe4\xbd\xa0"),
        ("X-Amzn-SageMaker-Custom-Attributes", b"a" * 1_025),
        ("X-Amzn-SageMaker-Inference-Id", b"i" * 65),
        ("X-Amzn-SageMaker-Target-Variant", b"v" * 64),
        (PREFIX_ID, b"i" * 65),
        (PREFIX_ID, b"\xc3\xa9"),
        (PREFIX_ID, b"a\tb"),
        (PREFIX_ID, b""),
    ],
)
def test_bad_header_values_are_refused_by_name(plane: DataPlane, fleet: Fleet, header: str, value: bytes) -> None:
    """400 that names the header; nothing cut, nothing sent on."""
    deployed = fleet.deploy(2)
    with plane.client() as client:
        for target in (deployed.invocations, deployed.stream):
            status, code, message = native_error(client.request(target, b"{}", [(header, value)]))
            assert (status, code) == (400, "ValidationError")
            member = header.removeprefix("X-Amzn-SageMaker-")
            assert member.lower().replace("-", "") in message.lower().replace("-", ""), message
    assert deployed.delivered == 0


def test_odd_bytes_in_a_host_header_do_no_harm(plane: DataPlane, fleet: Fleet) -> None:
    """The header passes raw or is dropped; the answer is whole."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = Answer(
        body=b'{"a":1}', headers=(("Content-Type", "application/json"), ("X-Note", b"\xc3\xa9"))
    )
    with plane.client() as client:
        for target in (deployed.invocations, deployed.chat):
            answer = client.request(target, b'{"messages":[]}')
            assert (answer.status, answer.body) == (200, b'{"a":1}')
            assert answer.header("x-note") in (None, b"\xc3\xa9".decode("latin-1"))


def test_a_compressed_answer_passes_untouched(plane: DataPlane, fleet: Fleet) -> None:
    """The container's bytes, with the coding they have."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = answer = gzip_answer(b'{"a":1}')
    with plane.client() as client:
        found = client.request(deployed.chat, b'{"messages":[]}', [("Accept-Encoding", "gzip")])
    assert found.body == answer.body
    assert found.header("content-encoding") == "gzip"


def test_no_coding_is_asked_for_that_the_caller_did_not_ask_for(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    with plane.client() as client:
        client.request(deployed.invocations, b"{}")
        client.request(deployed.chat, b'{"messages":[]}')
    assert {delivery.header("accept-encoding") for delivery in deployed.hosts[0].deliveries} <= {None, b"identity"}


def test_every_answer_has_a_request_id(plane: DataPlane, fleet: Fleet) -> None:
    """Boto3 shows it as RequestId; two requests never share one."""
    deployed = fleet.deploy(1)
    with plane.client() as client:
        answers = [client.request(target, b"{}") for target in (deployed.invocations, "/endpoints/nope/invocations")]
    ids = {answer.header("x-amzn-requestid") for answer in answers}
    assert len(ids) == 2
    assert None not in ids

import json
import logging
from typing import Any

import httpx
import pytest

from controlplane.api.body import BODY_BYTES_MAX
from controlplane.errors import ServiceUnavailable, not_found_endpoint
from tests.controlplane.api.stubs import Stubs

ARN = "arn:aws:sagemaker:us-east-1:000000000000:endpoint/e1"
DESCRIBED = {
    "EndpointName": "e1",
    "EndpointArn": ARN,
    "EndpointStatus": "InService",
    "CreationTime": 1767225600.123,
    "LastModifiedTime": 1767225601,
}


async def aws(client: httpx.AsyncClient, target: str, content: bytes | str = b"{}", **headers: str) -> httpx.Response:
    return await client.post("/", content=content, headers={"x-amz-target": target, **headers})


def error(response: httpx.Response) -> tuple[int, str, str]:
    """Return status, code and message; every error must have exactly this form."""
    document = response.json()
    assert document.keys() == {"__type", "message"}
    assert document["message"]
    assert response.headers["x-amzn-requestid"]
    return response.status_code, document["__type"], document["message"]


async def test_both_doors_reach_the_same_operation(client: httpx.AsyncClient, stubs: Stubs) -> None:
    stubs.add("DescribeEndpoint", DESCRIBED)
    request = json.dumps({"EndpointName": "e1"})
    one = await aws(client, "SageMaker.DescribeEndpoint", request)
    other = await client.post("/DescribeEndpoint", content=request)
    assert one.json() == other.json() == DESCRIBED
    assert one.headers["content-type"] == "application/x-amz-json-1.1"
    assert other.headers["content-type"] == "application/json"
    assert [request.to_wire() for _, request in stubs.calls] == [{"EndpointName": "e1"}] * 2
    assert stubs.database.commits == 2


async def test_every_response_has_its_own_request_id(client: httpx.AsyncClient) -> None:
    ids = {(await aws(client, "SageMaker.DeleteEndpoint")).headers["x-amzn-requestid"] for _ in range(3)}
    assert len(ids) == 3


async def test_the_context_of_a_call(client: httpx.AsyncClient, stubs: Stubs) -> None:
    await aws(client, "SageMaker.DeleteEndpoint", '{"EndpointName": "e1"}')
    context, _ = stubs.calls[0]
    assert (context.account_id, context.region) == ("000000000000", "us-east-1")
    assert context.now.isoformat() == "2026-01-01T00:00:00.123000+00:00"


async def test_deletes_answer_with_nothing(client: httpx.AsyncClient) -> None:
    response = await aws(client, "SageMaker.DeleteEndpoint", '{"EndpointName": "e1"}')
    assert (response.status_code, response.content, response.headers["content-length"]) == (200, b"", "0")
    response = await client.post("/DeleteEndpoint", content='{"EndpointName": "e1"}')
    assert (response.status_code, response.json()) == (200, {})


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "text/plain", "application/json"])
async def test_the_content_type_of_a_request_does_not_matter(client: httpx.AsyncClient, content_type: str) -> None:
    headers = {"content-type": content_type}
    response = await client.post("/DeleteEndpoint", content='{"EndpointName": "e1"}', headers=headers)
    assert response.status_code == 200


async def test_an_error_of_an_operation(client: httpx.AsyncClient, stubs: Stubs) -> None:
    stubs.add("DescribeEndpoint", not_found_endpoint(ARN))
    response = await aws(client, "SageMaker.DescribeEndpoint", '{"EndpointName": "e1"}')
    assert error(response) == (400, "ValidationException", f'Could not find endpoint "{ARN}".')
    assert response.headers["content-type"] == "application/x-amz-json-1.1"
    assert stubs.database.rollbacks == 1
    assert stubs.observed == [("DescribeEndpoint", "ValidationException")]


@pytest.mark.parametrize("content", [b"[]", b"null", b"{", b"", b"[" * 20_000 + b"]" * 20_000, b"\xff"])
async def test_a_body_that_is_no_object(client: httpx.AsyncClient, content: bytes) -> None:
    for response in (
        await aws(client, "SageMaker.CreateEndpointConfig", content),
        await client.post("/CreateEndpointConfig", content=content),
    ):
        assert error(response)[:2] == (400, "SerializationException")


async def test_a_missing_member_is_named(client: httpx.AsyncClient, stubs: Stubs) -> None:
    response = await aws(client, "SageMaker.CreateEndpointConfig", '{"EndpointConfigName": "c"}')
    status, code, message = error(response)
    assert (status, code) == (400, "ValidationException")
    assert "productionVariants" in message
    assert stubs.calls == []
    assert stubs.database.commits == stubs.database.rollbacks == 0


@pytest.mark.parametrize(
    "target",
    [
        "SageMaker.CreateInferenceComponent",
        "SageMaker.NoSuchThing",
        "SageMaker.describeendpoint",
        "sagemaker.DescribeEndpoint",
        "DescribeEndpoint",
        "SageMaker.",
        "SageMaker.DescribeEndpoint\tx",
        "X.SageMaker.DescribeEndpoint",
        "SageMaker." + "x" * 5000,
    ],
)
async def test_unknown_targets(client: httpx.AsyncClient, stubs: Stubs, target: str) -> None:
    status, code, message = error(await aws(client, target))
    assert (status, code) == (404, "UnknownOperationException")
    assert "is not supported by this version" in message
    assert "DescribeEndpoint" in message
    assert len(message) < 2000
    # A metric label per name that a caller makes up would grow without end.
    assert {operation for operation, _ in stubs.observed} <= {"Unknown", "DescribeEndpoint"}


async def test_a_missing_target_says_what_to_send(client: httpx.AsyncClient) -> None:
    status, code, message = error(await client.post("/", content=b"{}"))
    assert (status, code) == (404, "UnknownOperationException")
    assert "X-Amz-Target is missing" in message


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_over_the_limit(client: httpx.AsyncClient, announced: bool) -> None:
    content = b" " * (BODY_BYTES_MAX + 1)

    async def chunks() -> Any:
        yield content

    response = await client.post("/CreateEndpointConfig", content=content if announced else chunks())
    assert error(response)[:2] == (413, "RequestEntityTooLargeException")


async def test_an_unexpected_fault_is_500_without_details(
    client: httpx.AsyncClient, stubs: Stubs, caplog: pytest.LogCaptureFixture
) -> None:
    stubs.add("DescribeEndpoint", RuntimeError("canary\nINFO fake line\x1b[31m"))
    response = await aws(client, "SageMaker.DescribeEndpoint", '{"EndpointName": "e1"}')
    status, code, message = error(response)
    assert (status, code) == (500, "InternalFailure")
    assert "canary" not in response.text
    request_id = response.headers["x-amzn-requestid"]
    assert request_id in message
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    text = record.getMessage()
    assert request_id in text
    assert "Traceback" in text
    assert "canary" in text
    assert "\x1b" not in text
    assert not [line for line in text.splitlines()[1:] if not line.startswith("    | ")]
    assert stubs.observed == [("DescribeEndpoint", "InternalFailure")]


async def test_a_failing_commit_is_500_and_nothing_was_answered_before(client: httpx.AsyncClient, stubs: Stubs) -> None:
    stubs.database.commit_error = RuntimeError("no disk")
    response = await client.post("/DeleteEndpoint", content='{"EndpointName": "e1"}')
    assert error(response)[:2] == (500, "InternalFailure")


async def test_a_database_that_is_away(
    client: httpx.AsyncClient, stubs: Stubs, caplog: pytest.LogCaptureFixture
) -> None:
    stubs.database.commit_error = ServiceUnavailable("The database cannot be reached.", log="refused\nby 10.0.0.1")
    response = await client.post("/DeleteEndpoint", content='{"EndpointName": "e1"}')
    assert error(response) == (503, "ServiceUnavailable", "The database cannot be reached.")
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage().endswith(r": refused\nby 10.0.0.1")
    assert "Traceback" not in caplog.text


async def test_what_a_caller_sends_cannot_forge_a_log_line(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "controlplane")
    name = "a\r\nINFO fake\x1b[31m\u2028b"
    await client.post("/DescribeEndpoint", content=json.dumps({"EndpointName": name}))
    await aws(client, "SageMaker.\x1b[31m\x0b INFO fake")
    records = [record for record in caplog.records if record.name.startswith("controlplane")]
    assert len(records) == 2
    assert all(record.getMessage().isprintable() for record in records)


async def test_what_a_caller_sends_stays_out_of_the_log(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "controlplane")
    headers = {"authorization": "canary"}
    for content in ('{"EndpointName": "e1"}', '{"EndpointName": "canary!"}', '{"canary": 1}', "canary"):
        await client.post("/DescribeEndpoint?api_key=canary", content=content, headers=headers)
    assert "canary" not in caplog.text


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://[", "http://test.evil", "http://test:1"])
async def test_pages_of_other_sites_are_refused(client: httpx.AsyncClient, stubs: Stubs, origin: str) -> None:
    response = await client.post("/DeleteEndpoint", content='{"EndpointName": "e1"}', headers={"origin": origin})
    assert error(response)[:2] == (403, "AccessDeniedException")
    assert stubs.calls == []


async def test_the_own_page_is_served(client: httpx.AsyncClient) -> None:
    headers = {"origin": "http://test"}
    response = await client.post("/DeleteEndpoint", content='{"EndpointName": "e1"}', headers=headers)
    assert response.status_code == 200


async def test_a_lost_response_leaves_a_whole_effect(client: httpx.AsyncClient, stubs: Stubs) -> None:
    await client.post("/DeleteEndpoint", content='{"EndpointName": "e1"}')
    assert (stubs.database.commits, stubs.observed) == (1, [("DeleteEndpoint", "OK")])

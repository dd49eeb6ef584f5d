import json

import pytest

from dataplane.api import faults, native
from dataplane.api.call import Context
from dataplane.api.faults import Refused
from dataplane.api.native import MESSAGE_CHARACTERS_MAX, Invoke, InvokeWithResponseStream
from tests.dataplane.api.runtime_model import (
    MODEL,
    answer,
    events,
    header_members,
    lines,
    operation,
    parsed_error,
    request,
)

APIS = {"InvokeEndpoint": Invoke(), "InvokeEndpointWithResponseStream": InvokeWithResponseStream()}
MEMBERS = [(name, member) for name in APIS for member in header_members(name)]
CONTEXT = Context("123456789012", "eu-west-1", "my-endpoint", "v1")
INVOKE, STREAM = APIS["InvokeEndpoint"], APIS["InvokeEndpointWithResponseStream"]


def read(api: Invoke, *headers: tuple[str, bytes]) -> dict[str, str]:
    """Return the headers that the host gets."""
    return dict(lines(api.read(request(*headers), "e").headers))


# --- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "member"), MEMBERS)
def test_no_member_is_accepted_and_ignored(name: str, member: str) -> None:
    """Each header of the service model is used here, handed to the host, or refused by its name."""
    api = APIS[name]
    header, _ = header_members(name)[member]
    value = b"x1"
    try:
        call = api.read(request((header, value)), "e")
    except Refused as caught:
        refused = caught
        call = None
    if call is None:
        assert member.removesuffix("Name").lower() in refused.message.replace(" ", "").lower()
        assert refused.fault is faults.VALIDATION
        return
    is_used = call.target_variant == "x1" or call.isolation == value
    is_handed_on = [sent for _, sent in lines(call.headers)] == ["x1"]
    assert is_used != is_handed_on


@pytest.mark.parametrize(("name", "member"), MEMBERS)
def test_bounds_are_those_of_the_service_model(name: str, member: str) -> None:
    """boto3 checks neither maxima nor patterns, so the server must."""
    api = APIS[name]
    header, shape = header_members(name)[member]
    low, high = shape.metadata.get("min", 0), shape.metadata["max"]

    def is_refused(value: bytes) -> bool:
        try:
            api.read(request((header, value)), "e")
        except Refused:
            return True
        return False

    assert is_refused(b"x" * (high + 1))
    assert is_refused(b"\xc3\xa9"), "no ASCII"
    assert is_refused(b"") or low == 0
    if not is_refused(b"x"):
        assert not is_refused(b"x" * high)
        assert is_refused(b" x") == ("\\S" in shape.metadata["pattern"] or "a-z" in shape.metadata["pattern"])


def test_a_host_sees_what_the_api_defines_and_nothing_else() -> None:
    """Credentials, cookies and forwarding headers of the client stay here, as AWS strips them."""
    found = read(
        INVOKE,
        ("Content-Type", b"text/csv"),
        ("Accept", b"application/json"),
        ("X-Amzn-SageMaker-Custom-Attributes", b"trace=1"),
        ("X-Amzn-SageMaker-Inference-Id", b"id-1"),
        ("X-Amzn-SageMaker-Prefix-Aware-Id", b"tenant"),
        ("X-Amzn-SageMaker-Target-Variant", b"v1"),
        ("Authorization", b"AWS4-HMAC-SHA256 Credential=x"),
        ("X-Amz-Security-Token", b"secret"),
        ("Cookie", b"a=b"),
        ("Host", b"client"),
        ("Content-Length", b"2"),
        ("Connection", b"keep-alive"),
        ("X-Forwarded-For", b"203.0.113.9"),
        ("Content-Encoding", b"gzip"),
    )
    assert found == {
        "Content-Type": "text/csv",
        "Accept": "application/json",
        "X-Amzn-SageMaker-Custom-Attributes": "trace=1",
        "X-Amzn-SageMaker-Inference-Id": "id-1",
    }


def test_what_was_not_sent_is_not_invented() -> None:
    """A missing content type stays missing."""
    assert read(INVOKE) == {}
    assert read(STREAM) == {}


def test_a_streams_accept_travels_under_another_name() -> None:
    found = read(STREAM, ("X-Amzn-SageMaker-Accept", b"text/event-stream"), ("Accept", b"*/*"))
    assert found == {"Accept": "text/event-stream"}


def test_a_call_says_what_routing_needs() -> None:
    call = INVOKE.read(
        request(("X-Amzn-SageMaker-Target-Variant", b"v2"), ("X-Amzn-SageMaker-Prefix-Aware-Id", b"t 1")), "e"
    )
    assert (call.endpoint_name, call.target_variant, call.isolation) == ("e", "v2", b"t 1")
    assert (call.chat, call.is_stream, call.api) == (None, False, INVOKE)
    assert STREAM.read(request(), "e").is_stream


def test_an_inference_component_is_refused_in_aws_words() -> None:
    with pytest.raises(Refused, match="Inference Component Name header is not allowed for endpoints") as caught:
        INVOKE.read(request(("X-Amzn-SageMaker-Inference-Component", b"c")), "e")
    assert caught.value.fault is faults.VALIDATION


# --- answers ---------------------------------------------------------------------------------------------------------

HOST_HEADERS = [
    (b"content-type", b"text/csv"),
    (b"content-length", b"12"),
    (b"content-encoding", b"gzip"),
    (b"x-amzn-sagemaker-custom-attributes", b"a=1"),
    (b"server", b"uvicorn"),
    (b"set-cookie", b"a=b"),
    (b"connection", b"close"),
    (b"x-amzn-errortype", b"ValidationError"),
]


def test_an_answer_has_the_members_of_the_output_shape() -> None:
    head = INVOKE.answer_head(answer(200, HOST_HEADERS), b"v1", b"id-7")
    assert head is not None
    assert (head.status, head.content_length, head.is_stream) == (200, 12, False)
    assert dict(lines(head.headers)) == {
        "x-Amzn-Invoked-Production-Variant": "v1",
        "x-amzn-RequestId": "id-7",
        "Content-Type": "text/csv",
        "Content-Encoding": "gzip",
        "X-Amzn-SageMaker-Custom-Attributes": "a=1",
    }
    wanted = {shape.serialization.get("name") for shape in operation("InvokeEndpoint").output_shape.members.values()}
    assert {"Content-Type", "x-Amzn-Invoked-Production-Variant", "X-Amzn-SageMaker-Custom-Attributes"} <= wanted


def test_a_stream_is_wrapped_whatever_the_host_answered() -> None:
    said = answer(200, [(b"content-type", b"text/event-stream"), (b"content-length", b"5")])
    head = STREAM.answer_head(said, b"v1", b"id-7")
    assert head is not None
    assert (head.status, head.content_length, head.is_stream) == (200, None, True)
    found = lines(head.headers)
    assert ("Content-Type", "application/vnd.amazon.eventstream") in found
    assert ("X-Amzn-SageMaker-Content-Type", "text/event-stream") in found
    assert [name.lower() for name, _ in found].count("content-type") == 1


@pytest.mark.parametrize(
    ("host_headers", "request_id"),
    [
        ([(b"content-type", b"text/plain")], b"Content-Type: forged"),
        ([(b"x-amzn-sagemaker-custom-attributes", b"Content-Type: x"), (b"content-type", b"text/plain")], b"id"),
        ([(b"content-type", b"text/plain"), (b"content-type", b"text/html")], b"id"),
        ([], b"id"),
    ],
    ids=["request id", "attributes", "twice", "none"],
)
def test_a_stream_has_one_content_type_whatever_others_say(
    host_headers: list[tuple[bytes, bytes]], request_id: bytes
) -> None:
    """A client's request id and a host's attributes are data; they must not be taken for headers."""
    head = STREAM.answer_head(answer(200, host_headers), b"v1", request_id)
    assert head is not None
    found = lines(head.headers)
    assert [value for name, value in found if name == "Content-Type"] == ["application/vnd.amazon.eventstream"]
    assert dict(found)["x-amzn-RequestId"] == request_id.decode()
    types = [value for name, value in found if name == "X-Amzn-SageMaker-Content-Type"]
    said = {value.decode() for name, value in host_headers if name == b"content-type"}
    assert len(types) == bool(said)
    assert set(types) <= said


def test_frames_are_not_said_to_be_compressed() -> None:
    """The host's parts may be; the frames around them are not, and a client would unpack those."""
    head = STREAM.answer_head(answer(200, [(b"content-encoding", b"gzip")]), b"v1", b"id")
    assert head is not None
    assert "content-encoding" not in [name.lower() for name, _ in lines(head.headers)]


def test_an_event_stream_of_the_host_is_known_for_one() -> None:
    head = INVOKE.answer_head(answer(200, [(b"content-type", b"text/event-stream; charset=utf-8")]), b"v1", b"id")
    assert head is not None
    assert head.is_stream


@pytest.mark.parametrize("status", [301, 304, 400, 404, 429, 500, 503])
@pytest.mark.parametrize("name", APIS)
def test_any_status_but_2xx_is_read_whole_and_becomes_a_model_error(name: str, status: int) -> None:
    """A redirect is not followed, a 404 of the model is not one of ours."""
    api = APIS[name]
    assert api.answer_head(answer(status, []), b"v1", b"id") is None
    said = api.answer_whole(status, b'{"detail": "no"}', True, CONTEXT)
    found = parsed_error(said, name)
    assert said[0] == 424
    assert found["Error"]["Code"] == "ModelError"
    assert (found["OriginalStatusCode"], found["OriginalMessage"]) == (status, '{"detail": "no"}')
    assert found["LogStreamArn"] == "arn:aws:logs:eu-west-1:123456789012:log-group:/aws/sagemaker/Endpoints/my-endpoint"
    side = "client" if status < 500 else "server"
    assert found["Message"] == (
        f'Received {side} error ({status}) from primary with message "{{"detail": "no"}}". See '
        "https://eu-west-1.console.aws.amazon.com/cloudwatch/home?region=eu-west-1"
        "#logEventViewer:group=/aws/sagemaker/Endpoints/my-endpoint in account 123456789012 for more information."
    )


def test_a_long_error_is_quoted_within_the_bounds_of_the_shape() -> None:
    limit = MODEL.shape_for("Message").metadata["max"]
    assert limit == MESSAGE_CHARACTERS_MAX
    found = json.loads(INVOKE.answer_whole(500, b"\xf0\x9f\x98\x80" * 5_000, True, CONTEXT)[2])
    assert len(found["OriginalMessage"]) == limit
    assert len(found["Message"]) <= limit
    assert found["Message"].endswith("for more information.")


def test_an_error_that_is_no_text_or_was_not_read_is_still_said() -> None:
    found = json.loads(INVOKE.answer_whole(500, b"\xff\x00\xfe", True, CONTEXT)[2])
    assert found["OriginalMessage"] == "\ufffd\x00\ufffd"
    found = json.loads(INVOKE.answer_whole(503, b"", False, CONTEXT)[2])
    assert "and could not load the entire response body" in found["Message"]


def test_a_host_that_did_not_answer_is_a_model_error_with_status_0() -> None:
    for fault in (faults.MODEL, faults.MODEL_TIMEOUT):
        found = parsed_error(INVOKE.failure(fault, "It ended.", None, CONTEXT), "InvokeEndpoint")
        assert (found["Error"]["Code"], found["OriginalStatusCode"]) == ("ModelError", 0)
        assert 'Received server error (0) from primary with message "It ended.".' in found["Message"]


def test_other_failures_are_said_as_they_are() -> None:
    found = parsed_error(INVOKE.failure(faults.UNAVAILABLE, "No instance.", None, CONTEXT), "InvokeEndpoint")
    assert (found["Error"]["Code"], found["Error"]["Message"]) == ("ServiceUnavailable", "No instance.")
    assert INVOKE.failure(faults.MODEL, "x", None, None)[0] == 424


def test_each_part_of_the_host_is_one_of_the_stream_unless_they_are_dust() -> None:
    """A read of 64 KiB in chunks of a byte would make a megabyte of frames."""
    few = list(events([STREAM.answer_parts([b"a", b"bc"])]))
    assert [event["PayloadPart"]["Bytes"] for event in few] == [b"a", b"bc"]
    dust = STREAM.answer_parts([b"x"] * 10_922)
    assert len(dust) < 2 * 10_922
    assert [event["PayloadPart"]["Bytes"] for event in events([dust])] == [b"x" * 10_922]


def test_bodies_pass_unchanged() -> None:
    assert INVOKE.answer_parts([b"\x00by", b"tes"]) == b"\x00bytes"
    assert INVOKE.broken_part("x", True, b"before") == (b"", False), "only the missing rest can tell"


@pytest.mark.parametrize(("timed_out", "code"), [(True, "ModelInvocationTimeExceeded"), (False, "StreamBroken")])
def test_a_stream_that_breaks_ends_with_an_exception(timed_out: bool, code: str) -> None:
    words, ends = STREAM.broken_part("It ended.", timed_out, b"before")
    assert ends, "the stream itself is whole"
    assert json.dumps({"Message": "It ended.", "ErrorCode": code}, separators=(",", ":")).encode() in words


def test_labels_and_paths_are_fixed_words() -> None:
    assert [(api.label, api.host_path) for api in APIS.values()] == [
        ("invoke", b"/invocations"),
        ("invoke_stream", b"/invocations"),
    ]
    assert native.MESSAGE_CHARACTERS_MAX == 2_048

import json
import re
from pathlib import Path

import pytest

from dataplane.api import faults
from dataplane.api.call import Context
from dataplane.api.chat import ChatCompletions
from dataplane.api.faults import Refused
from tests.dataplane.api.runtime_model import answer, lines, request

CHAT = ChatCompletions()
CONTEXT = Context("123456789012", "eu-west-1", "my-endpoint", "v1")
BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'


def body(**members: object) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": "hi"}], **members}).encode()


# --- requests --------------------------------------------------------------------------------------------------------


def test_a_call_says_what_routing_needs() -> None:
    call = CHAT.read(
        request(("X-Amzn-SageMaker-Target-Variant", b"v2"), body=body(stream=True, prompt_cache_key="k")), "e"
    )
    assert (call.endpoint_name, call.target_variant, call.isolation, call.is_stream) == ("e", "v2", None, True)
    assert call.chat is not None
    assert (call.chat.text, call.chat.isolation) == ("hi", "k")


def test_model_names_the_endpoint_where_the_path_does_not() -> None:
    assert CHAT.read(request(body=body(model="my-endpoint")), None).endpoint_name == "my-endpoint"
    assert CHAT.read(request(body=body(model="anything")), "e").endpoint_name == "e"
    assert CHAT.read(request(body=body(model=5)), "e").endpoint_name == "e", "what it says is the host's to judge"


@pytest.mark.parametrize("members", [{}, {"model": None}, {"model": 5}, {"model": ["m"]}])
def test_without_a_model_there_is_no_endpoint(members: dict[str, object]) -> None:
    with pytest.raises(Refused, match="model is required") as caught:
        CHAT.read(request(body=body(**members)), None)
    assert (caught.value.param, caught.value.fault) == ("model", faults.VALIDATION)


@pytest.mark.parametrize(
    ("data", "param"),
    [(b"{", None), (b"[]", None), (b"{}", "messages"), (body(prompt_cache_key=5), "prompt_cache_key")],
)
def test_a_bad_body_is_refused_with_its_member(data: bytes, param: str | None) -> None:
    with pytest.raises(Refused) as caught:
        CHAT.read(request(body=data), "e")
    assert (caught.value.fault, caught.value.param) == (faults.VALIDATION, param)


def test_a_host_sees_harmless_headers_only() -> None:
    """Credentials, cookies, organisation headers and who forwarded stay here; traces go on."""
    call = CHAT.read(
        request(
            ("Content-Type", b"application/json"),
            ("Accept", b"application/json"),
            ("Accept-Encoding", b"gzip"),
            ("User-Agent", b"OpenAI/Python"),
            ("traceparent", b"00-1-2-01"),
            ("tracestate", b"a=b"),
            ("Authorization", b"Bearer secret"),
            ("OpenAI-Organization", b"org"),
            ("X-Api-Key", b"secret"),
            ("Cookie", b"a=b"),
            ("Host", b"client"),
            ("Content-Length", b"2"),
            ("Transfer-Encoding", b"chunked"),
            ("Connection", b"keep-alive, x-secret"),
            ("X-Stainless-Lang", b"python"),
            ("X-Amzn-SageMaker-Target-Variant", b"v1"),
            body=BODY,
        ),
        "e",
    )
    assert dict(lines(call.headers)) == {
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Accept-Encoding": "gzip",
        "User-Agent": "OpenAI/Python",
        "traceparent": "00-1-2-01",
        "tracestate": "a=b",
    }


def test_a_header_that_came_in_several_lines_goes_on_in_as_many() -> None:
    call = CHAT.read(request(("tracestate", b"a=1"), ("Accept", b"a"), ("tracestate", b"b=2"), body=BODY), "e")
    assert sorted(lines(call.headers)) == [("Accept", "a"), ("tracestate", "a=1"), ("tracestate", "b=2")]


def test_a_component_is_named_in_the_path() -> None:
    with pytest.raises(Refused, match="X-Amzn-SageMaker-Inference-Component header is not allowed") as caught:
        CHAT.read(request(("X-Amzn-SageMaker-Inference-Component", b"c"), body=BODY), "e")
    assert caught.value.fault is faults.VALIDATION


def test_a_bad_variant_is_refused() -> None:
    with pytest.raises(Refused, match="'targetVariant'"):
        CHAT.read(request(("X-Amzn-SageMaker-Target-Variant", b"no variant"), body=BODY), "e")


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 204, 304, 400, 401, 404, 422, 429, 500, 503])
def test_answers_pass_with_their_status_and_headers(status: int) -> None:
    """Errors of the host are in OpenAI's form already; of the headers only framing stays here."""
    found = answer(
        status,
        [
            (b"content-type", b"application/json"),
            (b"content-length", b"17"),
            (b"x-ratelimit-remaining-tokens", b"5"),
            (b"set-cookie", b"a"),
            (b"set-cookie", b"b"),
            (b"retry-after", b"3"),
            (b"content-encoding", b"gzip"),
            (b"connection", b"close, X-Hop"),
            (b"x-hop", b"1"),
            (b"keep-alive", b"timeout=5"),
            (b"transfer-encoding", b"chunked"),
            (b"location", b"http://10.0.0.1/"),
        ],
    )
    head = CHAT.answer_head(found, b"v1", b"id-7")
    assert head is not None
    assert (head.status, head.content_length, head.is_stream) == (status, 17, False)
    assert lines(head.headers) == [
        ("x-Amzn-Invoked-Production-Variant", "v1"),
        ("x-amzn-RequestId", "id-7"),
        ("content-type", "application/json"),
        ("x-ratelimit-remaining-tokens", "5"),
        ("set-cookie", "a"),
        ("set-cookie", "b"),
        ("retry-after", "3"),
        ("content-encoding", "gzip"),
        ("x-request-id", "id-7"),
    ]


def test_what_a_host_declares_its_connections_own_stays_here() -> None:
    """However many lines it takes for that (RFC 9110, 7.6.1)."""
    own = [(b"connection", b"X-A, x-b"), (b"x-a", b"1"), (b"x-b", b"2"), (b"x-c", b"3"), (b"connection", b"close")]
    head = CHAT.answer_head(answer(200, own), b"v1", b"id")
    assert head is not None
    assert [name for name, _ in lines(head.headers) if name.startswith("x-") and len(name) == 3] == ["x-c"]


def test_a_hosts_own_request_id_is_kept() -> None:
    head = CHAT.answer_head(answer(200, [(b"x-request-id", b"theirs")]), b"v1", b"ours")
    assert head is not None
    found = lines(head.headers)
    assert [value for name, value in found if name == "x-request-id"] == ["theirs"]
    assert dict(found)["x-amzn-RequestId"] == "ours"


def test_a_stream_is_not_held_back_by_proxies() -> None:
    head = CHAT.answer_head(answer(200, [(b"content-type", b"text/event-stream; charset=utf-8")]), b"v1", b"id")
    assert head is not None
    assert head.is_stream
    assert {("cache-control", "no-cache"), ("x-accel-buffering", "no")} <= set(lines(head.headers))
    own = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"yes")]
    head = CHAT.answer_head(answer(200, own), b"v1", b"id")
    assert head is not None
    assert dict(lines(head.headers))["cache-control"] == "no-store"
    assert [name for name, _ in lines(head.headers)].count("x-accel-buffering") == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed_and_points_nowhere(status: int) -> None:
    """Where it points may be inside."""
    assert CHAT.answer_head(answer(status, [(b"location", b"http://10.0.0.1/")]), b"v1", b"id") is None
    said = CHAT.answer_whole(status, b"see http://10.0.0.1/", True, CONTEXT)
    assert said[0] == 502
    assert b"10.0.0.1" not in said[2]
    assert json.loads(said[2])["error"]["code"] == "model_error"


def test_bodies_pass_byte_for_byte() -> None:
    """Comments, odd fields and half events too."""
    for part in (b": keep-alive\n\n", b"event: x\r\nid: 1\r\ndata: {", b'"a": 1}\n\n', b"data: [DONE]\n\n"):
        assert CHAT.answer_parts([part]) == part
    assert CHAT.answer_parts([b"a", b"b"]) == b"ab"


@pytest.mark.parametrize(
    ("before", "start"),
    [(b"", b""), (b"data: x\n\n", b""), (b"data: x\r\n\r\n", b""), (b"data: x\n", b"\n\n"), (b'data: {"a', b"\n\n")],
)
@pytest.mark.parametrize("timed_out", [True, False])
def test_a_stream_that_breaks_ends_with_an_error_event(before: bytes, start: bytes, timed_out: bool) -> None:
    """Whole by itself, after whatever came before; and the connection shows that the rest is missing."""
    words, ends = CHAT.broken_part("It ended.", timed_out, before)
    assert not ends, "no [DONE], and the body is cut short"
    match = re.fullmatch(re.escape(start) + rb"data: (\{.*\})\n\n", words)
    assert match
    error = json.loads(match[1])["error"]
    assert (error["message"], error["code"]) == ("It ended.", "model_timeout" if timed_out else "model_error")


def test_failures_take_openais_form() -> None:
    status, _, data = CHAT.failure(faults.UNAVAILABLE, "No instance.", "model", CONTEXT)
    assert status == 503
    assert json.loads(data)["error"] == {
        "message": "No instance.",
        "type": "server_error",
        "param": "model",
        "code": "service_unavailable",
    }


def test_the_host_is_asked_on_openais_path() -> None:
    assert (CHAT.label, CHAT.host_path) == ("chat", b"/v1/chat/completions")
    assert Path(CHAT.host_path.decode()).is_absolute()

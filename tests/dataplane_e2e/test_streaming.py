"""Streams: framing, bytes, latency, back-pressure, and endings that are never what the host did not say."""

import contextlib
import json
import os
import random
from typing import Any

import httpx
import openai
import pytest
from botocore.exceptions import EventStreamError

from tests.dataplane_e2e.stage import (
    EVENTSTREAM,
    Deployed,
    Fleet,
    chat_body,
    frames,
    native_error,
    openai_client,
    payload,
    read_broken,
)
from tests.fakes.answers import Answer, Gate, chunk_event, sse
from tests.fakes.data_plane import DataPlane
from tests.fakes.raw_client import RawClient
from tests.waiting import wait_until

EVENTS = [b"data: %d\n\n" % number for number in range(4)] + [b"data: [DONE]\n\n"]
ODD = [
    b": PROCESSING\n\n",
    b"retry: 3000\n\n",
    b'id: 1\nevent: x\ndata: {"a":1}\n\n',
    b"data:\n\n",
    b"data: \xc3",
    b"\xa9\n\n",
    b"data: [DONE]\n\n",
]


def test_boto3_reads_a_stream_part_by_part(boto: Any, fleet: Fleet) -> None:
    """Real event-stream frames, at once; the caller's Accept reaches the host."""
    deployed = fleet.deploy(1)
    gates = [Gate() for _ in EVENTS]
    deployed.hosts[0].answer = sse(*(step for pair in zip(EVENTS, gates, strict=True) for step in pair))
    answer = boto.invoke_endpoint_with_response_stream(
        EndpointName=deployed.name, Body=b"{}", Accept="text/event-stream", PrefixAwareId="t1", CustomAttributes="a=1"
    )
    assert answer["ContentType"] == "text/event-stream"
    assert answer["InvokedProductionVariant"] == "AllTraffic"
    assert answer["ResponseMetadata"]["HTTPHeaders"]["content-type"] == EVENTSTREAM
    parts = iter(answer["Body"])
    for event, gate in zip(EVENTS, gates, strict=True):
        assert next(parts)["PayloadPart"]["Bytes"] == event
        gate.open()
    assert list(parts) == []
    (delivery,) = deployed.hosts[0].deliveries
    assert delivery.target == "/invocations"
    assert delivery.header("accept") == b"text/event-stream"
    assert delivery.header("x-amzn-sagemaker-custom-attributes") == b"a=1"


def test_frames_carry_the_documented_headers(plane: DataPlane, fleet: Fleet) -> None:
    """Names, types and checksums."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = sse(*EVENTS)
    with plane.client() as client:
        answer = client.request(deployed.stream, b"{}")
    assert answer.header("content-type") == EVENTSTREAM
    assert answer.header("x-amzn-sagemaker-content-type") == "text/event-stream"
    assert answer.header("x-amzn-invoked-production-variant") == "AllTraffic"
    found = frames(answer.body)
    assert payload(found) == b"".join(EVENTS)
    for frame in found:
        assert frame.headers == {
            ":message-type": "event",
            ":event-type": "PayloadPart",
            ":content-type": "application/octet-stream",
        }


def test_a_host_answer_that_is_no_stream_is_framed_too(boto: Any, fleet: Fleet) -> None:
    """The API frames whatever the container answers."""
    deployed = fleet.deploy(1)
    body = os.urandom(300_000)
    deployed.hosts[0].answer = Answer(body=body, headers=(("Content-Type", "image/png"),))
    answer = boto.invoke_endpoint_with_response_stream(EndpointName=deployed.name, Body=b"{}")
    assert answer["ContentType"] == "image/png"
    assert b"".join(part["PayloadPart"]["Bytes"] for part in answer["Body"]) == body


@pytest.mark.parametrize("ending", ["cut", "reset"])
def test_a_host_that_dies_in_the_middle_is_a_model_stream_error(boto: Any, fleet: Fleet, ending: str) -> None:
    """What came before is delivered, then the exception frame."""
    deployed = fleet.deploy(2)
    for host in deployed.hosts:
        host.answer = sse(EVENTS[0], 0.05, ending=ending)
    answer = boto.invoke_endpoint_with_response_stream(EndpointName=deployed.name, Body=b"{}")
    with contextlib.closing(answer["Body"]) as body:
        parts = iter(body)
        assert next(parts)["PayloadPart"]["Bytes"] == EVENTS[0]
        with pytest.raises(EventStreamError) as caught:
            next(parts)
    assert caught.value.response["Error"]["Code"] == "ModelStreamError"
    assert caught.value.response["Error"]["Message"]
    assert deployed.delivered == 1


def test_the_exception_frame_tells_a_broken_stream(plane: DataPlane, fleet: Fleet) -> None:
    """StreamBroken, as JSON."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = sse(EVENTS[0], ending="cut")
    with plane.client() as client:
        last = frames(client.request(deployed.stream, b"{}").body)[-1]
    assert last.headers == {
        ":message-type": "exception",
        ":exception-type": "ModelStreamError",
        ":content-type": "application/json",
    }
    assert json.loads(last.payload)["ErrorCode"] == "StreamBroken"


@pytest.mark.parametrize("answer", [Answer(body=b"no", status=400), Answer(body=[b"n", b"o"], status=500)])
def test_an_error_before_the_first_byte_is_no_stream(boto: Any, fleet: Fleet, answer: Answer) -> None:
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = answer
    with pytest.raises(boto.exceptions.ModelError) as caught:
        boto.invoke_endpoint_with_response_stream(EndpointName=deployed.name, Body=b"{}")
    assert caught.value.response["OriginalStatusCode"] == answer.status
    assert caught.value.response["OriginalMessage"] == "no"


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_odd_events_pass_unchanged_on_every_route(plane: DataPlane, fleet: Fleet, line_end: bytes) -> None:
    """Comments, retry, empty data, a character cut in two: the host's bytes, nothing else."""
    deployed = fleet.deploy(1)
    events = [event.replace(b"\n", line_end) for event in ODD]
    deployed.hosts[0].answer = sse(*events)
    with plane.client() as client:
        assert payload(frames(client.request(deployed.stream, b"{}").body)) == b"".join(events)
        answer = client.request(deployed.chat, chat_body("x", stream=True))
        assert answer.body == b"".join(events)
        assert answer.header("content-type") == "text/event-stream"
        assert client.request(deployed.invocations, b"{}").body == b"".join(events)


def test_events_are_not_held_back(plane: DataPlane, fleet: Fleet) -> None:
    """Head first, then each event when it comes, even for a client that takes gzip."""
    deployed = fleet.deploy(1)
    gates = [Gate() for _ in range(3)]
    deployed.hosts[0].answer = sse(gates[0], EVENTS[0], gates[1], EVENTS[1][:3], gates[2], EVENTS[1][3:])
    with plane.client() as client:
        client.ask(deployed.chat, chat_body("x", stream=True), [("Accept-Encoding", "gzip, br")])
        head = client.read_head()
        assert head.header("content-encoding") is None
        assert head.header("cache-control") == "no-cache"
        assert head.header("x-accel-buffering") == "no"
        chunks = client.chunks()
        for gate, expected in zip(gates, (EVENTS[0], EVENTS[1][:3], EVENTS[1][3:]), strict=True):
            gate.open()
            assert next(chunks) == expected
        assert list(chunks) == []


def test_an_error_event_of_the_host_passes_as_it_is(plane: DataPlane, fleet: Fleet) -> None:
    """(a) an error as the first event of a stream; (b) a JSON error instead of a stream."""
    deployed = fleet.deploy(1)
    said = b'{"error":{"message":"too long","type":"BadRequestError","code":400}}'
    deployed.hosts[0].queue += [
        sse(b"data: " + said + b"\n\n", b"data: [DONE]\n\n"),
        Answer(body=said, status=400),
    ]
    with plane.client() as client:
        first = client.request(deployed.chat, chat_body("x", stream=True))
        assert (first.status, first.body) == (200, b"data: " + said + b"\n\ndata: [DONE]\n\n")
        second = client.request(deployed.chat, chat_body("x", stream=True))
        assert (second.status, second.header("content-type"), second.body) == (400, "application/json", said)


def test_a_proper_end_without_done_stays_one(plane: DataPlane, fleet: Fleet) -> None:
    """No [DONE] is invented, none is waited for."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = sse(*EVENTS[:2])
    with plane.client() as client:
        assert client.request(deployed.chat, chat_body("x", stream=True)).body == b"".join(EVENTS[:2])


def test_a_host_that_keeps_the_socket_after_done_delays_nothing(plane: DataPlane, fleet: Fleet) -> None:
    """The bytes are there at once; when the client leaves, the count is released and the host let go."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = sse(*EVENTS, Gate())
    with plane.client() as client:
        client.ask(deployed.chat, chat_body("x", stream=True))
        client.read_head()
        chunks = client.chunks()
        body = b""
        while not body.endswith(EVENTS[-1]):
            body += next(chunks)
        assert body == b"".join(EVENTS)
        assert not client.has_data(0.1)
    wait_until(lambda: deployed.in_flight == 0, 2.0)
    fleet.expect_idle(2.0)


@pytest.mark.parametrize("ending", ["cut", "reset"])
def test_a_broken_chat_stream_never_looks_complete(plane: DataPlane, fleet: Fleet, ending: str) -> None:
    """The openai client raises; on the wire there is no clean end and no [DONE]."""
    deployed = fleet.deploy(1)
    chunk = {"id": "1", "created": 1, "model": "m", "choices": [{"index": 0, "delta": {"content": "hi"}}]}
    event = chunk_event(chunk)
    deployed.hosts[0].answer = sse(event, 0.05, ending=ending)
    with plane.client() as client:
        assert read_broken(client.ask(deployed.chat, chat_body("x", stream=True))) == event
    with openai_client(f"{plane.url}/endpoints/{deployed.name}/openai/v1") as client:
        parts = client.chat.completions.create(model="", messages=[{"role": "user", "content": "x"}], stream=True)
        assert next(parts).choices[0].delta.content == "hi"
        with pytest.raises((openai.APIError, httpx.RemoteProtocolError, httpx.ReadError)):
            list(parts)


def test_an_event_cut_in_two_is_not_taken_for_whole(plane: DataPlane, fleet: Fleet) -> None:
    """The host dies inside an event; nothing makes the half event look like one."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = sse(EVENTS[0], b'data: {"ha', ending="reset")
    with plane.client() as client:
        read_broken(client.ask(deployed.chat, chat_body("x", stream=True)))


@pytest.mark.parametrize("ending", ["cut", "reset"])
def test_a_broken_unary_answer_never_looks_complete(plane: DataPlane, fleet: Fleet, ending: str) -> None:
    deployed = fleet.deploy(1)
    for script in (Answer(body=b"half", ending=ending), Answer(body=[b"half", 0.05], ending=ending)):
        deployed.hosts[0].answer = script
        for target in (deployed.invocations, deployed.chat):
            with plane.client() as client:
                client.ask(target, chat_body("x"))
                head = client.read_head()
                if head.status != 200:
                    assert head.status in (424, 502)
                    continue
                rest = client.rest()
                length = head.header("content-length")
                assert not rest.endswith(b"0\r\n\r\n")
                assert length is None or len(rest) < int(length)
    assert deployed.delivered == 4


UNWANTED = ("x-hop", "proxy-authenticate", "upgrade", "location")


def test_status_type_and_headers_are_the_hosts_with_and_without_stream(plane: DataPlane, fleet: Fleet) -> None:
    """Repeats kept as lines of their own; hop-by-hop and framing headers are not passed on."""
    deployed = fleet.deploy(1)
    headers = (
        ("Content-Type", "application/x-ndjson"),
        ("X-Request-Id", "h1"),
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2; Expires=Wed, 21 Oct 2026 07:28:00 GMT"),
        ("X-Trace", "one"),
        ("X-Trace", "two"),
        ("Keep-Alive", "timeout=3"),
        ("Connection", "keep-alive, X-Hop"),
        ("X-Hop", "1"),
        ("Proxy-Authenticate", "Basic"),
        ("Upgrade", "h2c"),
        ("Location", "http://10.0.0.9:1/internal"),
    )
    for status in (200, 206):
        deployed.hosts[0].answer = Answer(body=[b"{}\n", b"{}\n"], headers=headers, status=status)
        with plane.client() as client:
            plain = client.request(deployed.chat, chat_body("x"))
            stream = client.request(deployed.chat, chat_body("x", stream=True))
        for answer in (plain, stream):
            assert (answer.status, answer.body) == (status, b"{}\n{}\n")
            assert answer.header("content-type") == "application/x-ndjson"
            assert answer.all("x-trace") in (["one", "two"], [])
            assert answer.all("set-cookie") in (["a=1", "b=2; Expires=Wed, 21 Oct 2026 07:28:00 GMT"], [])
            assert [name for name, _ in answer.headers if name.lower() in UNWANTED] == []
            assert answer.header("keep-alive") != "timeout=3"
        names = [sorted(name.lower() for name, _ in answer.headers) for answer in (plain, stream)]
        assert names[0] == names[1]


def test_bytes_are_exact_however_they_are_cut(plane: DataPlane, fleet: Fleet) -> None:
    """Random chunks from the host and reads of the client, on every route: the same bytes."""
    dice = random.Random(1)
    deployed = fleet.deploy(1)
    body = bytes(dice.randrange(256) for _ in range(50_000))
    for _ in range(4):
        cuts = sorted(dice.sample(range(len(body)), 30))
        parts = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
        steps = [step for part in parts for step in ((part, 0.001) if dice.random() < 0.3 else (part,))]
        deployed.hosts[0].answer = Answer(body=steps, headers=(("Content-Type", "application/octet-stream"),))
        with plane.client() as client:
            for target in (deployed.invocations, deployed.chat, deployed.stream):
                answer = client.request(target, chat_body("x", stream=True))
                found = payload(frames(answer.body)) if target == deployed.stream else answer.body
                assert found == body


def test_trailers_of_the_host_do_not_break_the_answer(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = Answer(body=[b"a", b"b"], trailers=(("X-Sum", "1"),))
    with plane.client() as client:
        for target in (deployed.invocations, deployed.chat):
            assert client.request(target, chat_body("x")).body == b"ab"
        assert invoke_stream(client, deployed) == b"ab"


def invoke_stream(client: RawClient, deployed: Deployed) -> bytes:
    """Return the joined bytes of a stream."""
    return payload(frames(client.request(deployed.stream, b"{}").body))


def test_an_unsupported_stream_input_is_refused(plane: DataPlane, fleet: Fleet) -> None:
    """A session cannot be opened by streaming."""
    deployed = fleet.deploy(1)
    with plane.client() as client:
        answer = client.request(deployed.stream, b"{}", [("X-Amzn-SageMaker-Session-Id", "NEW_SESSION")])
    assert native_error(answer)[:2] == (400, "ValidationError")
    assert deployed.delivered == 0

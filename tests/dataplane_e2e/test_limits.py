"""Bodies that are too large, too slow or announced first; and how long a host may take."""

import json
import shutil
import threading
import time
from typing import Any

import pytest

from tests.dataplane_e2e.conftest import QUICK
from tests.dataplane_e2e.stage import (
    Fleet,
    bodies_at,
    chat_body,
    error_of,
    frames,
    invoke,
    native_error,
    payload,
    prefix,
    read_broken,
    runtime,
)
from tests.fakes.answers import Answer, Gate, echo, sse
from tests.fakes.data_plane import DataPlane
from tests.fakes.raw_client import ConnectionEnded, request_bytes
from tests.waiting import wait_until

LIMIT = int(QUICK["BODY_BYTES_MAX"])


def chunked(body: bytes) -> bytes:
    """Return the body as chunks of 64 KiB."""
    parts = [body[at : at + 65_536] for at in range(0, len(body), 65_536)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_at_the_limit_is_delivered_whole(quick_plane: DataPlane, fleet: Fleet, is_chunked: bool) -> None:
    deployed = fleet.deploy(1)
    body = bytes(range(256)) * (LIMIT // 256)
    with quick_plane.client() as client:
        if is_chunked:
            answer = client.request(deployed.invocations, chunked(body), [("Transfer-Encoding", "chunked")])
        else:
            answer = client.request(deployed.invocations, body)
    assert answer.status == 200
    assert deployed.hosts[0].bodies == [body]


def test_a_longer_body_is_refused_before_it_is_read(quick_plane: DataPlane, fleet: Fleet) -> None:
    """By its announced length; the answer says the limit and no byte of the body is needed."""
    deployed = fleet.deploy(1)
    for target in (deployed.invocations, deployed.stream, deployed.chat, "/v1/chat/completions"):
        with quick_plane.client() as client:
            client.send(request_bytes(target, b"", [("Content-Length", str(LIMIT + 1))]))
            answer = client.read()
            assert answer.status == 413
            text = error_of(answer)["message"] if "chat" in target else json.loads(answer.body)["Message"]
            assert str(LIMIT) in text
    assert deployed.delivered == 0


def test_a_longer_chunked_body_is_refused_when_it_passes_the_limit(quick_plane: DataPlane, fleet: Fleet) -> None:
    """The chunks do not end; the answer comes all the same."""
    deployed = fleet.deploy(1)
    with quick_plane.client() as client:
        client.send(request_bytes(deployed.invocations, b"", [("Transfer-Encoding", "chunked")]))
        block = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        for _ in range(LIMIT // 65_536 + 2):
            try:
                client.send(block)
            except ConnectionError:
                break
        try:
            answer = client.read()
        except ConnectionEnded:
            pytest.fail("the connection was closed without an answer")
    assert answer.status == 413
    assert str(LIMIT) in json.loads(answer.body)["Message"]
    assert deployed.delivered == 0


def test_refusing_large_bodies_costs_no_memory(quick_plane: DataPlane, fleet: Fleet) -> None:
    """20 callers send 6 MiB too much each."""
    fleet.deploy(1)
    before = quick_plane.worker_bytes()

    def send() -> None:
        with quick_plane.client() as client:
            try:
                client.send(request_bytes(fleet.deployed[0].invocations, b"x" * (LIMIT * 2)))
                client.read()
            except (ConnectionError, ConnectionEnded):
                pass

    threads = [threading.Thread(target=send) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert quick_plane.worker_bytes() - before < 40 * 2**20


def test_a_chat_with_a_large_image_passes(plane: DataPlane, fleet: Fleet) -> None:
    """A 20 MiB data URL is below the default limit of 25 MiB."""
    deployed = fleet.deploy(2)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * (5 * 2**20)}}
    message = {"role": "user", "content": [{"type": "text", "text": "what is this"}, image]}
    body = json.dumps({"model": "m", "messages": [message]}).encode()
    assert len(body) > 20 * 2**20
    with plane.client() as client:
        assert client.request(deployed.chat, body).status == 200
    assert [host.bodies for host in deployed.hosts if host.bodies] == [[body]]


def test_100_continue_comes_before_the_body(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    body = b"x" * 2_000_000
    with plane.client() as client:
        client.send(
            request_bytes(deployed.invocations, b"", [("Content-Length", "2000000"), ("Expect", "100-continue")])
        )
        assert client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(body)
        assert client.read().status == 200
    (delivery,) = deployed.hosts[0].deliveries
    assert delivery.body == body
    assert delivery.header("expect") is None


def test_an_expected_body_that_will_be_refused_is_not_asked_for(quick_plane: DataPlane, fleet: Fleet) -> None:
    """Unknown endpoint and too large a body are final answers at once."""
    deployed = fleet.deploy(1)
    for target, length, status in (("/endpoints/nope/invocations", 5, 400), (deployed.invocations, LIMIT + 1, 413)):
        with quick_plane.client() as client:
            client.send(request_bytes(target, b"", [("Content-Length", str(length)), ("Expect", "100-continue")]))
            assert client.until(b"\r\n").startswith(b"HTTP/1.1 %d" % status)


def test_a_body_that_drips_holds_no_place(quick_plane: DataPlane, fleet: Fleet) -> None:
    """The slow caller is not counted before its body is in, and is sent away after READ_TIMEOUT_SECONDS."""
    deployed = fleet.deploy(3, threshold=1)
    body = prefix(1, 2_000)
    with quick_plane.client() as client, quick_plane.client() as slow:
        home = invoke(client, deployed, body)
        slow.send(request_bytes(deployed.invocations, body)[:-1_000])
        gate = deployed.host(home).hold()
        client.ask(deployed.invocations, body)
        wait_until(lambda: deployed.in_flight == 1)
        assert deployed.busy()[home] == 1
        gate.open()
        assert client.read().status == 200
        ended = slow.rest()
        assert not ended or ended.startswith(b"HTTP/1.1 408 ")
    assert deployed.delivered == 2


def test_a_head_that_drips_is_sent_away(quick_plane: DataPlane, fleet: Fleet) -> None:
    """The same limit holds from the first byte of the request."""
    fleet.deploy(1)
    with quick_plane.client() as slow:
        slow.send(b"POST /endpoints/x/invocations HTTP/1.1\r\nHost: x\r\nX-Dr")
        ended = slow.rest()
        assert not ended or ended.startswith(b"HTTP/1.1 408 ")


def test_a_host_may_think_longer_than_a_client_librarys_default(plane: DataPlane, fleet: Fleet) -> None:
    """5.3 s before the head, and between chunks, on every route; CONNECT_TIMEOUT_SECONDS is 0.5 here."""
    deployed = fleet.deploy(2, "RANDOM")
    slow_head = Answer(before=5.3)
    slow_chunk = sse(b"data: 1\n\n", 5.3, b"data: [DONE]\n\n")
    cases = [
        (deployed.invocations, slow_head),
        (deployed.stream, slow_head),
        (deployed.chat, slow_head),
        (deployed.invocations, slow_chunk),
        (deployed.stream, slow_chunk),
        (deployed.chat, slow_chunk),
    ]
    clients = []
    for number, (target, script) in enumerate(cases):
        for host in deployed.hosts:
            host.answer = script
        clients.append(plane.client().ask(target, chat_body("x")))
        wait_until(lambda sent=number + 1: deployed.in_flight == sent)
    answers = [client.read() for client in clients]
    for client in clients:
        client.close()
    assert [answer.status for answer in answers] == [200] * 6
    assert answers[2].body == b"{}"
    assert answers[3].body == answers[5].body == b"data: 1\n\ndata: [DONE]\n\n"
    assert payload(frames(answers[4].body)) == b"data: 1\n\ndata: [DONE]\n\n"


def test_a_unary_call_past_its_limit_is_a_model_error_of_status_0(quick_plane: DataPlane, fleet: Fleet) -> None:
    """Told in AWS's words, one delivery, the host's connection closed, no count left."""
    deployed = fleet.deploy(2)
    for host in deployed.hosts:
        host.hold()
    client = runtime(quick_plane, retries={"mode": "standard", "total_max_attempts": 3})
    started = time.monotonic()
    with pytest.raises(client.exceptions.ModelError) as caught:
        client.invoke_endpoint(EndpointName=deployed.name, Body=b"{}")
    client.close()
    assert 0.9 < time.monotonic() - started < 3
    answer = caught.value.response
    assert answer["OriginalStatusCode"] == 0
    assert answer["Message"].startswith(
        'Received server error (0) from primary with message "Your invocation timed out while waiting for a response '
        "from container primary. Review the latency metrics for each container in Amazon CloudWatch, resolve the "
        'issue, and try again.". See '
    )
    assert deployed.delivered == 1
    wait_until(lambda: deployed.in_flight == 0)
    (delivery,) = (delivery for host in deployed.hosts for delivery in host.deliveries)
    assert delivery.peer_left is not None


def test_a_chat_past_its_limit_is_a_504(quick_plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(2)
    for host in deployed.hosts:
        host.hold()
    with quick_plane.client() as client:
        for stream in (False, True):
            answer = client.request(deployed.chat, chat_body("x", stream=stream))
            assert answer.status == 504
            assert "timed out" in error_of(answer)["message"]
    assert deployed.delivered == 2
    wait_until(lambda: deployed.in_flight == 0)


def test_a_stream_without_a_first_byte_is_a_model_error(quick_plane: DataPlane, fleet: Fleet) -> None:
    """FIRST_BYTE_TIMEOUT_SECONDS; before the first byte it is an ordinary HTTP error."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].hold()
    with quick_plane.client() as client:
        answer = client.request(deployed.stream, b"{}")
    assert native_error(answer)[:2] == (424, "ModelError")
    assert json.loads(answer.body)["OriginalStatusCode"] == 0
    wait_until(lambda: deployed.hosts[0].open_connections == 0)


def test_a_unary_answer_may_take_longer_than_a_first_byte_but_not_than_the_call(
    quick_plane: DataPlane, fleet: Fleet
) -> None:
    """Chunks keep coming, the whole call ends at INVOKE_TIMEOUT_SECONDS all the same."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = Answer(body=[b"x"] + [step for _ in range(40) for step in (0.1, b"x")])
    started = time.monotonic()
    with quick_plane.client() as client:
        client.ask(deployed.invocations, b"{}")
        if (head := client.read_head()).status == 200:
            with pytest.raises(ConnectionEnded):
                list(client.chunks(head))
        else:
            assert head.status == 424
    assert time.monotonic() - started < 3
    wait_until(lambda: deployed.in_flight == 0)


def test_a_slow_but_steady_stream_is_not_cut(quick_plane: DataPlane, fleet: Fleet) -> None:
    """Longer than every other limit (1 s), with no gap as long as IDLE_TIMEOUT_SECONDS (0.7 s)."""
    deployed = fleet.deploy(1)
    events = [b"data: %d\n\n" % number for number in range(5)]
    deployed.hosts[0].answer = sse(*(step for event in events for step in (event, 0.4)))
    with quick_plane.client() as native, quick_plane.client() as openai:
        native.ask(deployed.stream, b"{}")
        openai.ask(deployed.chat, chat_body("x", stream=True))
        assert payload(frames(native.read().body)) == b"".join(events)
        assert openai.read().body == b"".join(events)


def test_an_idle_stream_ends_with_an_error(quick_plane: DataPlane, fleet: Fleet) -> None:
    """One chunk, then nothing: each protocol's error, the host's connection closed, the count released."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].hold(before_head=False)
    with quick_plane.client() as native, quick_plane.client() as openai:
        native.ask(deployed.stream, b"{}")
        openai.ask(deployed.chat, chat_body("x", stream=True))
        found = frames(native.read().body)
        assert read_broken(openai) == b"data: first\n\n"
    assert payload(found) == b"data: first\n\n"
    assert found[-1].headers[":exception-type"] == "ModelStreamError"
    assert json.loads(found[-1].payload)["ErrorCode"] == "ModelInvocationTimeExceeded"
    wait_until(lambda: deployed.hosts[0].open_connections == 0)
    assert deployed.in_flight == 0


def test_a_stream_past_its_whole_limit_ends_with_an_error(quick_plane: DataPlane, fleet: Fleet) -> None:
    """STREAM_TIMEOUT_SECONDS is 3 here; the stream never pauses."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = sse(*(step for _ in range(60) for step in (b"data: x\n\n", 0.1)))
    started = time.monotonic()
    with quick_plane.client() as client:
        found = frames(client.request(deployed.stream, b"{}").body)
    assert 2.5 < time.monotonic() - started < 5
    assert json.loads(found[-1].payload)["ErrorCode"] == "ModelInvocationTimeExceeded"
    wait_until(lambda: deployed.in_flight == 0)


def test_large_bodies_do_not_hold_up_small_requests(plane: DataPlane, fleet: Fleet) -> None:
    """6 MB chats at concurrency 4, while a small invocation is sent again and again."""
    deployed = fleet.deploy(2)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * (3 * 2**19)}}
    body = json.dumps({"messages": [{"role": "user", "content": [image, {"type": "text", "text": "x"}]}]}).encode()
    done = threading.Event()
    failed: list[Any] = []

    def load() -> None:
        with plane.client() as client:
            while not done.is_set():
                if client.request(deployed.chat, body).status != 200:
                    failed.append(1)

    with plane.client() as probe:
        idle = [_timed(probe, deployed) for _ in range(60)]
        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: deployed.delivered > 64)
        busy = [_timed(probe, deployed) for _ in range(60)]
        done.set()
        for thread in threads:
            thread.join()
    assert not failed
    # The clients and hosts of this test share the machine with the worker; 0.25 s is the case's own limit.
    assert sorted(busy)[57] < 0.25 + 5 * sorted(idle)[57]


def _timed(client: Any, deployed: Any) -> float:
    started = time.monotonic()
    invoke(client, deployed, b"{}")
    return time.monotonic() - started


def test_a_slow_host_is_waited_for_by_its_caller_alone(plane: DataPlane, fleet: Fleet) -> None:
    """A held request does not delay those of other keys."""
    deployed = fleet.deploy(2, threshold=1)
    gate = Gate()
    with plane.client() as held, plane.client() as client:
        home = invoke(client, deployed, prefix(1))
        other = next(host.name for host in deployed.hosts if host.name != home)
        (elsewhere,) = bodies_at(client, deployed, other, 1)
        deployed.host(home).answer = Answer(before=gate)
        held.ask(deployed.invocations, prefix(1))
        wait_until(lambda: deployed.in_flight == 1)
        started = time.monotonic()
        assert [invoke(client, deployed, elsewhere) for _ in range(20)] == [other] * 20
        assert time.monotonic() - started < 2
        deployed.host(home).answer = echo
        gate.open()
        assert held.read().status == 200


def test_time_limits_hold_when_metrics_cannot_be_written(own_fleet: Fleet) -> None:
    """As on a full disk: what keeps the limits also writes the metrics."""
    plane = own_fleet.stage.start(settings=QUICK)
    deployed = own_fleet.deploy(1)
    shutil.rmtree(own_fleet.stage.directory / "plane-0" / "metrics")
    wait_until(lambda: "Metrics of this worker cannot be kept" in plane.output)
    deployed.hosts[0].hold()
    with plane.client() as client:
        answer = client.request(deployed.invocations, b"{}")
    assert native_error(answer)[:2] == (424, "ModelError")
    wait_until(lambda: deployed.in_flight == 0)

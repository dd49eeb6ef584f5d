"""The fake host does what its scripts say; without this, a test of the product might test nothing."""

import json
import socket
import time
from collections.abc import Iterator

import httpx
import openai
import pytest

from tests.fakes.answers import Answer, Flood, Gate, Raw, gzip_answer, json_answer, redirect, sse
from tests.fakes.model_host import Hosts, HostThread, ModelHost, host_thread, shares
from tests.waiting import wait_until

EVENTS = [b"data: 1\n\n", b"data: 2\n\n", b"data: [DONE]\n\n"]


@pytest.fixture(scope="module")
def thread() -> Iterator[HostThread]:
    with host_thread() as thread:
        yield thread


@pytest.fixture
def hosts(thread: HostThread) -> Iterator[Hosts]:
    hosts = Hosts(thread)
    yield hosts
    hosts.close()


@pytest.fixture
def host(hosts: Hosts) -> ModelHost:
    return hosts.one()


def send(host: ModelHost, body: bytes = b"{}", path: str = "/invocations") -> socket.socket:
    connected = socket.create_connection((host.address, host.port), 5)
    connected.sendall(b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body)
    return connected


def read_all(connected: socket.socket) -> bytes:
    parts = []
    while part := connected.recv(65536):
        parts.append(part)
    connected.close()
    return b"".join(parts)


def test_it_answers_pings_and_echoes_invocations(host: ModelHost) -> None:
    assert httpx.get(f"{host.url}/ping").status_code == 200
    answer = httpx.post(f"{host.url}/invocations", content=b"abc", headers={"X-A": "1"})
    assert answer.json()["host"] == "h1"
    assert answer.json()["bytes"] == 3
    assert len(host.pings) == 1
    assert [(d.method, d.target, d.body, d.header("x-a")) for d in host.deliveries] == [
        ("POST", "/invocations", b"abc", b"1")
    ]
    assert host.deliveries[0].closed is not None
    assert host.deliveries[0].peer_left is None


def test_the_openai_client_reads_its_answers(host: ModelHost) -> None:
    with openai.OpenAI(base_url=f"{host.url}/v1", api_key="x", max_retries=0) as client:
        whole = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        assert whole.choices[0].message.content == "Hello from h1"
        parts = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True)
        assert "".join(part.choices[0].delta.content or "" for part in parts) == "Hello from h1"


def test_ping_status_and_path_are_scripted(host: ModelHost) -> None:
    host.ping_path = "/health"
    host.ping = Answer(body=b"", status=503, reason="Loading")
    assert httpx.get(f"{host.url}/health").status_code == 503


def test_requests_are_held_until_released(host: ModelHost) -> None:
    gate = host.hold()
    held = [send(host) for _ in range(3)]
    wait_until(lambda: host.in_flight == 3)
    assert host.peak == 3
    gate.open()
    for connected in held:
        connected.shutdown(socket.SHUT_WR)
    wait_until(lambda: host.in_flight == 0)
    for connected in held:
        connected.close()


def test_scripts_in_the_queue_serve_one_request_each(host: ModelHost) -> None:
    host.queue += [json_answer({"n": 1}, status=400), json_answer({"n": 2})]
    found = [httpx.post(f"{host.url}/invocations").json() for _ in range(3)]
    assert found[:2] == [{"n": 1}, {"n": 2}]
    assert "host" in found[2]


def test_chunks_arrive_one_by_one_between_gates(host: ModelHost) -> None:
    gate = Gate()
    host.answer = sse(EVENTS[0], gate, EVENTS[1], 0.01, EVENTS[2])
    with httpx.stream("POST", f"{host.url}/invocations") as answer:
        parts = answer.iter_raw()
        assert next(parts) == EVENTS[0]
        gate.open()
        assert b"".join(parts) == b"".join(EVENTS[1:])


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (sse(*EVENTS, ending="cut"), httpx.RemoteProtocolError),
        (sse(*EVENTS, ending="reset"), httpx.ReadError),
        (Answer(body=b"half", ending="cut"), httpx.RemoteProtocolError),
        (Raw(), httpx.RemoteProtocolError),
        (Raw(ending="reset"), httpx.ReadError),
        (Raw([b"HTTP/1.1 abc What\r\n\r\n"]), httpx.RemoteProtocolError),
        (Raw([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"]), httpx.RemoteProtocolError),
    ],
)
def test_broken_answers_break(host: ModelHost, script: Answer, error: type[Exception]) -> None:
    host.answer = script
    with pytest.raises(error):
        httpx.post(f"{host.url}/invocations")


def test_compression_redirects_trailers_and_close_framing(host: ModelHost) -> None:
    host.queue += [gzip_answer(b'{"a":1}'), redirect("http://10.0.0.9:1/x"), Answer(body=b"rest", framing="close")]
    host.queue += [Answer(body=[b"x"], trailers=[("X-Sum", "1")])]
    assert httpx.post(f"{host.url}/invocations").json() == {"a": 1}
    assert httpx.post(f"{host.url}/invocations").headers["location"] == "http://10.0.0.9:1/x"
    assert read_all(send(host)).endswith(b"Connection: close\r\n\r\nrest")
    with send(host) as connected:
        wait_until(lambda: connected.recv(65536, socket.MSG_PEEK).endswith(b"1\r\nx\r\n0\r\nX-Sum: 1\r\n\r\n"))


def test_a_host_dies_and_comes_back_on_its_port(host: ModelHost) -> None:
    with httpx.Client() as client:
        assert client.post(f"{host.url}/invocations").status_code == 200
        host.die()
        with pytest.raises(httpx.ConnectError):
            client.post(f"{host.url}/invocations")
        host.start()
        assert client.post(f"{host.url}/invocations").status_code == 200
    assert len(host.deliveries) == 2


def test_refusing_leaves_open_connections(host: ModelHost) -> None:
    gate = host.hold()
    with send(host) as connected:
        wait_until(lambda: host.in_flight == 1)
        host.refuse()
        with pytest.raises(ConnectionRefusedError):
            send(host)
        gate.open()
        assert connected.recv(12) == b"HTTP/1.1 200"


def test_a_stalled_host_takes_no_connection(host: ModelHost) -> None:
    host.stall()
    # One more than the length of the queue fits in; the next gets no answer.
    with send(host), pytest.raises(TimeoutError):
        socket.create_connection((host.address, host.port), 0.2)
    assert host.deliveries == []


def test_idle_connections_are_dropped_alone(host: ModelHost) -> None:
    gate = Gate()
    with send(host) as idle:
        assert idle.recv(12) == b"HTTP/1.1 200"
        wait_until(lambda: host.in_flight == 0)
        host.answer = Answer(before=gate)
        with send(host) as busy:
            wait_until(lambda: host.in_flight == 1)
            host.drop_connections(idle_only=True)
            wait_until(lambda: host.open_connections == 1)
            gate.open()
            assert busy.recv(12) == b"HTTP/1.1 200"


def test_an_answer_may_break_its_promise_to_keep_the_connection(host: ModelHost) -> None:
    host.answer = Answer(ending="drop")
    assert read_all(send(host)).endswith(b"\r\n\r\n{}")


def test_a_peer_that_leaves_is_written_down_and_ends_the_script(host: ModelHost) -> None:
    host.hold()
    connected = send(host)
    wait_until(lambda: host.in_flight == 1)
    connected.close()
    wait_until(lambda: host.in_flight == 0)
    assert host.deliveries[0].peer_left is not None


def test_a_body_that_never_ends_is_no_request_in_flight(host: ModelHost) -> None:
    with socket.create_connection((host.address, host.port)) as connected:
        connected.sendall(b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
        wait_until(lambda: len(host.deliveries) == 1)
        assert host.in_flight == 0
        assert host.bodies == []
    wait_until(lambda: host.deliveries[0].peer_left is not None)


def test_a_flood_stops_when_nobody_reads(host: ModelHost) -> None:
    host.answer = Flood(64 * 2**20)
    with send(host) as connected:
        wait_until(lambda: host.deliveries != [])
        delivery = host.deliveries[0]
        seen = [-1]

        def is_steady() -> bool:
            seen.append(delivery.bytes_sent)
            time.sleep(0.05)
            return seen[-1] == seen[-2] > 0

        wait_until(is_steady)
        assert delivery.bytes_sent < 16 * 2**20
        assert connected.recv(12) == b"HTTP/1.1 200"


def test_chunked_requests_are_put_together(host: ModelHost) -> None:
    answer = httpx.post(f"{host.url}/invocations", content=iter([b"ab", b"c"]))
    assert answer.json()["bytes"] == 3
    assert host.bodies == [b"abc"]


def test_ambiguous_requests_fail_the_test_that_sent_them(thread: HostThread) -> None:
    hosts = Hosts(thread)
    host = hosts.one()
    with socket.create_connection((host.address, host.port)) as connected:
        connected.sendall(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        )
        wait_until(lambda: host.faults)
    with pytest.raises(AssertionError, match="both Content-Length and Transfer-Encoding"):
        hosts.close()


def test_many_hosts_have_names_and_shares(hosts: Hosts) -> None:
    made = hosts.make(3)
    for number, host in enumerate(made):
        for _ in range(number):
            httpx.post(f"{host.url}/invocations", content=json.dumps({}).encode())
    assert shares(made) == {"h1": 0, "h2": 1, "h3": 2}

"""HTTP itself: paths, methods, framing, keep-alive, old and odd clients."""

import json

import pytest

from tests.dataplane_e2e.stage import Fleet
from tests.fakes.answers import Answer, Raw, json_answer
from tests.fakes.data_plane import DataPlane
from tests.fakes.raw_client import RawClient
from tests.waiting import wait_until


@pytest.mark.parametrize(
    "target",
    [
        "/endpoints/{name}%2F..%2F..%2Fv1%2Fload_lora_adapter/invocations",
        "/endpoints/..%2f..%2fhealth/invocations",
        "/endpoints/{name}/invocations/../../metrics",
        "/endpoints/{name}/../{name}/invocations",
        "/endpoints//invocations",
        "/endpoints/{name}%00/invocations",
        "/endpoints/{name}/openai/v1/load_lora_adapter",
        "//endpoints/{name}/invocations",
        "/endpoints/{name}/invocations%2f..%2f..%2fmetrics",
    ],
)
def test_paths_that_reach_elsewhere_stay_here(plane: DataPlane, fleet: Fleet, target: str) -> None:
    deployed = fleet.deploy(1)
    with plane.client() as client:
        answer = client.request(target.format(name=deployed.name), b"{}")
        assert 400 <= answer.status < 500
        assert answer.header("content-type") == "application/json"
    assert deployed.delivered == 0


def test_requests_on_one_connection_do_not_mix(plane: DataPlane, fleet: Fleet) -> None:
    """Lengths are right under keep-alive, whatever the answer's framing was."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].queue += [
        json_answer({"n": 1}),
        Answer(body=[b'{"n"', b": 2}"]),
        json_answer({"detail": "no"}, status=400),
        Answer(body=b'{"n": 4}', framing="close"),
        Answer(body=b""),
        json_answer({"n": 6}, keep_alive=False),
        json_answer({"n": 7}),
    ]
    with plane.client() as client:
        answers = [client.request(deployed.invocations, b"%d" % number) for number in range(7)]
    assert [answer.status for answer in answers] == [200, 200, 424, 200, 200, 200, 200]
    bodies = [answer.body for answer in answers]
    assert bodies[:2] + bodies[3:] == [b'{"n": 1}', b'{"n": 2}', b'{"n": 4}', b"", b'{"n": 6}', b'{"n": 7}']
    assert deployed.hosts[0].bodies == [b"%d" % number for number in range(7)]


def test_a_chunked_request_arrives_with_one_framing(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    body = '{\n  "messages": [],\n  "model": "\\u4e2d é"\n}'.encode()
    framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:7], body[7:])) + b"0\r\n\r\n"
    with plane.client() as client:
        for target in (deployed.invocations, deployed.stream, deployed.chat):
            assert client.request(target, framed, [("Transfer-Encoding", "chunked")]).status == 200
    assert deployed.hosts[0].bodies == [body] * 3


def test_an_answer_of_no_bytes_arrives_at_once(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    deployed.hosts[0].queue += [
        Answer(body=b"", headers=()),
        Answer(body=[], headers=()),
        Answer(body=b"", status=204, reason="No Content", headers=()),
    ]
    with plane.client() as client:
        for expected in (200, 200, 204):
            answer = client.request(deployed.invocations, b"{}")
            assert (answer.status, answer.body) == (expected, b"")
        assert answer.header("transfer-encoding") is None


def test_an_http_1_0_caller_can_read_the_answer(plane: DataPlane, fleet: Fleet) -> None:
    """No chunks; the end is a length or the end of the connection."""
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = Answer(body=[b"one", b"two"])
    for target in (deployed.invocations, deployed.chat):
        with plane.client() as client:
            client.send(b"POST %b HTTP/1.0\r\nContent-Length: 15\r\n\r\n" % target.encode() + b'{"messages":[]}')
            answer = client.read()
            assert (answer.status, answer.body) == (200, b"onetwo")
            assert answer.header("transfer-encoding") is None
            assert client.is_ended()


def test_pipelined_requests_are_answered_in_order(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    with plane.client() as client:
        for number in range(5):
            client.ask(deployed.invocations, b"x" * number)
        assert [json.loads(client.read().body)["bytes"] for _ in range(5)] == [0, 1, 2, 3, 4]


def test_an_interim_answer_of_the_host_is_not_the_answer(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    deployed.hosts[0].answer = Raw(
        [b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"], "keep"
    )
    with plane.client() as client:
        answer = client.request(deployed.invocations, b"{}")
    assert (answer.status, answer.body) == (200, b"ok")


def test_methods_and_routes_that_do_not_exist(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    with plane.client() as client:
        for method, target in (("GET", deployed.invocations), ("PUT", deployed.chat), ("DELETE", "/v1/models")):
            answer = client.request(target, b"", method=method)
            assert answer.status == 405
            assert answer.header("allow")
        for target in ("/", "/endpoints", "/invocations", f"/endpoints/{deployed.name}", "/v1/embeddings"):
            assert client.request(target, b"{}").status == 404
    assert deployed.delivered == 0


def test_bytes_that_are_no_request_are_refused(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    target = deployed.invocations.encode()
    for junk in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST " + target + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST " + target + b" HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST " + target + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST " + target + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST " + target + b" HTTP/1.1\r\nHost: x\r\nBad Name: 1\r\n\r\n",
        b"POST " + target + b" HTTP/1.1\r\nX: " + b"y" * 300_000 + b"\r\n\r\n",
    ):
        with plane.client() as client:
            try:
                client.send(junk)
            except ConnectionError:
                continue  # refused before all of it was sent
            answer = _read_or_end(client)
            assert answer is None or 400 <= answer < 500
    assert deployed.delivered == 0
    wait_until(lambda: deployed.in_flight == 0)


def _read_or_end(client: RawClient) -> int | None:
    data = client.rest()
    return int(data.split(b" ")[1]) if data else None

"""Hostile requests over sockets to both doors of the API, served as the plane is: uvicorn, h11, strict_http.

The data plane's set of heads and bodies is used here, too. What h11 decides otherwise is named in LEFT_TO_H11.
"""

import contextlib
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from controlplane import http_protocol
from controlplane.api import body as body_module
from tests.controlplane.api.stubs import Stubs, served
from tests.dataplane_e2e.test_smuggling import BODY, ELSEWHERE, READ, REFUSED, framed
from tests.fakes.raw_client import ConnectionEnded, RawClient

GOOD = b"{           }"
"""As long as the body of the set, whose length is written in many ways."""
LAST = framed(b"Content-Length: 13", b"Connection: close")
"""Follows on the same connection, and must be the next request that is read, or not be read."""

LEFT_TO_H11 = {
    # One reading, by RFC 9112, 6.3: equal lengths are one.
    "two equal lengths": [200, 200],
    "a list of lengths": [200, 200],
    # 7.1.1 and 7.1.2: extensions and trailers are passed over, whatever they hold.
    "a space after the size": [200, 200],
    "a CR in an extension": [200, 200],
    "a NUL in an extension": [200, 200],
    "a line end in a quoted extension": [200, 200],
    "a length as trailer": [200, 200],
    "a coding as trailer": [200, 200],
    # 2.2: a bare LF may end a line; in a trailer it hides nothing.
    "a bare LF at the end": [200, 200],
    # Any token is a method, and any printable text a target: they are read, and not served.
    "a method in lower case": [405, 200],
    "an unknown method": [405, 200],
    "CONNECT": [404, 200],
    "no slash": [404, 200],
    # It waits for so much, until its time is over.
    "a size past 64 bits": [408],
    "a length past 64 bits": [413],
    # 2.2: SHOULD ignore an empty line; h11 does not.
    "empty lines before the request": [400],
    "GET with a body": [405, 200],
}


@dataclass
class Door:
    """One way in. ``path`` names the operation, or the header does."""

    stubs: Stubs
    port: int
    path: bytes

    def answers(self, data: bytes) -> list[int]:
        """Send bytes of the set; return the statuses of all answers until the connection ends."""
        data = data.replace(BODY, GOOD).replace(b"@", self.path)
        if self.path == b"/":
            data = data.replace(b"Host: h\r\n", b"Host: h\r\nX-Amz-Target: SageMaker.ListEndpoints\r\n")
        with RawClient(self.port) as client:
            with contextlib.suppress(ConnectionError):
                client.send(data)
            found: list[int] = []
            # After these the rest of the body would follow; uvicorn drops it, and closes after 5 s.
            while not {408, 413} & set(found):
                try:
                    found.append(client.read().status)
                except ConnectionEnded:
                    break
        return found

    def ask(self, body: bytes) -> tuple[int, str]:
        """Call the operation with this body; return status and error code."""
        headers = [("Content-Type", "application/json"), ("X-Amz-Target", "SageMaker.ListEndpoints")]
        with RawClient(self.port) as client:
            answer = client.request(self.path.decode(), body, headers)
        return answer.status, json.loads(answer.body).get("__type", "")


@pytest.fixture(params=[b"/ListEndpoints", b"/"], ids=["rest", "aws_json"])
def door(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(body_module, "READ_SECONDS", 0.5)
    stubs = Stubs()
    stubs.add("ListEndpoints", {"Endpoints": []})
    with served(stubs.app()) as url:
        yield Door(stubs, urlsplit(url).port or 0, request.param)


@pytest.mark.parametrize(
    ("cases", "expected"),
    [(REFUSED, [400]), (READ, [200, 200]), (ELSEWHERE, [404, 200])],
    ids=["refused", "read", "else"],
)
def test_no_request_comes_out_of_another(
    door: Door, cases: dict[str, bytes], expected: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """Refused and closed, or read in one way and followed by the next request that was sent; never a 5xx."""
    for name, data in cases.items():
        door.stubs.calls.clear()
        wanted = LEFT_TO_H11.get(name, expected)
        assert door.answers(data + LAST) == wanted, name
        assert len(door.stubs.calls) == wanted.count(200), name
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_what_is_left_to_h11_is_in_the_set() -> None:
    assert LEFT_TO_H11.keys() <= REFUSED.keys() | READ.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "SerializationException"),
        (b"[" * 100_000, "SerializationException"),
        (b'{"a":' * 50_000, "SerializationException"),
        (b'{"MaxResults": ' + b"9" * 5_000 + b"}", "SerializationException"),
        (b'{"MaxResults": 1e999}', "SerializationException"),
        (b'{"MaxResults": NaN}', "SerializationException"),
        (b'{"MaxResults": 1, "MaxResults": "x"}', "SerializationException"),
        (b'{"NameContains": "\\ud800"}', "ValidationException"),
        (b'{"NameContains": "\\u0000"}', "ValidationException"),
        (b'{"NameContains": "a\x00b"}', "SerializationException"),
        (b'{"NameContains": "\xff"}', "SerializationException"),
        (b'{"NameContains": "\xed\xa0\x80"}', "SerializationException"),
        ("{}".encode("utf-16"), "SerializationException"),
        ("{}".encode("utf-16-le"), "SerializationException"),
        (b"null", "SerializationException"),
        (b"{} {}", "SerializationException"),
        (b"// {}", "SerializationException"),
    ],
    ids=range(17),
)
def test_hostile_json_is_refused(door: Door, body: bytes, code: str) -> None:
    assert door.ask(body) == (400, code)
    assert door.ask(b"{}") == (200, "")


@pytest.mark.parametrize("body", [b"\xef\xbb\xbf{}", b' \r\n\t{"MaxResults": 5, "MaxResults": 6}'])
def test_odd_json_of_one_meaning_is_read(door: Door, body: bytes) -> None:
    assert door.ask(body) == (200, "")


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_large_is_refused_before_it_is_read(door: Door, announced: bool) -> None:
    """By its length, of which no byte follows; or when the chunks pass the limit, which do not end."""
    with RawClient(door.port) as client:
        if announced:
            head = framed(
                b"Content-Length: %d" % (body_module.BODY_BYTES_MAX + 1), b"X-Amz-Target: SageMaker.X", body=b""
            )
            client.send(head.replace(b"@", b"/ListEndpoints"))
        else:
            client.send(framed(b"Transfer-Encoding: chunked", body=b"").replace(b"@", b"/ListEndpoints"))
            with contextlib.suppress(ConnectionError):
                for _ in range(body_module.BODY_BYTES_MAX // 65_536 + 1):
                    client.send(b"10000\r\n" + b" " * 65_536 + b"\r\n")
        assert client.read().status == 413
    assert door.stubs.calls == []


def test_a_body_that_drips_is_sent_away(door: Door) -> None:
    with RawClient(door.port) as client:
        client.send(framed(b"Content-Length: 13", body=b"{").replace(b"@", b"/ListEndpoints"))
        assert client.read().status == 408
    assert door.stubs.calls == []


def test_requests_sent_ahead_are_answered_in_order(door: Door) -> None:
    assert door.answers(framed(b"Content-Length: 13") * 20 + LAST) == [200] * 21


@pytest.mark.parametrize("head", [b"X: %b\r\n" % (b"x" * 70_000), b"X: y\r\n" * 20_000], ids=["one", "many"])
def test_a_head_that_is_too_large_is_refused(door: Door, head: bytes) -> None:
    assert door.answers(b"POST @ HTTP/1.1\r\nHost: h\r\n" + head) in ([400], [])
    assert door.answers(LAST) == [200]

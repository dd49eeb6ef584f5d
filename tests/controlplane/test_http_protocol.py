"""Heads that do not end, and heads that other servers have read in two ways: closed, refused, or read in one way."""

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from controlplane import http_protocol
from tests.controlplane.api.stubs import Stubs, served

POST = b"POST /DeleteEndpoint HTTP/1.1\r\nHost: x\r\n"
BODY = b'{"EndpointName": "e1"}'


@pytest.fixture
def stubs() -> Stubs:
    stubs = Stubs()
    stubs.add("DeleteEndpoint")
    return stubs


@pytest.fixture
def client(stubs: Stubs, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.5)
    with served(stubs.app()) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as client:
            yield client


def answers(client: socket.socket) -> bytes:
    """Return everything until the server closes."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while data := client.recv(65536):
            found += data
    return found


@pytest.mark.parametrize("sent", [b"", b"POST /", POST])
def test_a_head_that_does_not_end_is_closed(client: socket.socket, sent: bytes) -> None:
    client.sendall(sent)
    began = time.monotonic()
    assert answers(client) == b""
    assert time.monotonic() - began < 5


def test_a_head_that_drips_is_closed_all_the_same(client: socket.socket) -> None:
    def drip() -> None:
        for _ in range(100):
            client.sendall(b"P")
            time.sleep(0.05)

    with pytest.raises(ConnectionError):
        drip()


def test_a_further_head_that_does_not_end_is_closed(client: socket.socket, stubs: Stubs) -> None:
    client.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
    first = b""
    while not first.endswith(b"{}"):
        first += client.recv(65536)
    assert first.startswith(b"HTTP/1.1 200")
    client.sendall(b"POST /")
    assert answers(client) == b""
    assert len(stubs.calls) == 1


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 22\r\nContent-Length: 2\r\n",
        b"Content-Length: +22\r\n",
        b"Content-Length: 22, 22, 3\r\n",
        b"Content-Length: 22\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Content-Length : 22\r\n",
        b"X: a\x00b\r\nContent-Length: 22\r\n",
        b"Na me: x\r\nContent-Length: 22\r\n",
    ],
)
def test_heads_of_two_readings_are_refused_and_end_the_connection(
    client: socket.socket, stubs: Stubs, head: bytes
) -> None:
    client.sendall(POST + head + b"\r\n" + BODY + POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
    found = answers(client)
    assert found.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501"))
    assert found.count(b"HTTP/1.1") == 1
    assert stubs.calls == []


def test_a_head_without_end_is_refused(client: socket.socket, stubs: Stubs) -> None:
    client.sendall(POST)
    with contextlib.suppress(ConnectionError):
        for number in range(200):
            client.sendall(b"X-%d: %b\r\n" % (number, b"a" * 1000))
            time.sleep(0.001)
    found = answers(client)
    assert found.startswith(b"HTTP/1.1 400") or found == b"", "closed before it could be read"
    assert stubs.calls == []

"""Both kinds of model host answer alike, byte for byte, however a request arrives."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.proxy.answers import (
    EVENTS,
    GET_ANSWER,
    JSON_ANSWER,
    JSON_BODY,
    JSON_BYTES,
    STREAM_BODY,
    STREAM_PARTS,
    save,
)
from benchmarks.proxy.stage import SOURCE

KINDS = ("C", "Python") if shutil.which("cc") else ("Python",)
STREAM = b"".join(STREAM_PARTS)


def post(body: bytes) -> bytes:
    return b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.fixture(scope="module", params=KINDS)
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    directory = tmp_path_factory.mktemp("host")
    program: list[str | Path] = [sys.executable, "-m", "benchmarks.proxy.python_host"]
    if request.param == "C":
        save(directory / "answers")
        subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-O2", "-o", directory / "host", SOURCE], check=True)
        program = [directory / "host", directory / "answers"]
    host = subprocess.Popen(program, stdout=subprocess.PIPE)
    assert host.stdout is not None
    try:
        ports = [int(host.stdout.readline()) for _ in range(3)]
        assert len(set(ports)) == 3
        yield ports[-1]
    finally:
        host.kill()
        host.wait()
        host.stdout.close()


def ask(port: int, *pieces: bytes, expected: bytes) -> None:
    """Send the pieces one by one and compare all that comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            connection.sendall(piece)
        found = b""
        while len(found) < len(expected):
            more = connection.recv(65_536)
            assert more
            found += more
        assert found == expected


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n", GET_ANSWER),
        (post(b'{"model":"m"}'), JSON_ANSWER),
        (post(b'{"stream":true}'), STREAM),
        (post(b'{"stream": true}'), STREAM),
        (post(b'{"stream":false}'), JSON_ANSWER),
        (post(b"x" * 100_000), JSON_ANSWER),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n", JSON_ANSWER),
    ],
)
def test_a_request_gets_its_answer_whole_or_in_pieces(port: int, request_bytes: bytes, expected: bytes) -> None:
    ask(port, request_bytes, expected=expected)
    middle = len(request_bytes) // 2
    ask(port, request_bytes[:middle], request_bytes[middle:], expected=expected)


def test_requests_on_one_connection_are_answered_in_turn(port: int) -> None:
    ask(port, post(b"{}") * 3 + post(b'{"stream":true}') + post(b"{}"), expected=JSON_ANSWER * 3 + STREAM + JSON_ANSWER)


def test_the_answers_are_as_described() -> None:
    assert len(JSON_BODY) == JSON_BYTES
    assert STREAM_BODY.count(b"data: ") == EVENTS + 1
    assert STREAM_BODY.endswith(b"data: [DONE]\n\n")
    assert len(STREAM_PARTS) == EVENTS + 1

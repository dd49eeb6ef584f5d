"""The generators send what they are told, and what is wrong is not believed."""

import shutil
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.proxy.answers import JSON_ANSWER, JSON_BODY
from benchmarks.proxy.load import JSON_2K, JSON_32K, LOADS, SIGNED, STREAM, Door, Generator, Window, believe, check
from benchmarks.proxy.product import Caller

WRK = (shutil.which("wrk"),) if shutil.which("wrk") else ()
GENERATORS = (*WRK, None)


class Server:
    """Answers every request alike and keeps the heads and bodies."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as file:
                while self._one(connection, file):
                    pass

    def _one(self, connection: socket.socket, file: object) -> bool:
        try:
            lines = []
            while (line := file.readline()) not in (b"\r\n", b""):  # type: ignore[attr-defined]
                lines.append(line)
            length = next((int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length")), 0)
            body = file.read(length)  # type: ignore[attr-defined]
            if not lines or len(body) < length:
                return False
            self.heads.append(b"".join(lines))
            self.bodies.append(body)
            connection.sendall(self.answer)
        except OSError:
            return False
        return True


@contextmanager
def serving(answer: bytes = JSON_ANSWER) -> Iterator[Server]:
    server = Server(answer)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        # A listener that is only closed does not wake its thread.
        server.listener.shutdown(socket.SHUT_RDWR)
        server.listener.close()
        thread.join(10)


def generator(wrk: str | None, tmp_path: Path) -> Generator:
    return Generator(wrk, 0, tmp_path / "signed")


@pytest.mark.parametrize("wrk", GENERATORS, ids=lambda wrk: "wrk" if wrk else "own")
@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_a_generator_sends_the_load_and_counts_it(wrk: str | None, load: object, tmp_path: Path) -> None:
    assert isinstance(load, type(JSON_2K))
    with serving() as server:
        door = Door(server.port, "m-1", headers={"Authorization": "Bearer x"})
        window = generator(wrk, tmp_path).run(door, load, 1, 0.3, 70)
    assert window.requests >= 1
    assert window.requests <= len(server.bodies) <= window.requests + 1
    assert window.failed == 0
    believe("x", JSON_2K, 1, window)
    # wrk tries its script once before it starts, so its first turn may be the second.
    first = next(turn for turn in (71, 72) if load.body("m-1", turn) == server.bodies[0])
    assert server.bodies == [load.body("m-1", turn) for turn in range(first, first + len(server.bodies))]
    assert all(b"Authorization: Bearer x\r\n" in head and head.startswith(b"POST /v1/chat/") for head in server.heads)
    assert sum(count for _, count in window.latencies) == window.requests
    assert 0 < window.percentile_us(0.5) <= window.percentile_us(0.99)


@pytest.mark.parametrize("wrk", GENERATORS, ids=lambda wrk: "wrk" if wrk else "own")
def test_signed_requests_are_sent_as_they_were_signed_over_and_over(wrk: str | None, tmp_path: Path) -> None:
    caller = Caller()
    with serving() as server:
        door = Door(server.port, "m", "/endpoints/m/invocations", sign=caller.sign)
        generator(wrk, tmp_path).run(door, JSON_2K, 1, 0.5, 5)
    expected = [JSON_2K.body("m", turn) for turn in range(5, 5 + SIGNED)]
    assert set(server.bodies) <= set(expected)
    assert max(Counter(server.bodies).values()) <= len(server.bodies) // SIGNED + 2
    assert all(b"Authorization: AWS4-HMAC-SHA256 Credential=" + caller.access_key.id.encode() in head
               for head in server.heads)  # fmt: skip


@pytest.mark.parametrize("wrk", GENERATORS, ids=lambda wrk: "wrk" if wrk else "own")
def test_answers_that_are_errors_are_counted_as_failed(wrk: str | None, tmp_path: Path) -> None:
    with serving(b"HTTP/1.1 503 Unavailable\r\ncontent-length: 2\r\n\r\nno") as server:
        window = generator(wrk, tmp_path).run(Door(server.port), JSON_2K, 1, 0.3, 0)
    assert window.failed >= window.requests
    with pytest.raises(BenchmarkError, match="requests failed"):
        believe("x", JSON_2K, 1, window)


def test_a_correction_that_does_not_come_out_is_not_believed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("benchmarks.proxy.load.uncorrected", lambda histogram, interval: {5: 1_000_000})
    wrk = tmp_path / "wrk"
    wrk.write_text('#!/bin/sh\necho \'RESULT {"requests":2,"bytes":9,"seconds":1,"failed":0,"latencies":[[5,2]]}\'\n')
    wrk.chmod(0o700)
    with pytest.raises(BenchmarkError, match="wrk's latencies are 1000000 for 2 requests"):
        generator(str(wrk), tmp_path).run(Door(1), JSON_2K, 1, 0.1, 0)


def test_loads_have_the_sizes_that_they_are_named_for() -> None:
    assert 1_900 < len(JSON_2K.body("bench", 10_000_000)) < 2_048
    assert 32_000 < len(JSON_32K.body("bench", 10_000_000)) < 32_768
    assert b'"stream":true' in STREAM.body("bench", 1)
    assert b"stream" not in JSON_2K.body("bench", 1)


@pytest.mark.parametrize(
    ("window", "said"),
    [
        (Window(0, 0, 1.0, 0, []), "no request was answered"),
        (Window(10, 10 * 400, 1.0, 2, []), "2 of 10 requests failed"),
        (Window(10, 10 * 299, 1.0, 0, []), "299 bytes an answer; the host sends 300"),
        (Window(10, 10 * 3_000, 1.0, 0, []), "3000 bytes an answer"),
    ],
)
def test_a_window_with_wrong_answers_is_not_believed(window: Window, said: str) -> None:
    with pytest.raises(BenchmarkError, match=f"proxy, JSON 2 KB: {said}"):
        believe("proxy", JSON_2K, 1, window)


def test_a_window_is_believed_with_headers_and_an_answer_under_way() -> None:
    believe("proxy", JSON_2K, 1, Window(10, 10 * 500 + 250, 1.0, 0, []))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 503 Unavailable\r\ncontent-length: 2\r\n\r\nno", "answered 503: no"),
        (JSON_ANSWER.replace(JSON_BODY[100:110], b"otherbytes"), "300 bytes that are not the host's 300"),
        (b"rubbish\r\n\r\n", "no answer"),
    ],
)
def test_a_check_compares_every_byte(answer: bytes, said: str) -> None:
    with serving(answer) as server, pytest.raises(BenchmarkError, match=f"proxy, JSON 2 KB: {said}"):
        check("proxy", Door(server.port), JSON_2K, 0)


def test_a_check_passes_what_is_right() -> None:
    with serving() as server:
        check("proxy", Door(server.port), JSON_2K, 3)
        assert server.bodies == [JSON_2K.body("bench", 3)]

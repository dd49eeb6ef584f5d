"""A short piece of the fuzzing of the front with each run of the tests: with that of the readers a minute of one core.

The long one is ``python -m tests.fuzz``.
"""

import random
from collections.abc import Iterator

import pytest

from dataplane.wire.server import ClientConnection
from tests.fuzz import __main__ as command
from tests.fuzz import wire, worker
from tests.fuzz.reading import read
from tests.fuzz.report import CutOff, Finding, answers

OFFER = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
INNER = b"POST /endpoints/e/invocations HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nevil"
FOUND = [
    [OFFER * 1_500],
    [b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"],
    [b"POST /endpoints/e/invocations HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"],
    [b"POST /endpoints/e/invocations HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 0\r\n\r\n"],
    [b"GET /health/live HTTP/1.0\r\nConnection: keep-alive\r\nConnection: close, Upgrade\r\n\r\n" + INNER],
    [b"GET /health/live HTTP/2.0\r\nHost: a\r\n\r\n", INNER],
    [b"GET /health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + INNER],
    [b"HEAD /health/live HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n", INNER],
]
"""What fuzzing found, or a reader of the code; each was answered wrong once."""

PIECES = 4
"""What takes long is cut into so many tests, which run side by side."""
piecewise = pytest.mark.parametrize("piece", range(PIECES))


def run_many(run: command.Run) -> None:
    for number in range(5_000):
        run(random.Random(f"1:{number}"))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[worker.Worker]:
    with worker.running(tmp_path_factory.mktemp("fuzz")) as running:
        yield running


@pytest.mark.parametrize("pieces", FOUND, ids=range(len(FOUND)))
def test_what_was_found_stays_mended(running: worker.Worker, pieces: list[bytes]) -> None:
    for at_once in (True, False):
        wire.check(pieces, at_once)
    running.check(pieces)


@piecewise
def test_a_connection_fed_by_hand(piece: int) -> None:
    for number in range(piece, 110_000, PIECES):
        assert not command.case("wire", wire.run, 1, number)


@piecewise
def test_a_worker_over_sockets(running: worker.Worker, piece: int) -> None:
    for number in range(piece, 6_000, PIECES):
        assert not command.case("worker", running.run, 1, number)


@pytest.mark.parametrize(
    ("data", "count", "end"),
    [
        (INNER, 1, "idle"),
        (INNER + b"\r\n" + INNER[:-1], 1, "half"),
        (INNER.replace(b"Host", b"Content-Length: 5\r\nHost"), 0, "malformed"),
        (INNER.replace(b"Host", b"Transfer-Encoding: chunked\r\nHost"), 0, "malformed"),
        (INNER.replace(b": h\r\n", b": h\n"), 0, "malformed"),
        (INNER.replace(b"Host", b"X: a\r\n b\r\nHost"), 0, "malformed"),
        (INNER.replace(b"Host", b"Connection: x, Close\r\nHost") + INNER, 1, "closed"),
        (INNER.replace(b"1.1", b"1.0") + INNER, 1, "closed"),
    ],
)
def test_the_independent_reading(data: bytes, count: int, end: str) -> None:
    stream = read(data, wire.LIMITS)
    assert (len(stream.requests), stream.end) == (count, end)
    assert [one.body for one in stream.requests] == [b"evil"] * count


def test_a_front_that_reads_too_much_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzing itself can fail: with the check of heads taken out, it finds what that check is for."""
    monkeypatch.setattr("dataplane.wire.request_reader.head_fault", lambda version, request: None)
    with pytest.raises(Finding, match="a request was read where none is"):
        run_many(wire.run)


def test_a_front_that_loses_bytes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take = ClientConnection.data_received
    monkeypatch.setattr(ClientConnection, "data_received", lambda self, data: take(self, data.replace(b"evil", b"evi")))
    with pytest.raises(Finding, match="neither answered nor refused"):
        wire.check([INNER])


def test_answers_are_read_strictly() -> None:
    whole = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    assert answers(b"HTTP/1.1 100 Continue\r\n\r\n" + whole * 2, [b"GET", b"GET"]) == [(200, b"ok")] * 2
    with pytest.raises(CutOff):
        answers(whole[:-1], [b"GET"])
    with pytest.raises(Finding, match="no answer"):
        answers(b"ok\r\n\r\n", [b"GET"])


def test_the_command_runs_and_names_what_it_ran(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--minutes", "0.002", "--seed", "7", "--part", "wire", "--part", "keys"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("seed 7\nwire: ")
    assert "keys: " in said
    assert command.main(["--seed", "7", "--part", "wire", "--only", "3"]) == 0


def test_the_command_says_how_to_run_a_finding_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(dice: random.Random) -> None:
        raise Finding("the input")

    monkeypatch.setattr(wire, "run", fail)
    assert command.main(["--minutes", "0.01", "--seed", "7", "--part", "wire"]) == 1
    said = capsys.readouterr().out
    assert "--part wire --seed 7 --only 0\nthe input\n" in said
    assert said.endswith("wire: 10 cases, 10 findings\n")

"""Instructions are counted by whatever this machine has; the model hosts stand in for a proxy."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.proxy import instructions
from benchmarks.proxy.answers import save
from benchmarks.proxy.contenders import Contender
from benchmarks.proxy.load import JSON_2K, STREAM, Door, Load
from benchmarks.proxy.processes import Server, free_port
from benchmarks.proxy.stage import Stage, stage

CALLGRIND = ("callgrind",) if shutil.which("valgrind") and shutil.which("cc") else ()
TASK_CLOCK = ("task-clock",) if instructions.perf_counts("task-clock") else ()


@pytest.fixture(scope="module")
def around() -> Iterator[Stage]:
    with stage() as found:
        yield found


def another_host(stage: Stage) -> tuple[Server, Door]:
    log = stage.directory / f"another-{free_port()}.log"
    server = stage.launch("another host", [stage.directory / "host", stage.directory / "answers"], log)
    server.wait(lambda: len(server.said().split()) == 3)
    return server, Door(int(server.said().split()[0]))


@pytest.mark.parametrize("how", CALLGRIND)
def test_a_request_takes_the_same_instructions_each_time(
    how: str, around: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How many requests one wake-up of the host finds depends on what else the machine does; it shows less in many.
    monkeypatch.setattr(instructions, "REQUESTS", 100)
    contender = Contender("host", "", another_host)
    first, second = (instructions.count(how, around, contender, [JSON_2K, STREAM]) for _ in range(2))
    for load in (JSON_2K, STREAM):
        assert 200 < first[load] < 50_000
        assert second[load] == pytest.approx(first[load], rel=0.2)


@pytest.mark.parametrize("event", TASK_CLOCK)
def test_perf_counts_what_a_process_does_between_begin_and_end(event: str, around: Stage) -> None:
    with instructions.perf(around.hosts, event) as figure:
        instructions.serve(Door(around.host_ports[0]), JSON_2K, 4, 50)
    assert figure[0] > 0


@pytest.mark.parametrize(
    ("said", "figure"),
    [
        ("123456,,instructions:u,99,100.00,,\n", 123456.0),
        ("1.75,msec,task-clock,1754321,100.00,,\n", 1.75),
        ("<not supported>,,instructions:u,0,100.00,,\n", None),
        ("", None),
    ],
)
def test_what_perf_says_is_read(said: str, figure: float | None) -> None:
    assert instructions._perf_figure(said) == figure


def test_a_machine_without_either_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert instructions.method() is None
    assert "apt-get install valgrind" in instructions.HINT


def test_only_right_answers_count(around: Stage) -> None:
    with pytest.raises(BenchmarkError, match="JSON 2 KB: answered 200, and not what the host sent"):
        instructions.serve(Door(around.host_ports[0], model='","stream":true,"x":"'), JSON_2K, 2, 1)


def test_each_connection_sends_its_requests(around: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []
    body = Load.body
    monkeypatch.setattr(Load, "body", lambda load, model, turn: turns.append(turn) or body(load, model, turn))
    instructions.serve(Door(around.host_ports[0]), JSON_2K, 3, 4)
    assert sorted(turns) == list(range(12))


def test_answers_are_saved_once(tmp_path: Path) -> None:
    save(tmp_path / "answers")
    with pytest.raises(FileExistsError):
        save(tmp_path / "answers")

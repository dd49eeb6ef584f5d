"""Parts are watched, ended in order, and reported in their own words."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from warmroute.children import BEHIND, FRONT, SERVERS, Children, Died, Part, Signals, Stopped, handled_signals
from warmroute.faults import Fault


class Script:
    """A part that plays what a test wants."""

    def __init__(self, name: str, log: Path, calls: list[str], *, stage: int = BEHIND, deaf: bool = False) -> None:
        self.code: int | None = None
        self.name, self.calls, self.deaf = name, calls, deaf
        self.part = Part(name, log, lambda: self.code, self.ask, self.force, patience_seconds=0.2, stage=stage)

    def ask(self) -> None:
        self.calls.append(f"ask {self.name}")
        if not self.deaf:
            self.code = 0

    def force(self) -> None:
        self.calls.append(f"force {self.name}")
        self.code = -9


@pytest.fixture
def signals() -> Iterator[Signals]:
    with handled_signals() as signals:
        yield signals


@pytest.fixture
def children(tmp_path: Path, signals: Signals) -> Children:
    return Children(tmp_path, signals)


def _script(children: Children, name: str, calls: list[str], **options: object) -> Script:
    script = Script(name, children.log(name), calls, **options)  # type: ignore[arg-type]
    children.add(script.part)
    return script


def test_the_front_ends_first_and_a_stage_ends_together(children: Children) -> None:
    calls: list[str] = []
    for name, stage in (("store", SERVERS), ("host", BEHIND), ("api", BEHIND), ("workers", FRONT)):
        _script(children, name, calls, stage=stage)
    children.stop(lambda _text: None)
    assert calls == [
        *("ask workers", "force workers"),
        *("ask host", "ask api", "force host", "force api"),
        *("ask store", "force store"),
    ]


def test_a_part_that_does_not_end_is_forced_after_its_time(children: Children) -> None:
    calls: list[str] = []
    _script(children, "workers", calls, deaf=True)
    began = time.monotonic()
    children.stop(lambda _text: None)
    assert 0.2 <= time.monotonic() - began < 2
    assert calls == ["ask workers", "force workers"]


def test_patience_has_a_limit_of_its_own(children: Children, tmp_path: Path) -> None:
    part = Part("workers", tmp_path / "log", lambda: None, lambda: None, lambda: None, patience_seconds=60, stage=FRONT)
    children.add(part)
    began = time.monotonic()
    children.stop(lambda _text: None, patience_seconds=0.1)
    assert time.monotonic() - began < 5


def test_a_second_ctrl_c_ends_the_waiting(tmp_path: Path, signals: Signals) -> None:
    children = Children(tmp_path, signals)
    said: list[str] = []
    part = Part("workers", tmp_path / "log", lambda: None, lambda: None, lambda: None, patience_seconds=60, stage=FRONT)
    children.add(part)
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(Stopped):
        children.check()
    timer = threading.Timer(1.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    children.stop(said.append)
    assert time.monotonic() - began < 10
    assert said == ["workers: up to 60 s to finish what is under way; Ctrl-C again ends it now"]
    timer.join()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_watch_at_once(children: Children, number: signal.Signals) -> None:
    timer = threading.Timer(0.05, os.kill, (os.getpid(), number))
    timer.start()
    with pytest.raises(Stopped):
        children.watch()
    timer.join()


def test_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGINT)
    with handled_signals():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before


def test_a_death_is_reported_with_the_last_lines_and_the_logs_place(children: Children) -> None:
    script = _script(children, "data plane", [])
    script.part.log.write_text("".join(f"line {number}\n" for number in range(20)))
    script.code = 1
    with pytest.raises(Died) as death:
        children.watch()
    text = str(death.value)
    assert text.startswith(
        f"the data plane ended with exit code 1; its log {children.logs / 'data-plane.log'} ends with:"
    )
    assert "line 19" in text
    assert "line 5" not in text


def test_a_plain_sentence_for_the_user_is_passed_on_alone(children: Children) -> None:
    script = _script(children, "control plane", [])
    script.part.log.write_text("something\nwarmroute: WARMROUTE_DATABASE_URL cannot be reached\n")
    script.code = 2
    with pytest.raises(Died, match=r"^WARMROUTE_DATABASE_URL cannot be reached$"):
        children.check()


def test_a_killed_part_is_reported_with_the_signal(children: Children) -> None:
    script = _script(children, "host-1", [])
    script.code = -9
    with pytest.raises(Died, match="the host-1 was ended by signal 9"):
        children.check()


def test_waiting_has_a_limit_and_notices_deaths(children: Children) -> None:
    with pytest.raises(Fault, match=r"^it was not ready within 0.1 s; the logs are in "):
        children.wait_until(lambda: False, 0.1, "it was not ready")
    script = _script(children, "host-1", [])
    script.code = 1
    with pytest.raises(Died):
        children.wait_until(lambda: False, 10, "it was not ready")


def test_the_log_of_the_run_before_is_kept(children: Children) -> None:
    children.log("data plane").write_text("first")
    children.log("data plane").write_text("second")
    assert (children.logs / "data-plane.log.1").read_text() == "first"
    assert (children.logs / "data-plane.log").read_text() == "second"

"""What is said about processes, from both sources."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.waiting import wait_until
from warmroute.embedded import processes

SOURCES = [True, False] if os.path.exists("/proc/self/stat") else [False]


@pytest.fixture(params=SOURCES, ids=lambda has_proc: "proc" if has_proc else "ps")
def _source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_has_proc", lambda: request.param)


@pytest.fixture
def family() -> Iterator[tuple[int, int]]:
    """A shell and the sleep that it started."""
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        sleep = int(shell.stdout.readline())
        yield shell.pid, sleep
        os.kill(sleep, 9)


@pytest.mark.usefixtures("_source")
def test_family_and_command(family: tuple[int, int]) -> None:
    shell, sleep = family
    assert processes.children(shell) == [sleep]
    assert sleep in processes.descendants(os.getpid())
    assert wait_until(lambda: processes.command_line(sleep) == "sleep 1000")
    assert processes.alive(sleep)


@pytest.mark.usefixtures("_source")
def test_the_dead_are_not_alive() -> None:
    process = subprocess.Popen(["true"])
    wait_until(lambda: not processes.alive(process.pid), what="end of a process nobody waited for")
    assert processes.command_line(process.pid) == ""
    process.wait()
    assert not processes.alive(process.pid)
    assert processes.children(process.pid) == []

import os
import sys
import time
from pathlib import Path

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.proxy.processes import (
    Cores,
    Server,
    accepts,
    busy_seconds,
    cpu_seconds,
    free_port,
    memory_bytes,
    on_core,
    own_seconds,
)
from tests.waiting import wait_until

BUSY = """
import time
end = time.process_time() + 0.3
while time.process_time() < end: pass
print("done", flush=True)
time.sleep(60)
"""
PLACE = """
import os, time
print(os.sched_getaffinity(0), os.environ.get("WARMROUTE_WORKERS"), os.environ["EXTRA"], flush=True)
time.sleep(60)
"""
COUNT = """
import time
for number in range(10**6):
    print(number, flush=True)
    time.sleep(0.01)
"""


def server(script: str, log: Path, **more: str) -> Server:
    return Server("thing", [sys.executable, "-c", script], Cores.choose().proxy, log, more)


def test_cpu_time_is_what_the_kernel_says_in_proc(tmp_path: Path) -> None:
    process = server(BUSY, tmp_path / "log")
    try:
        process.wait(lambda: "done" in process.said())
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        assert 0.3 <= process.cpu_seconds() == pytest.approx(ticks, abs=0.03)
        assert 1e6 < process.memory_bytes() < 1e9
    finally:
        process.stop()
    assert cpu_seconds(process.pid) == 0.0
    assert memory_bytes(process.pid) == 0


def test_what_a_process_starts_counts_too(tmp_path: Path) -> None:
    script = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BUSY!r}])"
    process = server(script, tmp_path / "log")
    try:
        wait_until(lambda: "done" in process.said())
        assert len(process.family()) == 2
        assert process.cpu_seconds() >= 0.3
    finally:
        process.stop()


def test_a_process_runs_on_its_core_without_the_settings_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARMROUTE_WORKERS", "7")
    before = os.sched_getaffinity(0)
    process = server(PLACE, tmp_path / "log", EXTRA="yes")
    try:
        wait_until(lambda: "yes" in process.said())
        assert process.said().split()[-3:] == [f"{{{Cores.choose().proxy}}}", "None", "yes"]
    finally:
        process.stop()
    assert os.sched_getaffinity(0) == before


def test_affinity_comes_back_after_a_failure() -> None:
    before = os.sched_getaffinity(0)

    def failing() -> None:
        with on_core(min(before)):
            assert os.sched_getaffinity(0) == {min(before)}
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert os.sched_getaffinity(0) == before


def test_a_process_that_ends_is_told_of_with_its_last_words(tmp_path: Path) -> None:
    process = server("import sys; sys.exit('the port is taken')", tmp_path / "log")
    with pytest.raises(BenchmarkError, match="thing ended: the port is taken"):
        process.wait(lambda: False)


def test_one_that_does_not_get_ready_is_told_of(tmp_path: Path) -> None:
    process = server("import time; time.sleep(60)", tmp_path / "log")
    try:
        with pytest.raises(BenchmarkError, match="thing was not ready within 0 s"):
            process.wait(lambda: False, 0.1)
    finally:
        process.stop()


def test_output_is_forgotten_while_the_process_goes_on_writing(tmp_path: Path) -> None:
    process = server(COUNT, tmp_path / "log")
    try:
        wait_until(lambda: len(process.said()) > 10)
        process.forget_output()
        first = int(wait_until(lambda: process.said().splitlines())[0])
        assert first > 0
    finally:
        process.stop()


def test_a_free_port_accepts_nobody() -> None:
    started = time.monotonic()
    assert not accepts(free_port())
    assert time.monotonic() - started < 5


def test_everybody_is_busier_than_we_are() -> None:
    everybody, ours = busy_seconds(), own_seconds()
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    # Both come in steps of 10 ms.
    assert own_seconds() - ours >= 0.15
    assert busy_seconds() - everybody >= 0.1

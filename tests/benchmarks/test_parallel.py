import math
import os
import signal
import subprocess
import sys
from pathlib import Path

from benchmarks.fleet.parallel import cpu_seconds, spread


def test_jobs_come_back_in_order_however_many_processes_do_them() -> None:
    jobs = list(range(12))
    wanted = [math.factorial(job) for job in jobs]
    assert list(spread(math.factorial, jobs, processes=1)) == wanted
    assert list(spread(math.factorial, jobs, processes=2)) == wanted
    assert list(spread(math.factorial, [])) == []


KILLED = """
import os, time
from benchmarks.fleet.parallel import spread

def work(job):
    print(os.getpid(), flush=True)
    time.sleep(60)

if __name__ == "__main__":
    list(spread(work, [1, 2], processes=2))
"""


def test_no_process_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "killed.py"
    path.write_text(KILLED)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, env=environment, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() != parent.stdout.readline()
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        # Both hold the pipe's other end: it is at its end when they are.
        assert parent.stdout.read() == ""


def process_number(job: int) -> int:
    return os.getpid()


def test_one_process_is_this_one_and_its_time_is_counted() -> None:
    before = cpu_seconds()
    assert set(spread(process_number, [1, 2], processes=1)) == {os.getpid()}
    sum(range(10**6))
    assert cpu_seconds() > before
    assert os.getpid() not in set(spread(process_number, [1, 2], processes=2))

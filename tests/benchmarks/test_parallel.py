import math
import os

from benchmarks.fleet.parallel import cpu_seconds, spread


def test_jobs_come_back_in_order_however_many_processes_do_them() -> None:
    jobs = list(range(12))
    wanted = [math.factorial(job) for job in jobs]
    assert list(spread(math.factorial, jobs, processes=1)) == wanted
    assert list(spread(math.factorial, jobs, processes=2)) == wanted
    assert list(spread(math.factorial, [])) == []


def process_number(job: int) -> int:
    return os.getpid()


def test_one_process_is_this_one_and_its_time_is_counted() -> None:
    before = cpu_seconds()
    assert set(spread(process_number, [1, 2], processes=1)) == {os.getpid()}
    sum(range(10**6))
    assert cpu_seconds() > before
    assert os.getpid() not in set(spread(process_number, [1, 2], processes=2))

"""Runs independent jobs on all cores."""

import multiprocessing
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

Job = TypeVar("Job")
Done = TypeVar("Done")


def spread(work: Callable[[Job], Done], jobs: Sequence[Job], *, processes: int | None = None) -> Iterator[Done]:
    """Yield ``work(job)`` of each job, in order; with one process, in this one. All must be picklable."""
    count = min(processes or os.cpu_count() or 1, len(jobs))
    if count <= 1:
        yield from map(work, jobs)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context, initializer=_end_with_parent) as pool:
        yield from pool.map(work, jobs)


def _end_with_parent() -> None:
    # A parent that is killed tells nobody; what it has handed out would be worked off for minutes.
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "runs in processes that were started for it"
    parent.join()
    os._exit(1)


def cpu_seconds() -> float:
    """Return user and system time so far, of this process and of those that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime

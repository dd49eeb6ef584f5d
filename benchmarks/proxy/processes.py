"""Processes of the benchmark: started on one core, their costs from the kernel's accounts, ended by their id. Linux."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import BenchmarkError
from warmroute.embedded.child import Child, last_words
from warmroute.embedded.processes import descendants

READY_SECONDS = 30.0
_STOP_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Cores:
    """The core of the proxy under test, and the one of hosts, load and Redis. The same where there is only one."""

    proxy: int
    rest: int

    @classmethod
    def choose(cls) -> "Cores":
        """Return the first and the last core that this process may use."""
        allowed = sorted(os.sched_getaffinity(0))
        return cls(allowed[0], allowed[-1])

    @property
    def are_apart(self) -> bool:
        return self.proxy != self.rest


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Processes started within run on this core only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Server:
    """One process and whatever it starts."""

    def __init__(
        self,
        name: str,
        program: Sequence[str | Path],
        core: int,
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._log = log
        # Settings of the product that happen to be set here are no part of the measurement.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("WARMROUTE_")}
        with on_core(core):
            self._child = Child(
                program, log=log, death_signal=signal.SIGTERM, environment={**inherited, **(environment or {})}
            )
        self.pid = self._child.pid

    def wait(self, is_ready: Callable[[], bool], seconds: float = READY_SECONDS) -> None:
        """Wait until it is ready. Raises BenchmarkError with its last words."""
        deadline = time.monotonic() + seconds
        while not is_ready():
            if self._child.poll() is not None:
                raise BenchmarkError(f"{self.name} ended: {last_words(self._log)}")
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{self.name} was not ready within {seconds:.0f} s: {last_words(self._log)}")
            time.sleep(0.02)

    def said(self) -> str:
        """Return all of its output."""
        return self._log.read_text(errors="replace")

    def forget_output(self) -> None:
        """Empty the log: an access log at full rate would fill the disk. The process appends, so it goes on at 0."""
        os.truncate(self._log, 0)

    def cpu_seconds(self) -> float:
        """Return user and system time so far of the process and its descendants."""
        return sum(map(cpu_seconds, self.family()))

    def memory_bytes(self) -> int:
        """Return the resident memory of all; pages that they share count in each."""
        return sum(map(memory_bytes, self.family()))

    def stop(self) -> None:
        self._child.stop((signal.SIGTERM, _STOP_SECONDS))

    def family(self) -> list[int]:
        """Return its process id and those of all below it."""
        return [self.pid, *descendants(self.pid)]


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process, all its threads, in ns steps; 0 once it has ended.

    The clock of another process is what clock_getcpuclockid(3) returns: the complement of its id, and 2 for run time.
    Its sum is that of utime and stime in /proc, which come in steps of 10 ms.
    """
    with suppress(OSError):
        return time.clock_gettime((~pid << 3) | 2)
    return 0.0


def busy_seconds() -> float:
    """Return the CPU time of everybody on this machine so far and what the hypervisor took, interrupts not."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    user, nice, system, _idle, _wait, _irq, _softirq, steal = map(int, fields[1:9])
    return (user + nice + system + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Return the CPU time so far of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def memory_bytes(pid: int) -> int:
    """Return the resident set of a process; 0 once it has ended."""
    with suppress(OSError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


def free_port() -> int:
    """Return a loopback port that nobody has, for a program that cannot choose one itself."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def accepts(port: int) -> bool:
    """Tell whether somebody listens there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False

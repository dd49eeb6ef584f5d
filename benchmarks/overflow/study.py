"""The part ``overflow``: run the grid, make its tables."""

from collections.abc import Callable
from dataclasses import asdict

from benchmarks.fleet.parallel import cpu_seconds
from benchmarks.overflow import grid, tables
from benchmarks.overflow.rules import IN_FORCE, OVERFLOW
from benchmarks.result import Result, Value, machine_facts


def run(*, quick: bool, say: Callable[[str], None]) -> Result:
    """Measure all of it."""
    started = cpu_seconds()
    found = grid.start(grid.QUICK_GRID if quick else grid.WHOLE_GRID)
    # A short run is over before other processes have started.
    for done in grid.measure(found, processes=1 if quick else None):
        say(f"{done}: done, {cpu_seconds() - started:.0f} s of CPU so far")
    families = found.families
    return Result(
        part="overflow",
        what="Rules for overflow and for a saturated fleet, in virtual time: the product's routing code in front of "
        "simulated hosts, prompts of 8,000 shared and 250 own tokens, 200 tokens out, cold caches at the start.",
        command="python -m benchmarks overflow" + (" --quick" if quick else ""),
        quick=quick,
        machine=machine_facts(),
        seeds=sorted({*found.grid.seeds, *found.grid.recovery_seeds}),
        settings=_settings(found),
        cpu_seconds=round(cpu_seconds() - started, 1),
        tables=[
            tables.verdict("saturated-verdict", "all at the threshold", families["saturated"]),
            tables.verdict("overflow-verdict", "some under the threshold", families["overflow"]),
            tables.recovery(found),
            tables.grid("saturated", "Rules for when all are at the threshold", families["saturated"]),
            tables.grid("overflow", "Rules for when the home is at it and others are not", families["overflow"]),
            tables.grid("strategies", "The strategies, PREFIX_AWARE as it is in force", families["strategies"]),
            tables.everything(found),
        ],
        findings=[
            tables.finding("When all are at the threshold", families["saturated"], IN_FORCE[1]),
            tables.finding("When the home is and others are not",
                           {name: families["overflow"][name] for name in OVERFLOW}, IN_FORCE[0]),
        ],
        figures=[
            {"compared for": family, "rule": rule, "skew": cell.load.skew, "rate": cell.load.rate,
             "threshold": cell.threshold, "level": cell.level,
             **{name: [float(f"{value:.5g}") for value in values] for name, values in spread.items()}}
            for family, rule, cell, spread in found.records()
        ],
    )  # fmt: skip


def _settings(found: grid.Found) -> dict[str, Value]:
    settings: dict[str, Value] = {name.replace("_", " "): value for name, value in asdict(found.grid.size).items()}
    settings |= {"seeds of the grid": [float(seed) for seed in found.grid.seeds]}
    settings |= {"engine": grid.PROFILE.name, "in force": " + ".join(IN_FORCE)}
    return settings | {f"natural concurrency at {rate:g}/s": round(of, 1) for rate, of in found.natural.items()}

"""The loads, thresholds and rules that are run, and what the runs say, summed up over the seeds."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import product

from benchmarks.fleet.strategies import STRATEGIES, Rule
from benchmarks.overflow.fleet import Figures, Load, Size, Workload, draw, natural_concurrency, simulate
from benchmarks.overflow.rules import IN_FORCE, OVERFLOW, SATURATED, WHOLE, rule_named
from simulator.calibration import LLAMA_3_1_70B_8XH100

PROFILE = LLAMA_3_1_70B_8XH100
THRESHOLDS = {"below": 0.7, "near": 1.25, "above": 2.5}
"""The threshold over the fleet's natural concurrency."""
RECOVERY = Load(0.0, 30.0)
"""All prefixes alike, a light load, and a threshold above: only its rule keeps such a fleet from being warm."""


@dataclass(frozen=True, slots=True)
class Grid:
    """What is run. Each skew with each rate."""

    skews: tuple[float, ...]
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    size: Size
    recovery_seeds: tuple[int, ...]
    recovery_size: Size


WHOLE_GRID = Grid(
    skews=(0.0, 1.0, 1.4),
    rates=(30.0, 45.0),
    seeds=(1, 2, 3),
    size=Size(),
    recovery_seeds=(1, 2, 3, 4, 5),
    recovery_size=Size(requests=16_000, warm_up=8_000),
)


QUICK_GRID = Grid(
    skews=(1.0,),
    rates=(30.0,),
    seeds=(1,),
    size=Size(prefixes=40, requests=400, warm_up=100),
    recovery_seeds=(1,),
    recovery_size=Size(prefixes=40, requests=600, warm_up=300),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One load at one threshold. ``level`` is a word of THRESHOLDS."""

    load: Load
    level: str
    threshold: int


Spread = dict[str, tuple[float, float, float]]
"""Figure -> (mean, least, most) over the seeds."""
ByCell = dict[Cell, Spread]
Family = dict[str, ByCell]
"""Rule -> cell -> spread."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured."""

    grid: Grid
    natural: dict[float, float]
    """Rate -> natural concurrency of a host."""
    families: dict[str, Family]

    def records(self) -> Iterator[tuple[str, str, Cell, Spread]]:
        for family, by_rule in self.families.items():
            for rule, by_cell in by_rule.items():
                for cell, spread in by_cell.items():
                    yield family, rule, cell, spread


def start(grid: Grid) -> Found:
    """Return what a grid's thresholds are made of, and nothing found yet."""
    rates = sorted({*grid.rates, RECOVERY.rate})
    return Found(grid, {rate: natural_concurrency(rate, PROFILE, grid.size.hosts) for rate in rates}, {})


def measure(found: Found) -> Iterator[str]:
    """Run the grid into ``found``; yield after each load what was done."""
    grid = found.grid
    for skew, rate in product(grid.skews, grid.rates):
        load = Load(skew, rate)
        _run(found, load, _plan(), grid.size, [draw(load, grid.size, seed) for seed in grid.seeds])
        yield f"skew {skew:g}, {rate:g} requests/s"
    workloads = [draw(RECOVERY, grid.recovery_size, seed) for seed in grid.recovery_seeds]
    names = [name for name in (*SATURATED, *OVERFLOW, *WHOLE) if name != IN_FORCE[0]]
    _run(
        found,
        RECOVERY,
        (("recovery", name, rule_named(name), "above") for name in names),
        grid.recovery_size,
        workloads,
    )
    yield "recovery"


def _plan() -> Iterator[tuple[str, str, Rule, str]]:
    """Yield (family, name, rule, level): each part is compared with the other one as it is in force."""
    for name, level in product(SATURATED, ("below", "near")):
        yield "saturated", name, rule_named(name), level
    for name, level in product((*OVERFLOW, *WHOLE), ("near", "above")):
        yield "overflow", name, rule_named(name), level
    for name, rule in STRATEGIES.items():
        yield "strategies", name, rule, "near"


def _run(
    found: Found, load: Load, plan: Iterable[tuple[str, str, Rule, str]], size: Size, workloads: Sequence[Workload]
) -> None:
    known: dict[tuple[Rule, str], Spread] = {}
    for family, name, rule, level in plan:
        threshold = max(1, round(THRESHOLDS[level] * found.natural[load.rate]))
        if (rule, level) not in known:
            known[rule, level] = _spread([simulate(rule, drawn, threshold, size, PROFILE) for drawn in workloads])
        cells = found.families.setdefault(family, {}).setdefault(name, {})
        cells[Cell(load, level, threshold)] = known[rule, level]


def _spread(runs: Sequence[Figures]) -> Spread:
    values = {item.name: [float(getattr(run, item.name)) for run in runs] for item in fields(Figures)}
    return {name: (sum(of) / len(of), min(of), max(of)) for name, of in values.items()}

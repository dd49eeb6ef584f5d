"""The loads, thresholds and rules that are run, and what the runs say, summed up over the seeds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import islice, product

from benchmarks.fleet import parallel
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


def measure(found: Found, processes: int | None = None) -> Iterator[str]:
    """Run the grid into ``found``; yield after each load what was done."""
    grid = found.grid
    for skew, rate in product(grid.skews, grid.rates):
        load = Load(skew, rate)
        _run(found, load, list(_plan()), grid.size, grid.seeds, processes)
        yield f"skew {skew:g}, {rate:g} requests/s"
    names = [name for name in (*SATURATED, *OVERFLOW, *WHOLE) if name != IN_FORCE[0]]
    plan = [("recovery", name, "above") for name in names]
    _run(found, RECOVERY, plan, grid.recovery_size, grid.recovery_seeds, processes)
    yield "recovery"


def _plan() -> Iterator[tuple[str, str, str]]:
    """Yield (family, name of the rule, level): each part is compared with the other one as it is in force."""
    for name, level in product(SATURATED, ("below", "near")):
        yield "saturated", name, level
    for name, level in product((*OVERFLOW, *WHOLE), ("near", "above")):
        yield "overflow", name, level
    for name in STRATEGIES:
        yield "strategies", name, "near"


@dataclass(frozen=True, slots=True)
class Job:
    """One rule on one draw of a load. Rules go by their names, which other processes know, too."""

    rule: str
    load: Load
    threshold: int
    size: Size
    seed: int


def run_job(job: Job) -> Figures:
    """Run one job."""
    return simulate(_rule(job.rule), _drawn(job.load, job.size, job.seed), job.threshold, job.size, PROFILE)


def _rule(name: str) -> Rule:
    return STRATEGIES[name] if name in STRATEGIES else rule_named(name)


@lru_cache(maxsize=8)
def _drawn(load: Load, size: Size, seed: int) -> Workload:
    return draw(load, size, seed)


def _run(
    found: Found,
    load: Load,
    plan: Sequence[tuple[str, str, str]],
    size: Size,
    seeds: Sequence[int],
    processes: int | None,
) -> None:
    thresholds = {level: max(1, round(share * found.natural[load.rate])) for level, share in THRESHOLDS.items()}
    # A rule that stands in several families is run once.
    names = {(_rule(name), level): name for _, name, level in reversed(plan)}
    jobs = [Job(name, load, thresholds[level], size, seed) for (_, level), name in names.items() for seed in seeds]
    done = parallel.spread(run_job, jobs, processes=processes)
    known = {key: _spread(list(islice(done, len(seeds)))) for key in names}
    for family, name, level in plan:
        cells = found.families.setdefault(family, {}).setdefault(name, {})
        cells[Cell(load, level, thresholds[level])] = known[_rule(name), level]


def _spread(runs: Sequence[Figures]) -> Spread:
    values = {item.name: [float(getattr(run, item.name)) for run in runs] for item in fields(Figures)}
    return {name: (sum(of) / len(of), min(of), max(of)) for name, of in values.items()}

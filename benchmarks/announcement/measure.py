"""Runs the cells on all cores and keeps what tables and plots need of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from benchmarks.announcement.cells import Cell, Size, announced, swept
from benchmarks.fleet.closed_loop import run
from benchmarks.fleet.figures import Figures, figures, hit_rates, host_shares, ttfts_ms
from benchmarks.fleet.fleet import percentile
from benchmarks.fleet.parallel import spread

QUANTILES = 200
"""Points of a curve of TTFT."""


@dataclass(frozen=True, slots=True)
class Job:
    """One cell with one seed."""

    cell: Cell
    seed: int
    seconds: float
    warm_up: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What one job says."""

    figures: Figures
    ttft_ms: list[float]
    """Its quantiles at 1/QUANTILES, 2/QUANTILES, ... 1."""
    hit_rates: list[float]
    """By window."""
    shares: list[float]
    """Of the hosts, ascending."""


@dataclass(frozen=True, slots=True)
class Found:
    """All of it."""

    size: Size
    by_cell: dict[Cell, list[Measured]] = field(default_factory=dict)
    """One for each seed, in their order."""

    def announced(self) -> Iterator[tuple[Cell, list[Measured]]]:
        """Yield the announcement's cells."""
        return ((cell, runs) for cell, runs in self.by_cell.items() if not cell.sweep)

    def swept(self, name: str) -> Iterator[tuple[Cell, list[Measured]]]:
        """Yield the cells of one sweep."""
        return ((cell, runs) for cell, runs in self.by_cell.items() if cell.sweep == name)


def windows(seconds: float) -> float:
    """Return the length of a window: sixty of them, so a minute of an hour."""
    return seconds / 60


def measure(job: Job) -> Measured:
    """Run one job."""
    plan = job.cell.plan(job.seed, job.seconds)
    answered = run(plan, job.seed)
    waits = ttfts_ms(answered)
    return Measured(
        figures=figures(answered, plan.hosts, job.warm_up, job.seconds),
        ttft_ms=[percentile(waits, (step + 1) / QUANTILES) for step in range(QUANTILES)],
        hit_rates=hit_rates(answered, windows(job.seconds), job.seconds),
        shares=sorted(host_shares(answered, plan.hosts)),
    )


def measure_all(size: Size, say: Callable[[str], None], processes: int | None = None) -> Found:
    """Run everything; ``say`` hears of each cell when it is done."""
    jobs = [Job(cell, seed, cell.context.seconds * size.time_share, 0.0)
            for cell in announced() for seed in size.seeds]  # fmt: skip
    jobs += [Job(cell, seed, size.sweep_seconds, size.sweep_warm_up_seconds)
             for cell in swept(size) for seed in size.seeds]  # fmt: skip
    found = Found(size)
    for job, measured in zip(jobs, spread(measure, jobs, processes=processes), strict=True):
        runs = found.by_cell.setdefault(job.cell, [])
        runs.append(measured)
        if len(runs) == len(size.seeds):
            say(f"{named(job.cell)}: done")
    return found


def named(cell: Cell) -> str:
    """Return a cell in words."""
    what = f"{cell.sweep} {cell.value:g}, " if cell.sweep else ""
    return f"{what}{cell.context.name} context, {cell.api.value} API, {cell.strategy}"

"""Tables, findings and the plot of the part ``engine``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.engine.load import Load
from benchmarks.engine.runs import Run, grouped, said_callers
from benchmarks.plot import Curve, Panel, Plot
from benchmarks.result import Table

RANDOM, LEAST, PREFIX_AWARE = "RANDOM", "LEAST_OUTSTANDING_REQUESTS", "PREFIX_AWARE"
P50_FALL, CACHED_RISE = 0.70, 2.0
"""What PREFIX_AWARE is expected to do against RANDOM in each run."""
COLUMNS: dict[str, tuple[Callable[[Run], float], str]] = {
    "TTFT P50, s": (lambda done: done.ttft(0.5), ".2f"),
    "P90, s": (lambda done: done.ttft(0.9), ".2f"),
    "mean, s": (lambda done: done.mean_ttft, ".2f"),
    "cached share": (lambda done: done.cached_share, ".3f"),
    "all done after, s": (lambda done: done.wall_seconds, ".1f"),
}


@dataclass(frozen=True, slots=True)
class Pair:
    """PREFIX_AWARE against RANDOM, with one seed."""

    slots: int
    load: Load
    seed: int
    fall: float
    """Of P50 TTFT, as a share of RANDOM's."""
    rise: float
    """PREFIX_AWARE's cached share as a multiple of RANDOM's."""


def pairs(runs: Sequence[Run]) -> list[Pair]:
    """Return the pairs in the order of the runs."""
    by = {(done.slots, done.load, done.seed, done.way): done for done in runs}
    found = []
    for slots, load, seed in dict.fromkeys((done.slots, done.load, done.seed) for done in runs):
        random, aware = by[slots, load, seed, RANDOM], by[slots, load, seed, PREFIX_AWARE]
        rise = aware.cached_share / max(random.cached_share, 1e-9)
        found.append(Pair(slots, load, seed, 1 - aware.ttft(0.5) / random.ttft(0.5), rise))
    return found


def strategies_table(runs: Sequence[Run]) -> Table:
    """Return one row a number of slots, load and strategy."""
    rows = [
        [str(slots), said_callers(load), way, *(figure_spread(mine, column) for column in COLUMNS)]
        for (slots, load, way), mine in grouped(runs, lambda done: (done.slots, done.load, done.way)).items()
    ]
    caption = "The strategies: median of the runs and, in brackets, the least and the most."
    return Table("strategies", caption, ["slots a host", "load", "strategy", *COLUMNS], rows)


def figure_spread(runs: Sequence[Run], column: str) -> str:
    """Return "median [least, most]" of a column."""
    figure, form = COLUMNS[column]
    values = [figure(done) for done in runs]
    return f"{median(values):{form}} [{min(values):{form}}, {max(values):{form}}]"


def pairs_table(runs: Sequence[Run]) -> Table:
    """Return one row a number of slots, load and seed."""
    rows = [
        [str(pair.slots), said_callers(pair.load), str(pair.seed), f"{pair.fall:.1%}", f"{pair.rise:.2f} x"]
        for pair in pairs(runs)
    ]
    caption = "PREFIX_AWARE against RANDOM, run by run."
    columns = ["slots a host", "load", "seed", "P50 TTFT below RANDOM's by", "cached share to RANDOM's"]
    return Table("pairs", caption, columns, rows)


def findings(runs: Sequence[Run]) -> list[str]:
    """Return what the runs say, also where it is less than expected."""
    said = []
    for (slots, load), alike in grouped(runs, lambda done: (done.slots, done.load)).items():
        mine = pairs(alike)
        fell = sum(pair.fall >= P50_FALL for pair in mine)
        rose = sum(pair.rise >= CACHED_RISE for pair in mine)
        said.append(
            f"{slots} slots a host, {said_callers(load)}: P50 TTFT with PREFIX_AWARE is at least {P50_FALL:.0%} below "
            f"RANDOM's in {fell} of {len(mine)} runs; the cached share of prompt tokens is at least {CACHED_RISE:g} "
            f"times RANDOM's in {rose} of {len(mine)}."
        )
    return said


def plot(runs: Sequence[Run], hosts: int) -> Plot:
    """Return a panel a number of slots and load."""
    panels = []
    for (slots, load), alike in grouped(runs, lambda done: (done.slots, done.load)).items():
        curves = []
        for way, mine in grouped(alike, lambda done: done.way).items():
            times = sorted(sample.ttft_seconds for done in mine for sample in done.samples)
            shares = [round((rank + 1) / len(times), 4) for rank in range(len(times))]
            curves.append(Curve(way, [round(value, 4) for value in times], shares, "stairs"))
        title = f"{hosts} hosts of {slots} slots; {said_callers(load)}"
        panels.append(Panel(title, "time to first token, s", "share of requests", curves, log_x=True))
    return Plot("ttft", "Time to first token, all runs together.", panels)

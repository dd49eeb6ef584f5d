"""The part ``engine``: strategies in front of a real engine's prompt caches, run after run."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import TypeVar

from benchmarks.engine import fleet, load
from benchmarks.engine.load import Load, Sample
from benchmarks.plot import Curve, Panel, Plot
from benchmarks.result import Result, Table, Value, machine_facts

HOSTS = 4
SLOTS = (2, 4)
"""Of a host, case by case. A slot keeps the prompt it served last: all hosts together hold 8 prompts, or 16."""
LOAD = Load(tenants=8, requests=80, in_flight=4, skew=0.0)
QUICK_LOAD = Load(tenants=2, requests=8, in_flight=2, skew=0.0)
SEEDS = (1, 2, 3, 4, 5)
PREFIX_LENGTH, THRESHOLD = 4096, 3
"""With four in flight in all, a home is left only by what would be its fourth."""
P50_FALL, CACHED_RISE = 0.70, 2.0
"""What PREFIX_AWARE is expected to do against RANDOM in each run."""

RANDOM, LEAST, PREFIX_AWARE = "RANDOM", "LEAST_OUTSTANDING_REQUESTS", "PREFIX_AWARE"
STRATEGIES: dict[str, dict[str, object]] = {
    RANDOM: {"RoutingStrategy": RANDOM},
    LEAST: {"RoutingStrategy": LEAST},
    PREFIX_AWARE: {
        "RoutingStrategy": PREFIX_AWARE,
        "PrefixAwareRoutingConfig": {"PrefixLength": PREFIX_LENGTH, "ConcurrencyThreshold": THRESHOLD},
    },
}
Say = Callable[[str], None]
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Run:
    """One load through one way of routing."""

    way: str
    load: Load
    slots: int
    seed: int
    wall_seconds: float
    samples: list[Sample]

    @property
    def cached_share(self) -> float:
        """Of all prompt tokens, by the engine's own count."""
        return sum(sample.cached_tokens for sample in self.samples) / sum(s.prompt_tokens for s in self.samples)

    def ttft(self, share: float) -> float:
        """Return a percentile in seconds, ``share`` from 0 to 1."""
        ordered = sorted(sample.ttft_seconds for sample in self.samples)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    @property
    def mean_ttft(self) -> float:
        return mean(sample.ttft_seconds for sample in self.samples)

    def line(self) -> str:
        """Return the run in one line."""
        return (
            f"{self.way}, {self.slots} slots, {self.load.tenants} tenants, skew {self.load.skew:g}, seed {self.seed}: "
            f"TTFT P50 {self.ttft(0.5):.2f} s, cached {self.cached_share:.3f}, {self.wall_seconds:.0f} s"
        )


def run(*, quick: bool, say: Say) -> Result:
    """Measure all of it."""
    started = time.process_time()
    asked, seeds = (QUICK_LOAD, SEEDS[:1]) if quick else (LOAD, SEEDS)
    runs: list[Run] = []
    for slots in SLOTS[:1] if quick else SLOTS:
        with (
            tempfile.TemporaryDirectory() as directory,
            fleet.hosts(HOSTS, slots, Path(directory)) as urls,
            fleet.product(urls, Path(directory)) as product,
        ):
            for seed in seeds:
                for number, (strategy, routing) in enumerate(STRATEGIES.items()):
                    product.switch(HOSTS, routing)
                    runs.append(once(strategy, product.data_url, asked, slots, seed, number))
                    say(runs[-1].line())
    return _result(runs, quick, round(time.process_time() - started, 1))


def once(way: str, base_url: str, asked: Load, slots: int, seed: int, text: int) -> Run:
    """Send one load. ``text`` makes its prompts new ones: what the hosts keep of earlier runs helps none."""
    calls = load.bodies(asked, seed, text)
    began = time.perf_counter()
    samples = asyncio.run(load.serve(base_url, calls, asked.in_flight))
    return Run(way, asked, slots, seed, time.perf_counter() - began, samples)


# --- tables -----------------------------------------------------------------------------------------------------------


def _result(runs: Sequence[Run], quick: bool, cpu_seconds: float) -> Result:
    settings: dict[str, Value] = {
        "hosts": HOSTS, "slots a host": ", ".join(map(str, SLOTS)), "threads a host": 1, "tenants": LOAD.tenants,
        "tokens of a tenant's prompt": load.TENANT_WORDS, "tokens out": load.ANSWER_TOKENS,
        "requests": LOAD.requests, "in flight": LOAD.in_flight, "PrefixLength": PREFIX_LENGTH,
        "ConcurrencyThreshold": THRESHOLD,
    }  # fmt: skip
    return Result(
        part="engine",
        what="The whole product in front of llama.cpp's server on the CPU, with a small generated model and its real "
        "prompt cache. Closed loop; every run has prompts of its own, so all caches are cold at its start.",
        command="python -m benchmarks engine" + (" --quick" if quick else ""),
        quick=quick,
        machine=machine_facts() | {"xllamacpp": fleet.requirement("xllamacpp")},
        seeds=sorted({done.seed for done in runs}),
        settings=settings,
        cpu_seconds=cpu_seconds,
        tables=[strategies_table(runs), pairs_table(runs)],
        findings=findings(runs),
        figures=[record(done) for done in runs],
        plots=[_plot(runs)],
    )


def grouped(runs: Sequence[Run], key: Callable[[Run], Key]) -> dict[Key, list[Run]]:
    """Return the runs by their key, keys in the order in which they first come."""
    groups: dict[Key, list[Run]] = {}
    for done in runs:
        groups.setdefault(key(done), []).append(done)
    return groups


def strategies_table(runs: Sequence[Run]) -> Table:
    """Return one row a number of slots and strategy."""
    rows = [
        [str(slots), way, *(figure_spread(mine, column) for column in COLUMNS)]
        for (slots, way), mine in grouped(runs, lambda done: (done.slots, done.way)).items()
    ]
    caption = "The strategies: median of the runs and, in brackets, the least and the most."
    return Table("strategies", caption, ["slots a host", "strategy", *COLUMNS], rows)


COLUMNS: dict[str, tuple[Callable[[Run], float], str]] = {
    "TTFT P50, s": (lambda done: done.ttft(0.5), ".2f"),
    "P90, s": (lambda done: done.ttft(0.9), ".2f"),
    "mean, s": (lambda done: done.mean_ttft, ".2f"),
    "cached share": (lambda done: done.cached_share, ".3f"),
    "all done after, s": (lambda done: done.wall_seconds, ".1f"),
}


def figure_spread(runs: Sequence[Run], column: str) -> str:
    """Return "median [least, most]" of a column."""
    figure, form = COLUMNS[column]
    values = [figure(done) for done in runs]
    return f"{median(values):{form}} [{min(values):{form}}, {max(values):{form}}]"


def _pairs(runs: Sequence[Run]) -> list[tuple[int, int, float, float]]:
    """Return (slots, seed, fall of P50 TTFT, rise of the cached share) of PREFIX_AWARE against RANDOM."""
    by = {(done.way, done.slots, done.seed): done for done in runs}
    return [
        (slots, seed, 1 - by[PREFIX_AWARE, slots, seed].ttft(0.5) / by[RANDOM, slots, seed].ttft(0.5),
         by[PREFIX_AWARE, slots, seed].cached_share / max(by[RANDOM, slots, seed].cached_share, 1e-9))
        for slots, seed in dict.fromkeys((done.slots, done.seed) for done in runs)
    ]  # fmt: skip


def pairs_table(runs: Sequence[Run]) -> Table:
    """Return one row a number of slots and seed."""
    rows = [[str(slots), str(seed), f"{fall:.1%}", f"{rise:.2f} x"] for slots, seed, fall, rise in _pairs(runs)]
    caption = "PREFIX_AWARE against RANDOM, run by run."
    columns = ["slots a host", "seed", "P50 TTFT below RANDOM's by", "cached share to RANDOM's"]
    return Table("pairs", caption, columns, rows)


def findings(runs: Sequence[Run]) -> list[str]:
    """Return what the runs say, also where it is less than expected."""
    said = []
    for slots, alike in grouped(runs, lambda done: done.slots).items():
        pairs = _pairs(alike)
        fell = sum(fall >= P50_FALL for _, _, fall, _ in pairs)
        rose = sum(rise >= CACHED_RISE for _, _, _, rise in pairs)
        said.append(
            f"{slots} slots a host: P50 TTFT with PREFIX_AWARE is at least {P50_FALL:.0%} below RANDOM's in {fell} of "
            f"{len(pairs)} runs; the cached share of prompt tokens is at least {CACHED_RISE:g} times RANDOM's in "
            f"{rose} of {len(pairs)}."
        )
    return said


def record(done: Run) -> dict[str, Value]:
    """Return one run as figures."""
    return {
        "way": done.way, "slots": done.slots, "tenants": done.load.tenants, "skew": done.load.skew, "seed": done.seed,
        "wall_seconds": round(done.wall_seconds, 2), "cached_share": round(done.cached_share, 4),
        "ttft_mean": round(done.mean_ttft, 4),
        **{f"ttft_p{percent}": round(done.ttft(percent / 100), 4) for percent in (50, 90, 99)},
    }  # fmt: skip


def _plot(runs: Sequence[Run]) -> Plot:
    panels = []
    for slots, alike in grouped(runs, lambda done: done.slots).items():
        curves = []
        for way, mine in grouped(alike, lambda done: done.way).items():
            times = sorted(sample.ttft_seconds for done in mine for sample in done.samples)
            shares = [round((rank + 1) / len(times), 4) for rank in range(len(times))]
            curves.append(Curve(way, [round(value, 4) for value in times], shares, "stairs"))
        title = f"llama.cpp on {HOSTS} hosts of {slots} slots"
        panels.append(Panel(title, "time to first token, s", "share of requests", curves, log_x=True))
    return Plot("ttft", "Time to first token, all runs together.", panels)

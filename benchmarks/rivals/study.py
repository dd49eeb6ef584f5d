"""The part ``rivals``: cache policies side by side on real prompt caches, even and skewed tenants, run after run."""

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.engine import fleet
from benchmarks.engine.load import Load
from benchmarks.engine.runs import Run, grouped, once, record, said_callers
from benchmarks.engine.study import HOSTS, LOAD, PAUSING, PREFIX_LENGTH, Say, routing, threshold
from benchmarks.engine.tables import COLUMNS, PREFIX_AWARE, RANDOM, figure_spread
from benchmarks.proxy.contenders import LeftOut
from benchmarks.proxy.processes import free_port
from benchmarks.proxy.routers import SGLANG, SMG, VLLM, Wheel
from benchmarks.result import Result, Table, machine_facts

LOADS = (
    *(Load(tenants, LOAD.requests, LOAD.in_flight, skew) for tenants in (8, 12) for skew in (0.0, 1.0)),
    PAUSING,
)
QUICK_LOADS = (Load(2, 8, 2, 0.0),)
SLOTS = 4
"""Of a host: with two, even 8 tenants leave no slot to spare, and 12 have none for each."""
SEEDS = (1, 2, 3, 4, 5)
RIVALS = (
    (SMG, "cache_aware"),
    (SMG, "prefix_hash"),
    (VLLM, "cache_aware"),
    (SGLANG, "cache_aware"),
)
OURS = f"warmroute {PREFIX_AWARE}"


@dataclass(frozen=True, slots=True)
class Router:
    """One rival with one policy, ready to start."""

    wheel: Wheel
    policy: str
    program: Path

    @property
    def name(self) -> str:
        return f"{self.wheel.name} {self.policy}"

    @contextlib.contextmanager
    def serving(self, urls: Sequence[str], directory: Path) -> Iterator[str]:
        """Run it anew, with nothing learned; yields its URL."""
        port, metrics = free_port(), free_port()
        command = [self.program, *self.wheel.begin, "--host", "127.0.0.1", "--port", port, "--worker-urls", *urls]
        command += ["--policy", self.policy, "--prometheus-host", "127.0.0.1", "--prometheus-port", metrics]
        with fleet.process(command, directory / f"{self.name}.log".replace(" ", "-")):
            fleet.wait_for(f"http://127.0.0.1:{port}/health", directory)
            fleet.wait_for(f"http://127.0.0.1:{port}/v1/models", directory)
            yield f"http://127.0.0.1:{port}"


def run(*, quick: bool, say: Say) -> Result:
    """Measure all of it."""
    started = time.process_time()
    routers, left_out = installed(say)
    loads, seeds = (QUICK_LOADS, SEEDS[:1]) if quick else (LOADS, SEEDS)
    runs: list[Run] = []
    with (
        tempfile.TemporaryDirectory() as name,
        fleet.hosts(HOSTS, SLOTS, Path(name)) as urls,
        fleet.product(urls, Path(name)) as product,
    ):
        for load in loads:
            for seed in seeds:
                for strategy in (RANDOM, PREFIX_AWARE):
                    product.switch(HOSTS, routing(strategy, load, SLOTS))
                    runs.append(once(f"warmroute {strategy}", product.data_url, load, SLOTS, seed, len(runs)))
                    say(runs[-1].line())
                for router in routers:
                    with router.serving(urls, Path(name)) as url:
                        runs.append(once(router.name, url, load, SLOTS, seed, len(runs)))
                    say(runs[-1].line())
    return _result(runs, left_out, quick, round(time.process_time() - started, 1))


def installed(say: Say) -> tuple[list[Router], list[str]]:
    """Return the rivals that this machine can run, and a sentence for each that it cannot."""
    routers, left_out = [], []
    for wheel, policy in RIVALS:
        try:
            routers.append(Router(wheel, policy, wheel.install()))
        except LeftOut as why:
            left_out.append(f"Left out: {wheel.name} {policy}: {why}.")
            say(left_out[-1])
    return routers, left_out


def _result(runs: Sequence[Run], left_out: Sequence[str], quick: bool, cpu_seconds: float) -> Result:
    callers = {said_callers(done.load): done.load for done in runs}
    return Result(
        part="rivals",
        what="The product and the LLM routers' cache policies, with their defaults, in front of the same hosts with "
        "real prompt caches (part engine). Each router starts anew for each run, and each run has prompts of its own.",
        command="python -m benchmarks rivals" + (" --quick" if quick else ""),
        quick=quick,
        machine=machine_facts() | {wheel.name: wheel.version for wheel in (SMG, VLLM, SGLANG)},
        seeds=sorted({done.seed for done in runs}),
        settings={
            "hosts": HOSTS,
            "slots a host": SLOTS,
            "requests": LOAD.requests,
            "PrefixLength": PREFIX_LENGTH,
            "ConcurrencyThreshold": "; ".join(f"{threshold(load, SLOTS)} ({said})" for said, load in callers.items()),
        },
        cpu_seconds=cpu_seconds,
        tables=[table(runs)],
        findings=[*findings(runs), *left_out],
        figures=[record(done) for done in runs],
    )


def table(runs: Sequence[Run]) -> Table:
    """Return one row a load and router."""
    rows = [
        [_said(load), way, *(figure_spread(mine, column) for column in COLUMNS)]
        for (load, way), mine in grouped(runs, lambda done: (done.load, done.way)).items()
    ]
    caption = "Median of the runs and, in brackets, the least and the most."
    return Table("routers", caption, ["tenants, callers", "router", *COLUMNS], rows)


def _said(load: Load) -> str:
    return f"{load.tenants} {'skewed' if load.skew else 'even'}; {said_callers(load)}"


def findings(runs: Sequence[Run]) -> list[str]:
    """Say for each load who has the lowest mean TTFT and where the product stands, by medians over the seeds."""
    said = []
    for load, alike in grouped(runs, lambda done: done.load).items():
        by_way = grouped(alike, lambda done: done.way)
        medians = {way: median(done.mean_ttft for done in mine) for way, mine in by_way.items()}
        best = min(medians, key=medians.__getitem__)
        place = sorted(medians, key=medians.__getitem__).index(OURS) + 1
        said.append(
            f"{_said(load)}: {OURS} is number {place} of {len(medians)} by mean TTFT, {medians[OURS]:.2f} s; "
            f"the best is {best} with {medians[best]:.2f} s."
        )
    return said

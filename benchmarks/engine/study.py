"""The part ``engine``: strategies in front of a real engine's prompt caches, run after run."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.engine import fleet, load, tables
from benchmarks.engine.load import Load
from benchmarks.engine.runs import Run, once, record
from benchmarks.engine.tables import LEAST, PREFIX_AWARE, RANDOM
from benchmarks.result import Result, Value, machine_facts

HOSTS = 4
SLOTS = (2, 4)
"""Of a host, case by case. A slot keeps the prompt it served last: all hosts together hold 8 prompts, or 16."""
LOAD = Load(tenants=8, requests=80, in_flight=4)
PAUSING = Load(tenants=8, requests=80, in_flight=8, own_caller=True, pause_seconds=0.5)
LOADS = (LOAD, Load(tenants=8, requests=80, in_flight=8, own_caller=True), PAUSING)
QUICK_LOADS = (
    Load(tenants=2, requests=8, in_flight=2),
    Load(tenants=2, requests=4, in_flight=2, own_caller=True, pause_seconds=0.05),
)
SEEDS = (1, 2, 3, 4, 5)
PREFIX_LENGTH = 4096
STRATEGIES = (RANDOM, LEAST, PREFIX_AWARE)
Say = Callable[[str], None]


def threshold(asked: Load, slots: int) -> int:
    """Return the ConcurrencyThreshold: what a host serves at once, but less than all there is, or none would leave."""
    return min(slots, asked.in_flight - 1)


def routing(strategy: str, asked: Load, slots: int) -> dict[str, object]:
    """Return a strategy's RoutingConfig for a load on hosts of so many slots."""
    if strategy != PREFIX_AWARE:
        return {"RoutingStrategy": strategy}
    pair = {"PrefixLength": PREFIX_LENGTH, "ConcurrencyThreshold": threshold(asked, slots)}
    return {"RoutingStrategy": strategy, "PrefixAwareRoutingConfig": pair}


def run(*, quick: bool, say: Say) -> Result:
    """Measure all of it."""
    started = time.process_time()
    loads, seeds = (QUICK_LOADS, SEEDS[:1]) if quick else (LOADS, SEEDS)
    runs: list[Run] = []
    for slots in SLOTS[:1] if quick else SLOTS:
        with (
            tempfile.TemporaryDirectory() as directory,
            fleet.hosts(HOSTS, slots, Path(directory)) as urls,
            fleet.product(urls, Path(directory)) as product,
        ):
            cases = [(asked, strategy) for asked in loads for strategy in STRATEGIES]
            for seed in seeds:
                for text, (asked, strategy) in enumerate(cases):
                    product.switch(HOSTS, routing(strategy, asked, slots))
                    runs.append(once(strategy, product.data_url, asked, slots, seed, text))
                    say(runs[-1].line())
    return _result(runs, quick, round(time.process_time() - started, 1))


def _result(runs: Sequence[Run], quick: bool, cpu_seconds: float) -> Result:
    settings: dict[str, Value] = {
        "hosts": HOSTS, "slots a host": ", ".join(map(str, SLOTS)), "threads a host": 1, "tenants": LOAD.tenants,
        "tokens of a tenant's prompt": load.TENANT_WORDS, "tokens out": load.ANSWER_TOKENS, "requests": LOAD.requests,
        "PrefixLength": PREFIX_LENGTH,
        "ConcurrencyThreshold": "the slots of a host, and less than the callers",
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
        tables=[tables.strategies_table(runs), tables.pairs_table(runs)],
        findings=tables.findings(runs),
        figures=[record(done) for done in runs],
        plots=[tables.plot(runs, HOSTS)],
    )

"""The part ``trace``: replay the trace, make its tables and plots."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.fleet.parallel import cpu_seconds
from benchmarks.result import Result, Value, machine_facts
from benchmarks.trace import tables
from benchmarks.trace.cells import LARGE, QUICK, SMALL, WHOLE, Found, measure
from benchmarks.trace.data import fingerprint, location, made_up
from benchmarks.trace.replay import HOSTS, profile

QUICK_REQUESTS = 120


def run(*, quick: bool, say: Callable[[str], None]) -> Result:
    """Measure all of it. A short run has a made-up trace. Raises InputMissing."""
    if not quick:
        return _run(location(), quick=False, say=say)
    with tempfile.TemporaryDirectory() as directory:
        return _run(made_up(Path(directory) / "trace.jsonl", QUICK_REQUESTS), quick=True, say=say)


def _run(path: Path, *, quick: bool, say: Callable[[str], None]) -> Result:
    before = cpu_seconds()
    # A short run is over before other processes have started.
    found = measure(path, QUICK if quick else WHOLE, say, 1 if quick else None)
    return Result(
        part="trace",
        what=("A made-up trace" if quick else "An hour of a production chat service, the conversation trace of the "
              "Mooncake paper (FAST'25),")
        + " replayed with its own timestamps in virtual time: the product's key, order and admission code in front of "
        "seven simulated hosts. The text of a block is made of its id, four characters to a token.",
        command="python -m benchmarks trace" + (" --quick" if quick else ""),
        quick=quick,
        machine=machine_facts(),
        seeds=list(found.size.seeds),
        settings=_settings(path, found),
        cpu_seconds=round(cpu_seconds() - before, 1),
        tables=tables.tables(found),
        findings=list(tables.findings(found)),
        figures=_figures(found),
        plots=tables.plots(found),
    )  # fmt: skip


def _settings(path: Path, found: Found) -> dict[str, Value]:
    return {
        "trace": f"conversation_trace.jsonl, {found.requests:,} requests, SHA-256 {fingerprint(path)}...",
        "engine": profile(LARGE).name,
        "hosts": HOSTS,
        "blocks of 512 tokens in a host's cache": [float(LARGE), float(SMALL)],
        "advised PrefixLength": found.advised.prefix_length,
        "advised ConcurrencyThreshold": found.advised.threshold,
    }


def _figures(found: Found) -> list[dict[str, Value]]:
    return [
        {"strategy": cell.strategy, "PrefixLength": cell.prefix_length, "threshold": cell.threshold,
         "cache blocks": cell.cache_blocks, "requests": "second half" if cell.second_half else "all",
         **{name: [float(f"{value:.5g}") for value in of] for name, of in spread.items()}}
        for cell, spread in found.cells.items()
    ]  # fmt: skip

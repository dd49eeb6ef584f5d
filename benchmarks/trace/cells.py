"""What is run, and what was found: the trace's cells, its bounds, and advice on its first half."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from benchmarks.fleet import parallel
from benchmarks.trace.data import bound, load
from benchmarks.trace.replay import HOSTS, PREFIX_AWARE, Cell, Run, Spread, profile, run, spread
from simulator.calibration import BLOCK_TOKENS, LLAMA_3_1_70B_8XH100
from warmroute.advise.fleet import pooled_hit_rate
from warmroute.advise.spool import Kept

LARGE, SMALL = 2_600, 1_000
"""Caches, in blocks of 512 tokens a host. The profile's own, 90% of eight H100's memory less weights, holds 2,674."""
THRESHOLD = 32
"""Where not said otherwise: more than any home has in flight, except where one length makes one group of all."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run."""

    lengths: tuple[int, ...]
    threshold_lengths: tuple[int, ...]
    thresholds: tuple[int, ...]
    small_lengths: tuple[int, ...]
    seeds: tuple[int, ...]


WHOLE = Size(
    lengths=(1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152, 65536),
    threshold_lengths=(2048, 3072),
    thresholds=(4, 8, 16, THRESHOLD, 1024),
    small_lengths=(2048, 3072, 8192, 32768),
    seeds=(1, 2, 3, 4, 5),
)
QUICK = Size(
    lengths=(2048, 3072), threshold_lengths=(3072,), thresholds=(4, THRESHOLD), small_lengths=(3072,), seeds=(1,)
)


@dataclass(frozen=True, slots=True)
class Advised:
    """What ``warmroute advise`` says of the first half."""

    prefix_length: int
    threshold: int
    hit_rate: float
    """As predicted, of tokens."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured."""

    size: Size
    requests: int
    seconds: float
    block_bound: float
    token_bound: float
    pooled: float
    """Token hit rate of one cache as large as all hosts' large ones."""
    groups: dict[int, tuple[int, float]]
    """PrefixLength -> groups of requests with one key, share of the largest."""
    cells: dict[Cell, Spread]
    advised: Advised


def measure(path: Path, size: Size, say: Callable[[str], None], processes: int | None) -> Found:
    """Run everything on the trace in ``path``."""
    arrivals = load(path, size.lengths)
    say(f"{len(arrivals):,} requests")
    groups = {length: _groups([arrival.keys[place] for arrival in arrivals])
              for place, length in enumerate(size.lengths)}  # fmt: skip
    kept = ((arrival.at, Kept(arrival.prompt_tokens, arrival.output_tokens, arrival.keys, arrival.blocks))
            for arrival in arrivals)  # fmt: skip
    pooled = pooled_hit_rate(kept, HOSTS, profile(LARGE))
    blocks, tokens = bound(arrivals)
    advised = advise(path, size, len(arrivals))
    say(f"advised on the first half: PrefixLength {advised.prefix_length}, threshold {advised.threshold}")
    cells = [*first_cells(size), *second_half(size, advised.threshold)]
    jobs = [Run(path, size.lengths, cell, seed) for cell in cells for seed in size.seeds]
    done = parallel.spread(run, jobs, processes=processes)
    found = {}
    for cell in cells:
        found[cell] = spread(list(islice(done, len(size.seeds))))
        say(_said(cell, found[cell]))
    return Found(size, len(arrivals), arrivals[-1].at, blocks, tokens, pooled, groups, found, advised)


def first_cells(size: Size) -> list[Cell]:
    """Return the cells of the whole trace, each once."""
    plain = [Cell(strategy, 0, 0, cache) for cache in (LARGE, SMALL)
             for strategy in ("RANDOM", "LEAST_OUTSTANDING_REQUESTS")]  # fmt: skip
    lengths = [Cell(PREFIX_AWARE, length, THRESHOLD, LARGE) for length in size.lengths]
    small = [Cell(PREFIX_AWARE, length, THRESHOLD, SMALL) for length in size.small_lengths]
    thresholds = [Cell(PREFIX_AWARE, length, threshold, LARGE) for length in size.threshold_lengths
                  for threshold in size.thresholds]  # fmt: skip
    return list(dict.fromkeys([*plain, *lengths, *small, *thresholds]))


def second_half(size: Size, threshold: int) -> list[Cell]:
    return [Cell(PREFIX_AWARE, length, threshold, LARGE, second_half=True) for length in size.lengths]


def advise(path: Path, size: Size, requests: int) -> Advised:
    """Run the command on the first half of the trace."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as half, path.open("rb") as lines:
        half.writelines(islice(lines, requests // 2))
        half.flush()
        command = [sys.executable, "-m", "warmroute", "advise", "--log", half.name, "--json", "--hosts", str(HOSTS),
                   "--cache-tokens", str(profile(LARGE).kv_blocks * BLOCK_TOKENS), "--prefix-lengths",
                   ",".join(map(str, size.lengths)), "--engine", LLAMA_3_1_70B_8XH100.name]  # fmt: skip
        said = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    chosen = said["recommendation"]
    (trial,) = [one for one in said["trials"] if chosen["prefix_length"] in one["prefix_lengths"]
                and one["concurrency_threshold"] == chosen["concurrency_threshold"]]  # fmt: skip
    return Advised(
        chosen["prefix_length"], chosen["concurrency_threshold"], trial["hit_rate"], said["log"]["replayed_seconds"]
    )


def _groups(keys: Sequence[int]) -> tuple[int, float]:
    counts: dict[int, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    return len(counts), max(counts.values()) / len(keys)


def _said(cell: Cell, found: Spread) -> str:
    name = f"{cell.strategy} {cell.prefix_length or ''} threshold {cell.threshold}".replace("  threshold 0", "")
    half = ", second half" if cell.second_half else ""
    return f"{name}, {cell.cache_blocks:,} blocks{half}: {found['block_hit_rate'][0]:.1%} of the blocks"


def best(cells: Iterable[tuple[Cell, Spread]]) -> tuple[Cell, Spread]:
    """Return the cell with the highest mean block hit rate."""
    return max(cells, key=lambda pair: pair[1]["block_hit_rate"][0])

"""One load through one way of routing, and what its callers and its engines said of it."""

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TypeVar

from benchmarks.engine import load
from benchmarks.engine.load import Load, Sample
from benchmarks.result import Value

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
            f"{self.way}, {self.slots} slots, {self.load.tenants} tenants, skew {self.load.skew:g}, "
            f"{said_callers(self.load)}, seed {self.seed}: "
            f"TTFT P50 {self.ttft(0.5):.2f} s, cached {self.cached_share:.3f}, {self.wall_seconds:.0f} s"
        )


def once(way: str, base_url: str, asked: Load, slots: int, seed: int, text: int) -> Run:
    """Send one load. ``text`` makes its prompts new ones: what the hosts keep of earlier runs helps none."""
    calls = load.calls(asked, seed, text)
    began = time.perf_counter()
    samples = asyncio.run(load.serve(base_url, asked, calls))
    return Run(way, asked, slots, seed, time.perf_counter() - began, samples)


def said_callers(asked: Load) -> str:
    """Return who calls, in a few words."""
    pauses = f", pausing {asked.pause_seconds:g} s" if asked.pause_seconds else ""
    return f"{asked.in_flight} callers, {'each its tenant' if asked.own_caller else 'any tenant'}{pauses}"


def grouped(runs: Sequence[Run], key: Callable[[Run], Key]) -> dict[Key, list[Run]]:
    """Return the runs by their key, keys in the order in which they first come."""
    groups: dict[Key, list[Run]] = {}
    for done in runs:
        groups.setdefault(key(done), []).append(done)
    return groups


def record(done: Run) -> dict[str, Value]:
    """Return one run as figures."""
    asked = done.load
    return {
        "way": done.way, "slots": done.slots, "callers": said_callers(asked), "tenants": asked.tenants,
        "skew": asked.skew, "seed": done.seed, "wall_seconds": round(done.wall_seconds, 2),
        "cached_share": round(done.cached_share, 4), "ttft_mean": round(done.mean_ttft, 4),
        **{f"ttft_p{percent}": round(done.ttft(percent / 100), 4) for percent in (50, 90, 99)},
    }  # fmt: skip

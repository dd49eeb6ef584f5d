"""The announcement's figures, and ours in the same words. Pure.

Source: AWS machine learning blog, 2026-09-10, prefix-aware routing on SageMaker inference. All rates in percent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.announcement.cells import LONG, Context
from benchmarks.announcement.measure import Found, Measured
from benchmarks.fleet.closed_loop import PREFIX_AWARE
from benchmarks.fleet.conversations import Api
from benchmarks.fleet.figures import spread_of

Three = tuple[float, float, float]
"""(mean, least, most) over the seeds."""

TTFT_RANGE_MS = (63.0, 280.0)
SHARES = (13.3, 15.4)
"""Of the requests, a host's."""


@dataclass(frozen=True, slots=True)
class Theirs:
    """One context. Ranges are over its configurations."""

    p50_cut: tuple[float, float]
    p90_cut: tuple[float, float]
    gain: tuple[float, float]
    hit_random: float
    hit_prefix: float


THEIRS = {
    "long": Theirs((71, 77), (33, 37), (15, 16), 25, 82),
    "short": Theirs((13, 16), (24, 37), (1.7, 2.0), 30, 80),
}


@dataclass(frozen=True, slots=True)
class Ours:
    """The same of one context and API; each seed's PREFIX_AWARE is compared with its own RANDOM."""

    p50_cut: Three
    p90_cut: Three
    p99_cut: Three
    p50_cut_with_rest: Three
    """With ``rest_ms`` added to each time to first token; the next two, too."""
    p90_cut_with_rest: Three
    p99_cut_with_rest: Three
    gain: Three
    """Of requests a second."""
    hit_random: Three
    hit_prefix: Three
    reachable: Three
    overflow: Three
    saturated: Three


def ours(found: Found, context: Context, api: Api) -> Ours:
    """Compare the strategies of one context and API."""
    of = {cell.strategy: runs for cell, runs in found.announced() if (cell.context, cell.api) == (context, api)}
    return compare(of["RANDOM"], of[PREFIX_AWARE], rest_ms(found))


def compare(random: Sequence[Measured], prefix: Sequence[Measured], rest: float = 0.0) -> Ours:
    """Compare two strategies, seed by seed."""
    pairs = [(one.figures, other.figures) for one, other in zip(random, prefix, strict=True)]

    def cut(name: str, more: float = 0.0) -> Three:
        return spread_of([_cut(getattr(before, name) + more, getattr(after, name) + more) for before, after in pairs])

    def percent(name: str, which: int) -> Three:
        return spread_of([100 * getattr(pair[which], name) for pair in pairs])

    return Ours(
        p50_cut=cut("ttft_p50_ms"),
        p90_cut=cut("ttft_p90_ms"),
        p99_cut=cut("ttft_p99_ms"),
        p50_cut_with_rest=cut("ttft_p50_ms", rest),
        p90_cut_with_rest=cut("ttft_p90_ms", rest),
        p99_cut_with_rest=cut("ttft_p99_ms", rest),
        gain=spread_of([-_cut(before.requests_per_s, after.requests_per_s) for before, after in pairs]),
        hit_random=percent("hit_rate", 0),
        hit_prefix=percent("hit_rate", 1),
        reachable=percent("reachable", 1),
        overflow=percent("overflow", 1),
        saturated=percent("saturated", 1),
    )


def p50s(found: Found) -> tuple[float, float]:
    """Return the least and the most mean TTFT P50 of the cells with the announcement's two strategies, in ms."""
    means = [spread_of([one.figures.ttft_p50_ms for one in runs])[0]
             for cell, runs in found.announced() if cell.strategy in ("RANDOM", PREFIX_AWARE)]  # fmt: skip
    return min(means), max(means)


def rest_ms(found: Found) -> float:
    """Return what the model leaves out of a TTFT (network, HTTP servers, tokenizer), if the least P50 of both is the
    same: the announcement's least less ours."""
    return TTFT_RANGE_MS[0] - p50s(found)[0]


def shares(runs: Sequence[Measured]) -> tuple[Three, Three]:
    """Return the shares of the least and of the most busy host, in percent."""
    least, most = ([100 * getattr(one.figures, name) for one in runs] for name in ("share_least", "share_most"))
    return spread_of(least), spread_of(most)


def chance_points(requests: float, hosts: int) -> float:
    """Return one standard deviation of a host's share, in points, if each prefix takes a host by chance."""
    return 100 * math.sqrt((hosts - 1) / hosts**2 / (requests / n_of_long()))


def ceilings(n: float, hosts: int) -> tuple[float, float]:
    """Return what perfect caches find of ``n`` requests of one prefix, in percent: (one host each, hosts at random)."""
    return 100 * (1 - 1 / n), 100 * (1 - hosts * (1 - ((hosts - 1) / hosts) ** n) / n)


def n_of_long() -> float:
    """Return the mean number of requests of a prefix."""
    per_prefix = LONG.kind.per_prefix  # type: ignore[union-attr]
    return sum(per_prefix) / len(per_prefix)


def _cut(before: float, after: float) -> float:
    return 100 * (1 - after / before)

"""One run of the trace on a fleet in virtual time, and what it says. Pure but for reading the trace once."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from benchmarks.fleet.fleet import Fleet, percentile
from benchmarks.fleet.strategies import STRATEGIES
from benchmarks.trace.data import ENGINE_BLOCKS, Arrival, found_blocks, load
from dataplane.routing.admission import Outcome
from dataplane.routing.instance_order import InstanceOrder
from simulator.calibration import LLAMA_3_1_70B_8XH100, Profile
from simulator.request import Request

HOSTS = 7
DICE_BITS = 30
PREFIX_AWARE = "PREFIX_AWARE"


@dataclass(frozen=True, slots=True)
class Cell:
    """How the endpoint is configured, and on what it runs."""

    strategy: str
    prefix_length: int
    """0 where the strategy has none, as the threshold."""
    threshold: int
    cache_blocks: int
    """Of 512 tokens, in a host's KV cache."""
    second_half: bool = False
    """Only the second half of the requests, from cold caches."""


@dataclass(frozen=True, slots=True)
class Run:
    """One cell with one seed: of the hosts' identities, so of the homes, and of what is chosen by chance."""

    path: Path
    lengths: tuple[int, ...]
    cell: Cell
    seed: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run says of its requests."""

    block_hit_rate: float
    """Blocks of 512 tokens found in a host's cache, of all: the trace's own measure."""
    token_hit_rate: float
    """Prompt tokens found, of all: what vLLM counts."""
    ttft_p50_ms: float
    ttft_p90_ms: float
    ttft_p99_ms: float
    overflow: float
    """Of the requests, those whose home was at the threshold while others were not."""
    saturated: float
    """Those that met all hosts at the threshold."""
    share_most: float
    """Those of the host that got the most."""
    in_flight_most: float
    """Most ever in flight on one host."""
    preemptions: float


Spread = dict[str, tuple[float, float, float]]
"""Figure -> (mean, least, most) over the seeds."""


def run(job: Run) -> Figures:
    """Replay the trace."""
    arrivals = load(job.path, job.lengths)
    if job.cell.second_half:
        arrivals = arrivals[len(arrivals) // 2 :]
    return replay(arrivals, job.cell, job.seed, profile(job.cell.cache_blocks), _place(job))


def _place(job: Run) -> int:
    return job.lengths.index(job.cell.prefix_length) if job.cell.strategy == PREFIX_AWARE else 0


def profile(cache_blocks: int) -> Profile:
    """Return the engine with a cache of so many of the trace's blocks."""
    return replace(LLAMA_3_1_70B_8XH100, kv_blocks=cache_blocks * ENGINE_BLOCKS)


def replay(arrivals: Sequence[Arrival], cell: Cell, seed: int, engine: Profile, place: int) -> Figures:
    """Replay from cold caches to the last answer; ``place`` of the keys is that of the cell's PrefixLength."""
    dice = random.Random(f"{seed}/routing")  # noqa: S311
    order = InstanceOrder([f"seed-{seed}-host-{host}" for host in range(HOSTS)], range(HOSTS))
    fleet, rule = Fleet(HOSTS, engine), STRATEGIES[cell.strategy]
    everybody = tuple(range(HOSTS))
    requests: list[Request] = []
    outcomes = dict.fromkeys(Outcome, 0)
    sent = [0] * HOSTS
    most = 0
    for number, arrival in enumerate(arrivals):
        fleet.settle(arrival.at)
        ranked = order.first(arrival.keys[place]) if cell.strategy == PREFIX_AWARE else everybody
        counts = [fleet.in_flight[host] for host in ranked]
        rank, outcome = rule(counts, cell.threshold, dice.getrandbits(DICE_BITS))
        host = ranked[rank]
        requests.append(
            fleet.send(host, number, arrival.blocks, arrival.prompt_tokens, arrival.output_tokens, arrival.at)
        )
        outcomes[outcome] += 1
        sent[host] += 1
        most = max(most, fleet.in_flight[host])
    fleet.finish()
    preempted = sum(engine.counters.preemptions for engine in fleet.engines)
    return _figures(arrivals, requests, outcomes, max(sent), most, preempted)


def _figures(
    arrivals: Sequence[Arrival],
    requests: Sequence[Request],
    outcomes: dict[Outcome, int],
    share: int,
    in_flight: int,
    preemptions: int,
) -> Figures:
    waits = sorted(1000 * (request.first_token_at - request.submitted_at) for request in requests
                   if request.first_token_at is not None)  # fmt: skip
    blocks = sum(found_blocks(*pair) for pair in zip(arrivals, (one.cached_tokens for one in requests), strict=True))
    return Figures(
        block_hit_rate=blocks / sum(len(arrival.ids) for arrival in arrivals),
        token_hit_rate=sum(one.cached_tokens for one in requests) / sum(one.prompt_tokens for one in requests),
        ttft_p50_ms=percentile(waits, 0.5),
        ttft_p90_ms=percentile(waits, 0.9),
        ttft_p99_ms=percentile(waits, 0.99),
        overflow=outcomes[Outcome.OVERFLOW] / len(requests),
        saturated=outcomes[Outcome.ALL_SATURATED] / len(requests),
        share_most=share / len(requests),
        in_flight_most=in_flight,
        preemptions=preemptions,
    )


def spread(runs: Sequence[Figures]) -> Spread:
    """Sum up the runs of several seeds."""
    values = {item.name: [float(getattr(one, item.name)) for one in runs] for item in fields(Figures)}
    return {name: (sum(of) / len(of), min(of), max(of)) for name, of in values.items()}

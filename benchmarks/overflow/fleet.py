"""An open load on a fleet in virtual time, behind the product's routing code. Pure: same arguments, same figures.

Keys come from native_key, orders from InstanceOrder, and a rule decides.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from benchmarks.fleet.fleet import Fleet, percentile
from benchmarks.fleet.strategies import Rule
from dataplane.routing.admission import Outcome
from dataplane.routing.instance_order import InstanceOrder
from dataplane.routing.prefix_key import native_key
from simulator.calibration import BLOCK_TOKENS, Profile
from simulator.request import Request

PREFIX_LENGTH = 4096
SHARED_TOKENS = 8_000
OWN_TOKENS = 250
OUTPUT_TOKENS = 200
DICE_BITS = 30
WINDOW = 500
WARM = 0.95
"""A fleet is warm when WINDOW requests in a row find this share of what they could find."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large a run is."""

    hosts: int = 7
    prefixes: int = 700
    requests: int = 8_000
    warm_up: int = 2_500
    """The first requests, which find a cold fleet, are served but left out of the figures."""


@dataclass(frozen=True, slots=True)
class Load:
    """What arrives: Poisson, ``rate`` requests a second to the fleet, prefix number i with weight 1 / i ** skew."""

    skew: float
    rate: float


@dataclass(frozen=True, slots=True)
class Workload:
    """One draw of a load: the same for every rule and threshold, so rules differ by their choices alone."""

    arrivals: list[float]
    prefixes: list[int]
    dice: list[int]
    orders: list[tuple[int, ...]]
    """By prefix: all hosts, best first."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run says of its requests after the warm-up."""

    hit_rate: float
    """Prompt tokens found in a host's cache, of all: what vLLM counts. Of these prompts 0.97 at most."""
    ttft_p50_ms: float
    ttft_p90_ms: float
    ttft_p99_ms: float
    peak_to_mean: float
    """In flight on the busiest host over the mean of all, averaged over arrivals. 1: level."""
    peak: float
    """Most ever in flight on one host."""
    share_max: float
    """Of the requests, those that the host with the most of them got."""
    copies: float
    """Hosts that hold a prefix's cache at the last arrival, over the prefixes that any holds."""
    in_flight: float
    """On a host, averaged over hosts and arrivals."""
    saturated: float
    """Of the decisions, those with all hosts at the threshold."""
    overflow: float
    warm_after_s: float
    """From the cold start until the fleet is warm; the run's length if it never is."""


def draw(load: Load, size: Size, seed: int) -> Workload:
    """Return the workload of a seed. Hosts and prefixes have names of that seed, so homes differ, too."""
    dice = random.Random(f"{seed}/{load.skew}/{load.rate}")  # noqa: S311
    order = InstanceOrder([f"seed-{seed}-host-{host}" for host in range(size.hosts)], range(size.hosts))
    orders = []
    for prefix in range(size.prefixes):
        key = native_key(b"%d of %d " % (prefix, seed) + b"words " * 1000, PREFIX_LENGTH, None)
        assert key is not None
        orders.append(order.all(key))
    weights = list(accumulate((rank + 1) ** -load.skew for rank in range(size.prefixes)))
    return Workload(
        arrivals=list(accumulate(dice.expovariate(load.rate) for _ in range(size.requests))),
        prefixes=dice.choices(range(size.prefixes), cum_weights=weights, k=size.requests),
        dice=[dice.getrandbits(DICE_BITS) for _ in range(size.requests)],
        orders=orders,
    )


def copies(fleet: Fleet, prefixes: Sequence[Sequence[int]]) -> float:
    """Return how many hosts hold a prefix, over those that any holds."""
    held = [sum(engine.cache.probe(blocks, len(blocks))[0] == len(blocks) for engine in fleet.engines)
            for blocks in prefixes]  # fmt: skip
    return sum(held) / max(1, sum(count > 0 for count in held))


def simulate(rule: Rule, workload: Workload, threshold: int, size: Size, profile: Profile) -> Figures:
    """Run one workload under one rule, from cold caches to the last answer."""
    fleet = Fleet(size.hosts, profile)
    blocks = _blocks(len(workload.orders))
    requests: list[Request] = []
    outcomes: dict[Outcome, int] = {}
    sent = [0] * size.hosts
    unevenness = total = peak = 0.0
    draws = zip(workload.arrivals, workload.prefixes, workload.dice, strict=True)
    for number, (now, prefix, dice) in enumerate(draws):
        fleet.settle(now)
        order = workload.orders[prefix]
        rank, outcome = rule([fleet.in_flight[host] for host in order], threshold, dice)
        requests.append(fleet.send(order[rank], number, blocks[prefix], SHARED_TOKENS + OWN_TOKENS, OUTPUT_TOKENS, now))
        if number < size.warm_up:
            continue
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        sent[order[rank]] += 1
        mean, most = sum(fleet.in_flight) / size.hosts, max(fleet.in_flight)
        total += mean
        unevenness += most / mean
        peak = max(peak, most)
    held = copies(fleet, blocks)
    fleet.finish()
    counted = requests[size.warm_up :]
    waits = sorted(1000 * (request.first_token_at - request.submitted_at) for request in counted
                   if request.first_token_at is not None)  # fmt: skip
    return Figures(
        hit_rate=sum(r.cached_tokens for r in counted) / sum(r.prompt_tokens for r in counted),
        ttft_p50_ms=percentile(waits, 0.5),
        ttft_p90_ms=percentile(waits, 0.9),
        ttft_p99_ms=percentile(waits, 0.99),
        peak_to_mean=unevenness / len(counted),
        peak=peak,
        share_max=max(sent) / len(counted),
        copies=held,
        in_flight=total / len(counted),
        saturated=outcomes.get(Outcome.ALL_SATURATED, 0) / len(counted),
        overflow=outcomes.get(Outcome.OVERFLOW, 0) / len(counted),
        warm_after_s=warm_after(workload.arrivals, [request.cached_tokens for request in requests]),
    )


def warm_after(arrivals: Sequence[float], cached_tokens: Sequence[int]) -> float:
    """Return when the last of the first WINDOW warm requests in a row arrived, or the last of all."""
    found = 0
    for number, tokens in enumerate(cached_tokens):
        found += tokens - (cached_tokens[number - WINDOW] if number >= WINDOW else 0)
        if number >= WINDOW - 1 and found >= WARM * WINDOW * SHARED_TOKENS:
            return arrivals[number]
    return arrivals[-1]


def natural_concurrency(rate: float, profile: Profile, hosts: int) -> float:
    """Return how many requests are in flight on a host when all are warm and each gets its share, by chance."""
    size = Size(hosts=1, prefixes=1, requests=3_000, warm_up=300)
    workload = draw(Load(0.0, rate / hosts), size, 1)
    return simulate(lambda counts, threshold, dice: (0, Outcome.HOME), workload, 1, size, profile).in_flight


def _blocks(prefixes: int) -> list[list[int]]:
    """Return each prefix's block hashes. Any distinct numbers do: chained hashes differ wherever a prefix does."""
    count = SHARED_TOKENS // BLOCK_TOKENS
    return [list(range(1 + prefix * count, 1 + (prefix + 1) * count)) for prefix in range(prefixes)]

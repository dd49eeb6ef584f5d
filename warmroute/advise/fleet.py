"""A fleet of simulated hosts in virtual time behind the product's own order and pick. Pure: same calls, same figures.

Counts are exact, as admission.lua has them. Left out: the network, Redis, the proxy (all milliseconds) and failures.
"""

import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dataplane.routing.admission import Outcome, pick, pick_least
from dataplane.routing.instance_order import RANKS, InstanceOrder
from simulator.calibration import BLOCK_TOKENS, Profile
from simulator.engine import Engine
from simulator.kv_cache import KvCache
from simulator.request import Event, Kind, PromptTooLong
from warmroute.advise.spool import Kept

Arrivals = Iterable[tuple[float, Kept]]
"""(seconds, request), in order of time."""
Route = Callable[[Sequence[int], Sequence[int]], tuple[int, Outcome]]
"""(in flight by host, the request's keys) -> (host, outcome)."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run says of its requests."""

    requests: int
    refused: int
    """Longer than a host's context; left out of everything else."""
    hit_rate: float
    """Prompt tokens found in a host's cache, of all: what vLLM counts."""
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    overflow: float
    """Of the requests, those that left their home for a host under the threshold."""
    saturated: float
    """Those that met all hosts at the threshold."""
    busiest: float
    """Of the requests, those of the host that got the most; 1 / hosts is even."""
    at_home: int
    """The most that a home had in flight when a request came for it. Thresholds above it change nothing."""


def prefix_aware(order: InstanceOrder, place: int, threshold: int, hosts: int) -> Route:
    """Return PREFIX_AWARE at one threshold; ``place`` is where the keys have that of its PrefixLength."""

    def route(in_flight: Sequence[int], keys: Sequence[int]) -> tuple[int, Outcome]:
        if hosts == 1:
            return 0, Outcome.SINGLE
        if not keys:
            return pick_least(in_flight, 0)[0], Outcome.NO_KEY
        ranked = order.first(keys[place])
        rank, outcome = pick([in_flight[host] for host in ranked], threshold)
        if outcome is Outcome.ALL_SATURATED and hosts > RANKS:
            ranked = order.all(keys[place])
            rank, outcome = pick([in_flight[host] for host in ranked], threshold)
        return ranked[rank], outcome

    return route


def least_outstanding(seed: int) -> Route:
    """Return LEAST_OUTSTANDING_REQUESTS."""
    dice = random.Random(seed)  # noqa: S311
    return lambda in_flight, keys: pick_least(in_flight, dice.getrandbits(30))


def at_random(seed: int) -> Route:
    """Return RANDOM."""
    dice = random.Random(seed)  # noqa: S311
    return lambda in_flight, keys: (dice.randrange(len(in_flight)), Outcome.RANDOM)


def replay(arrivals: Arrivals, route: Route, hosts: int, profile: Profile) -> Figures:
    """Run the requests from cold caches to the last answer."""
    engines = [Engine(profile) for _ in range(hosts)]
    changes: list[float | None] = [None] * hosts
    in_flight, sent = [0] * hosts, [0] * hosts
    tally = _Tally()
    for number, (now, kept) in enumerate(arrivals):
        for host, at in enumerate(changes):
            if at is not None and at <= now:
                in_flight[host] -= tally.ended(engines[host].advance(now))
                changes[host] = engines[host].next_change_at()
        host, outcome = route(in_flight, kept.keys)
        try:
            engines[host].submit(number, kept.blocks, kept.prompt_tokens, kept.output_tokens, now)
        except PromptTooLong:
            tally.refused += 1
            continue
        if outcome is Outcome.HOME:
            tally.at_home = max(tally.at_home, in_flight[host] + 1)
        changes[host] = engines[host].next_change_at()
        in_flight[host] += 1
        sent[host] += 1
        tally.outcomes[outcome] += 1
    for engine in engines:
        while (at := engine.next_change_at()) is not None:
            tally.ended(engine.advance(at))
    return tally.figures(max(sent))


def pooled_hit_rate(arrivals: Arrivals, hosts: int, profile: Profile) -> float:
    """Return the hit rate of one cache as large as all hosts' together, which routing can come near to."""
    cache = KvCache(profile.kv_blocks * hosts)
    found = tokens = 0
    for _, kept in arrivals:
        blocks = len(kept.blocks)
        if blocks > cache.capacity:
            continue
        segment = cache.acquire(kept.blocks, min(blocks, (kept.prompt_tokens - 1) // BLOCK_TOKENS))
        found += segment.end * BLOCK_TOKENS
        tokens += kept.prompt_tokens
        cache.reserve(blocks - segment.end)
        cache.release(cache.extend(segment, kept.blocks, blocks))
    return found / max(1, tokens)


def arrive(times: Sequence[float | None], rate: float | None, hosts: int) -> list[tuple[float, int]]:
    """Return (seconds, number) in order of time; ``rate`` in requests a second, None: as the log has it.

    A log without times has Poisson arrivals, one a second and host unless ``rate`` says otherwise.
    """
    known = [(at, number) for number, at in enumerate(times) if at is not None]
    if len(known) < len(times):
        dice = random.Random(0)  # noqa: S311
        return list(_poisson(len(times), rate or float(hosts), dice))
    known.sort()
    first = known[0][0] if known else 0.0
    span = known[-1][0] - first if known else 0.0
    scale = len(known) / span / rate if rate and span > 0 else 1.0
    return [((at - first) * scale, number) for at, number in known]


def _poisson(count: int, rate: float, dice: random.Random) -> Iterator[tuple[float, int]]:
    now = 0.0
    for number in range(count):
        now += dice.expovariate(rate)
        yield now, number


class _Tally:
    """What is remembered of requests that ended: numbers, so that their blocks can go."""

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(Outcome, 0)
        self.refused = self.at_home = 0
        self._waits = array("d")
        self._found = self._tokens = 0

    def ended(self, events: Sequence[Event]) -> int:
        """Return how many requests ended."""
        count = 0
        for _, kind, request in events:
            if kind is Kind.FINISHED:
                assert request.first_token_at is not None
                count += 1
                self._waits.append(request.first_token_at - request.submitted_at)
                self._found += request.cached_tokens
                self._tokens += request.prompt_tokens
        return count

    def figures(self, most: int) -> Figures:
        count = max(1, len(self._waits))
        waits = sorted(self._waits) or [0.0]
        return Figures(
            requests=len(self._waits),
            refused=self.refused,
            hit_rate=self._found / max(1, self._tokens),
            ttft_p50_s=percentile(waits, 0.5),
            ttft_p90_s=percentile(waits, 0.9),
            ttft_p99_s=percentile(waits, 0.99),
            overflow=self.outcomes[Outcome.OVERFLOW] / count,
            saturated=self.outcomes[Outcome.ALL_SATURATED] / count,
            busiest=most / count,
            at_home=self.at_home,
        )


def percentile(ascending: Sequence[float], share: float) -> float:
    """Return the value that ``share`` of them do not exceed (nearest rank)."""
    return ascending[max(0, -int(-share * len(ascending) // 1) - 1)]

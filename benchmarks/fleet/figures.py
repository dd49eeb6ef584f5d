"""What a closed loop's run says, in figures. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from benchmarks.fleet.closed_loop import Answered
from benchmarks.fleet.fleet import percentile
from dataplane.routing.admission import Outcome

Spread = dict[str, tuple[float, float, float]]
"""Figure -> (mean, least, most) over the seeds."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of the requests whose answers ended within the time that counts."""

    requests: float
    hit_rate: float
    """Prompt tokens found in a host's cache, of all: what vLLM counts."""
    reachable: float
    """Prompt tokens that an earlier request left in some host's cache, of all: no routing finds more."""
    ttft_p50_ms: float
    ttft_p90_ms: float
    ttft_p99_ms: float
    requests_per_s: float
    output_tokens_per_s: float
    share_least: float
    """Of the requests, those of the host with the fewest."""
    share_most: float
    overflow: float
    """Of the requests, those whose home was at the threshold while others were not."""
    saturated: float
    """Of the requests, those that found all hosts at the threshold."""


def figures(answered: Sequence[Answered], hosts: Sequence[str], since: float, until: float) -> Figures:
    """Sum up what ended from ``since`` to ``until`` seconds. Raises ValueError if nothing did."""
    counted = [one for one in answered if since <= one.finished_at <= until]
    if not counted:
        raise ValueError(f"no answer ended between {since:g} and {until:g} s: run for longer")
    waits = ttfts_ms(counted)
    prompt_tokens = sum(one.prompt_tokens for one in counted)
    shares = host_shares(counted, hosts)
    outcomes = [one.outcome for one in counted]
    return Figures(
        requests=len(counted),
        hit_rate=sum(one.cached_tokens for one in counted) / prompt_tokens,
        reachable=sum(one.reusable_tokens for one in counted) / prompt_tokens,
        ttft_p50_ms=percentile(waits, 0.5),
        ttft_p90_ms=percentile(waits, 0.9),
        ttft_p99_ms=percentile(waits, 0.99),
        requests_per_s=len(counted) / (until - since),
        output_tokens_per_s=sum(one.output_tokens for one in counted) / (until - since),
        share_least=min(shares),
        share_most=max(shares),
        overflow=outcomes.count(Outcome.OVERFLOW) / len(counted),
        saturated=outcomes.count(Outcome.ALL_SATURATED) / len(counted),
    )


def ttfts_ms(answered: Sequence[Answered]) -> list[float]:
    """Return the times to first token, ascending."""
    return sorted(1000 * (one.first_token_at - one.submitted_at) for one in answered)


def host_shares(answered: Sequence[Answered], hosts: Sequence[str]) -> list[float]:
    """Return each host's share of the requests."""
    counts = dict.fromkeys(hosts, 0)
    for one in answered:
        counts[one.host] = counts.get(one.host, 0) + 1
    return [count / len(answered) for count in counts.values()]


def hit_rates(answered: Sequence[Answered], window: float, until: float) -> list[float]:
    """Return the hit rate of the answers that ended in each whole window of ``window`` seconds; 0 where none did."""
    found, of = ([0] * int(until / window) for _ in range(2))
    for one in answered:
        place = int(one.finished_at / window)
        if place < len(of):
            found[place] += one.cached_tokens
            of[place] += one.prompt_tokens
    return [part / whole if whole else 0.0 for part, whole in zip(found, of, strict=True)]


def spread_of(values: Sequence[float]) -> tuple[float, float, float]:
    """Return (mean, least, most)."""
    return sum(values) / len(values), min(values), max(values)


def spread(runs: Sequence[Figures]) -> Spread:
    """Sum up the runs of several seeds."""
    return {item.name: spread_of([float(getattr(one, item.name)) for one in runs]) for item in fields(Figures)}

"""From figures to a recommendation and its reason. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from warmroute.advise.trials import UNLEVEL, Found, Group, Trial

CLOSE = 0.005
"""Hit rates this near to each other are as good as equal: the luck of the hash moves them more."""
UNEVEN_MAX = 2
"""A pair that gives the busiest host more than this many times its even share is recommended only where all do."""
SLOWER_MAX = 1.25
"""Nor is one whose TTFT p90 is more than this many times that of LEAST_OUTSTANDING_REQUESTS: its hosts queue."""
OVERFLOW_SPARE = 0.02
"""A threshold that more of the requests overflow has nothing to spare for busier days."""
WORTH_IT = 0.01
"""PREFIX_AWARE is recommended from this much more hit rate than LEAST_OUTSTANDING_REQUESTS on."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What to set, and why."""

    strategy: str
    prefix_length: int
    concurrency_threshold: int
    """The best pair; what to set where the strategy is PREFIX_AWARE."""
    trial: Trial
    reasons: list[str]


def choose(found: Found) -> Advice:
    """Return the recommendation: of the pairs that keep hosts from queueing and have as good as the best hit rate, the
    most level length, and its lowest threshold."""
    slowest = SLOWER_MAX * found.least_outstanding.ttft_p90_s
    level = [trial for trial in found.trials if trial.figures.busiest <= busiest_max(found.hosts)]
    able = [trial for trial in level if trial.figures.ttft_p90_s <= slowest] or level or _most_level(found.trials)
    best = max(trial.figures.hit_rate for trial in able)
    close = [trial for trial in able if trial.figures.hit_rate >= best - CLOSE]
    group = min(close, key=lambda trial: (round(trial.figures.busiest * found.hosts, 1), -trial.figures.hit_rate)).group
    trial = min((trial for trial in close if trial.group == group),
                key=lambda trial: (trial.figures.overflow > OVERFLOW_SPARE, trial.threshold))  # fmt: skip
    length = middle(group.lengths)
    gain = trial.figures.hit_rate - found.least_outstanding.hit_rate
    strategy = "PREFIX_AWARE" if found.hosts > 1 and gain >= WORTH_IT else "LEAST_OUTSTANDING_REQUESTS"
    return Advice(strategy, length, trial.threshold, trial, [
        _why_strategy(found, trial, gain), *_why_length(found, trial, length), *_why_threshold(found, trial),
        *_warnings(found, trial),
    ])  # fmt: skip


def busiest_max(hosts: int) -> float:
    """Return the largest share of one host that is recommended. Of few hosts twice the even share would be all."""
    return min(UNEVEN_MAX / hosts, (1 + 1 / hosts) / 2)


def middle(lengths: Sequence[int]) -> int:
    """Return which of some equal lengths to take: as far from the one that merges as from the one that splits.

    Nothing splits beyond the longest there is, so lengths up to it are as good as their shortest.
    """
    return lengths[0] if lengths[-1] == 65_536 else lengths[(len(lengths) - 1) // 2]


def _most_level(trials: Sequence[Trial]) -> list[Trial]:
    least = min(trial.figures.busiest for trial in trials)
    return [trial for trial in trials if trial.figures.busiest <= least * 1.1]


def _why_strategy(found: Found, trial: Trial, gain: float) -> str:
    if found.hosts == 1:
        return "With one host every request goes there: routing changes nothing. Use at least two."
    figures = (
        f"{_percent(trial.figures.hit_rate)} of the prompt tokens are found in a cache, against "
        f"{_percent(found.least_outstanding.hit_rate)} with LEAST_OUTSTANDING_REQUESTS and "
        f"{_percent(found.random.hit_rate)} with RANDOM"
    )
    if gain < WORTH_IT:
        return f"Prompts share too little for routing by prefix: at best {figures}."
    return (
        f"{figures}; one cache as large as all {found.hosts} hosts' together would find {_percent(found.pooled)}. The "
        f"median time to first token is {_ms(trial.figures.ttft_p50_s)} ms against "
        f"{_ms(found.least_outstanding.ttft_p50_s)} ms and {_ms(found.random.ttft_p50_s)} ms."
    )


def _why_length(found: Found, trial: Trial, length: int) -> list[str]:
    group = trial.group
    reasons = [
        f"PrefixLength {length:,}: {_groups(group)} of requests, the largest with {_percent(group.largest)} of them; "
        f"the busiest host gets {_percent(trial.figures.busiest)}, even would be {_percent(1 / found.hosts)}."
    ]
    shorter, longer = _neighbours(found, group)
    if shorter is not None:
        reasons.append(f"Shorter, at {shorter.group.lengths[-1]:,}, {_effect(shorter, found)}.")
    if longer is not None:
        reasons.append(f"Longer, at {longer.group.lengths[0]:,}, {_effect(longer, found)}.")
    return reasons


def _why_threshold(found: Found, trial: Trial) -> list[str]:
    lower = [other for other in found.trials if other.group == trial.group and other.threshold < trial.threshold]
    figures = trial.figures
    said = f"ConcurrencyThreshold {trial.threshold}: {_percent(figures.overflow)} of the requests overflow"
    said += f" and {_percent(figures.saturated)} meet all hosts at the threshold" if figures.saturated else ""
    if not lower:
        return [said + "; no lower one was tried."]
    below = max(lower, key=lambda other: other.threshold)
    loss = figures.hit_rate - below.figures.hit_rate
    said += f"; at {below.threshold}, the next lower one, {_percent(below.figures.overflow)} would"
    return [f"{said}, and {abs(loss) * 100:.1f} points {'less' if loss >= 0 else 'more'} be found."]


def _warnings(found: Found, trial: Trial) -> list[str]:
    figures, warnings = trial.figures, []
    if found.hosts > 1 and figures.busiest * found.hosts > UNLEVEL:
        warnings.append(
            f"The busiest host gets {figures.busiest * found.hosts:.1f} times its even share: there are few groups for "
            "so many hosts, or one that is large. A lower threshold levels them, at the price shown above."
        )
    if figures.saturated > 0.2:
        warnings.append("The fleet is at the threshold most of the time: it needs more hosts, or a higher threshold.")
    return warnings


def _neighbours(found: Found, group: Group) -> tuple[Trial | None, Trial | None]:
    """Return the best trial of the next shorter and of the next longer group."""
    best: dict[tuple[int, ...], Trial] = {}
    for trial in found.trials:
        known = best.get(trial.group.lengths)
        if known is None or trial.figures.hit_rate > known.figures.hit_rate:
            best[trial.group.lengths] = trial
    ranked = sorted(best)
    place = ranked.index(group.lengths)
    shorter = best[ranked[place - 1]] if place else None
    return shorter, best[ranked[place + 1]] if place + 1 < len(ranked) else None


def _effect(trial: Trial, found: Found) -> str:
    figures = trial.figures
    said = f"there {'is' if trial.group.number == 1 else 'are'} {_groups(trial.group)}"
    said += f" and at best {_percent(figures.hit_rate)} is found"
    is_level = figures.busiest * found.hosts <= UNLEVEL
    return said if is_level else f"{said}, with {_percent(figures.busiest)} of the requests on the busiest host"


def _groups(group: Group) -> str:
    return f"{group.number:,} {'group' if group.number == 1 else 'groups'}"


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f}"

"""The tables and sentences that are made of what was found. Pure."""

from collections.abc import Sequence
from math import exp, log

from benchmarks.overflow.grid import RECOVERY, Cell, Family, Found, Spread
from benchmarks.overflow.rules import IN_FORCE, keeps_constraints, meets_load, rule_named, twelve_at_once
from benchmarks.result import Table

COLLAPSED = 0.75
"""A rule has collapsed where its hit rate is below this share of the best rule's."""
FORMATS = {
    "hit_rate": ".3f", "ttft_p50_ms": ",.0f", "ttft_p90_ms": ",.0f", "ttft_p99_ms": ",.0f", "peak_to_mean": ".2f",
    "peak": ",.0f", "share_max": ".3f", "copies": ".2f", "in_flight": ".1f", "saturated": ".3f", "overflow": ".3f",
    "warm_after_s": ",.0f",
}  # fmt: skip


def grid(name: str, caption: str, family: Family) -> Table:
    """One row a load and threshold, one column a rule."""
    cells = sorted(next(iter(family.values())), key=lambda cell: (cell.load.skew, cell.load.rate, cell.threshold))
    return Table(
        name=name,
        caption=f"{caption}. Hit rate / TTFT p90 in ms / peak to mean in flight; means over the seeds.",
        columns=["skew", "requests/s", "threshold", *family],
        rows=[[*_words(cell), *(_triple(by_cell[cell]) for by_cell in family.values())] for cell in cells],
    )


def verdict(name: str, when: str, family: Family) -> Table:
    """One row a rule, over all cells."""
    return Table(
        name=name,
        caption=f"With {when}: over all loads and thresholds compared. TTFT is relative to the best rule of the same "
        "load and threshold. Twelve at once: one prefix, three hosts, threshold 2, how many each host gets. Least of "
        "two: with home and next rank at the threshold, the one of two others with less in flight.",
        columns=["rule", "hit rate, mean", "lowest", "TTFT p90, mean", "worst", "TTFT p99, mean", "worst",
                 "peak to mean, mean", "worst", "twelve at once", "least of two"],
        rows=[_verdict(rule, family) for rule in family],
    )  # fmt: skip


def recovery(found: Found) -> Table:
    """One row a rule, from a cold start."""
    family, size = found.families["recovery"], found.grid.recovery_size
    cell = next(iter(next(iter(family.values()))))
    shown = ("warm_after_s", "hit_rate", "ttft_p90_ms", "in_flight")
    return Table(
        name="recovery",
        caption=f"From cold caches, skew {RECOVERY.skew:g}, {RECOVERY.rate:g} requests/s, threshold {cell.threshold}: "
        f"when the fleet is warm, and figures of the requests after the first {size.warm_up:,} of {size.requests:,}. "
        "Mean over the seeds and, in brackets, the least and the most of a seed. A fleet that is never warm has the "
        f"run's length, {size.requests / RECOVERY.rate:,.0f} s or so. The rule in force is in the row {IN_FORCE[1]}.",
        columns=["rule", "warm after, s", "hit rate", "TTFT p90, ms", "in flight on a host"],
        rows=[[rule, *(_bracketed(by_cell[cell], key) for key in shown)] for rule, by_cell in family.items()],
    )


def everything(found: Found) -> Table:
    """One row a rule and cell, with all figures."""
    return Table(
        name="everything",
        caption="Every figure: mean over the seeds and, in brackets, the least and the most of a seed.",
        columns=[
            "compared for",
            "rule",
            "skew",
            "requests/s",
            "threshold",
            *(key.replace("_", " ") for key in FORMATS),
        ],
        rows=[
            [family, rule, *_words(cell), *(_bracketed(spread, key) for key in FORMATS)]
            for family, rule, cell, spread in found.records()
        ],
    )


def finding(when: str, family: Family, in_force: str) -> str:
    """Name the rule with the lowest TTFT p90 among those that keep the constraints and never collapse."""
    able = [name for name in family if keeps_constraints(rule_named(name)) and not _collapses(family, name)]
    if not able:
        return f"{when}, no rule keeps both constraints and never collapses."
    means = {name: _geometric(_over_best(family, name, "ttft_p90_ms")) for name in able}
    best = min(means, key=means.__getitem__)
    said = f"{when}, of the rules that keep both constraints and never collapse ({'; '.join(able)}), "
    said += f'"{best}" has the lowest TTFT p90: {means[best]:.2f} times the best of each load on average'
    return said + (f'; "{in_force}", in force, {means[in_force]:.2f} times.' if in_force in means else ".")


def _collapses(family: Family, rule: str) -> bool:
    best = {cell: max(by_cell[cell]["hit_rate"][0] for by_cell in family.values()) for cell in family[rule]}
    return any(spread["hit_rate"][0] < COLLAPSED * best[cell] for cell, spread in family[rule].items())


def _verdict(rule: str, family: Family) -> list[str]:
    hits = [spread["hit_rate"][0] for spread in family[rule].values()]
    peaks = [spread["peak_to_mean"][0] for spread in family[rule].values()]
    p90, p99 = (_over_best(family, rule, key) for key in ("ttft_p90_ms", "ttft_p99_ms"))
    decides = rule_named(rule)
    return [
        rule, f"{sum(hits) / len(hits):.3f}", f"{min(hits):.3f}",
        f"{_geometric(p90):.2f}", f"{max(p90):,.2f}", f"{_geometric(p99):.2f}", f"{max(p99):,.2f}",
        f"{sum(peaks) / len(peaks):.2f}", f"{max(peaks):.2f}",
        ", ".join(map(str, twelve_at_once(decides))), "yes" if meets_load(decides) else "no",
    ]  # fmt: skip


def _over_best(family: Family, rule: str, key: str) -> list[float]:
    """Return the figure of each cell over the best rule's in that cell."""
    best = {cell: min(by_cell[cell][key][0] for by_cell in family.values()) for cell in family[rule]}
    return [spread[key][0] / best[cell] for cell, spread in family[rule].items()]


def _geometric(values: Sequence[float]) -> float:
    return exp(sum(map(log, values)) / len(values))


def _words(cell: Cell) -> list[str]:
    return [f"{cell.load.skew:g}", f"{cell.load.rate:g}", f"{cell.threshold} ({cell.level})"]


def _triple(spread: Spread) -> str:
    return " / ".join(format(spread[key][0], FORMATS[key]) for key in ("hit_rate", "ttft_p90_ms", "peak_to_mean"))


def _bracketed(spread: Spread, key: str) -> str:
    mean, least, most = (format(value, FORMATS[key]) for value in spread[key])
    return f"{mean} [{least}, {most}]"

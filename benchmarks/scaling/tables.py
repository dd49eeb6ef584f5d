"""The tables, sentences and the plot that are made of the runs. Pure."""

from collections.abc import Iterator, Sequence

from benchmarks.announcement.cells import THRESHOLD
from benchmarks.fleet.closed_loop import PREFIX_AWARE
from benchmarks.fleet.figures import spread_of
from benchmarks.plot import Curve, Panel, Plot
from benchmarks.result import Table
from benchmarks.scaling.moves import moved_by_remainder
from benchmarks.scaling.runs import CLIENTS, DIRECTIONS, FEWER, MORE, Found, Measured, Size

PHASES = ("before", "settling", "after")
IDEAL = 1 / MORE


def keys(found: Found) -> Table:
    """One row a direction: what moves."""
    return Table(
        name="keys",
        caption=f"Share of keys that are at home elsewhere after the change; no rule can move fewer than {IDEAL:.3f} "
        "and stay level. Mean over the seeds, which are sets of hosts, and in brackets the least and the most of a "
        "seed. Needlessly: from a host that stays to one that was there before, in all seeds together. Requests: those "
        "of the settling time whose prefix had moved. By remainder: if a key's home were its remainder by the number "
        "of hosts.",
        columns=["change", "keys moved", "ideal", "needlessly", "requests of moved prefixes", "by remainder"],
        rows=[_keys(direction, found[direction, PREFIX_AWARE]) for direction in DIRECTIONS],
    )


def _keys(direction: str, runs: Sequence[Measured]) -> list[str]:
    return [
        direction,
        _bracketed([one.moved_slots for one in runs], ".4f"),
        f"{IDEAL:.4f}",
        str(sum(one.needlessly for one in runs)),
        _bracketed([one.moved_prefixes for one in runs], ".3f"),
        f"{moved_by_remainder(*DIRECTIONS[direction]):.3f}",
    ]


def through(found: Found, size: Size) -> Table:
    """One row a direction, strategy and phase."""
    return Table(
        name="through-the-change",
        caption=f"The announcement's long context, {CLIENTS} clients, threshold {THRESHOLD}. Settling: the "
        f"{size.settle_seconds:g} s after the change. Mean over the seeds and, in brackets, the least and the most of "
        "a seed. An answer counts when it ends, so those of a host that leaves do in the settling time.",
        columns=["change", "strategy", "phase", "hit rate", "TTFT P50, ms", "TTFT P90, ms", "requests/s", "least share",
                 "most share", "overflow"],
        rows=[_through(direction, strategy, phase, runs)
              for (direction, strategy), runs in found.items() for phase in PHASES],
    )  # fmt: skip


def _through(direction: str, strategy: str, phase: str, runs: Sequence[Measured]) -> list[str]:
    figures = [getattr(one, phase) for one in runs]
    shown = {"hit_rate": ".3f", "ttft_p50_ms": ",.0f", "ttft_p90_ms": ",.0f", "requests_per_s": ".2f",
             "share_least": ".3f", "share_most": ".3f", "overflow": ".4f"}  # fmt: skip
    return [
        direction, strategy, phase,
        *(_bracketed([getattr(one, name) for one in figures], form) for name, form in shown.items()),
    ]  # fmt: skip


def findings(found: Found, size: Size) -> Iterator[str]:
    """Yield what the tables say."""
    for direction in DIRECTIONS:
        runs = found[direction, PREFIX_AWARE]
        moved, least, most = (100 * value for value in spread_of([one.moved_slots for one in runs]))
        before, settling = (_mean([getattr(one, phase).hit_rate for one in runs]) for phase in ("before", "settling"))
        dip = _mean([min(_around(one.hit_rates, size)) for one in runs])
        yield (
            f"{direction}: {moved:.1f}% of the keys move ({least:.1f} to {most:.1f}% by seed; ideal "
            f"{100 * IDEAL:.1f}%). The hit rate of PREFIX_AWARE is {before:.3f} before, {settling:.3f} in the "
            f"{size.settle_seconds:g} s after, and {dip:.3f} in the lowest {size.window_seconds:g} s of these."
        )


def _around(values: Sequence[float], size: Size) -> Sequence[float]:
    middle = int(size.seconds / 2 / size.window_seconds)
    return values[middle : middle + max(1, int(size.settle_seconds / size.window_seconds))]


def plot(found: Found, size: Size) -> Plot:
    """Return hit rate and TTFT through both changes, and what moves."""
    times = [
        round((place + 1) * size.window_seconds / 60, 3) for place in range(int(size.seconds / size.window_seconds))
    ]
    by_label: dict[str, list[Panel]] = {}
    for label, name in (("hit rate", "hit_rates"), ("mean TTFT, ms", "ttft_mean_ms")):
        for direction in DIRECTIONS:
            of = {strategy: runs for (which, strategy), runs in found.items() if which == direction}
            curves = [Curve(strategy, times, _means([getattr(one, name) for one in runs]))
                      for strategy, runs in of.items()]  # fmt: skip
            panel = Panel(f"{direction} hosts", "minutes", label, curves, marks=[size.seconds / 120])
            by_label.setdefault(label, []).append(panel)
    panels = [*by_label["hit rate"], _moves(found), *by_label["mean TTFT, ms"]]
    return Plot(
        "through-the-change",
        f"{FEWER} hosts become {MORE} and {MORE} become {FEWER} under load (dotted): hit rate and mean TTFT by "
        f"{size.window_seconds:g} s, means over the seeds, and the share of keys that move.",
        panels,
    )


def _moves(found: Found) -> Panel:
    places = [float(place) for place in range(len(DIRECTIONS))]
    ours = [_mean([one.moved_slots for one in found[direction, PREFIX_AWARE]]) for direction in DIRECTIONS]
    others = [moved_by_remainder(*counts) for counts in DIRECTIONS.values()]
    curves = [
        Curve("warmroute", places, [round(value, 4) for value in ours], "bars"),
        Curve("by remainder", places, [round(value, 4) for value in others], "bars"),
        Curve("ideal", [-0.5, len(places) - 0.5], [IDEAL, IDEAL], "dashed"),
    ]
    return Panel("keys that move", "hosts", "share of keys", curves,
                 ticks=dict(zip(DIRECTIONS, places, strict=True)))  # fmt: skip


def _means(lists: Sequence[Sequence[float]]) -> list[float]:
    return [float(f"{_mean(values):.4g}") for values in zip(*lists, strict=True)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _bracketed(values: Sequence[float], form: str) -> str:
    mean, least, most = (format(value, form) for value in spread_of(values))
    return f"{mean} [{least}, {most}]"

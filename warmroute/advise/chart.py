"""The trade-off drawn: bars in a terminal, or a PNG where matplotlib is installed."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warmroute.advise.choose import Advice
from warmroute.advise.trials import Found, Group, Trial
from warmroute.faults import Fault

_BLOCKS = " ▏▎▍▌▋▊▉█"
_BAR_MAX = 30


def bars(found: Found, advice: Advice, width: int) -> str:
    """Return a line for each length: the hit rate at its best threshold, and the share of the busiest host there."""
    rows = _best(found.trials)
    names = [name(trial.group) for trial in rows]
    wide = max(map(len, [*names, "all caches in one"]))
    bar = min(_BAR_MAX, max(8, (width - wide - 24) // 2))
    most = max([found.pooled, *(trial.figures.hit_rate for trial in rows)]) or 1.0
    lines = [f"{'PrefixLength'.ljust(wide)}  {'hit rate, best threshold'.ljust(bar + 8)}  busiest host, even is "
             f"{1 / found.hosts:.1%}"]  # fmt: skip
    for label, trial in zip(names, rows, strict=True):
        hit, busiest = trial.figures.hit_rate, trial.figures.busiest
        mark = " <" if trial.group == advice.trial.group else ""
        lines.append(
            f"{label.ljust(wide)}  {_bar(hit / most, bar)} {hit:6.1%}   {_bar(busiest, bar)} {busiest:6.1%}{mark}"
        )
    lines.append(f"{'all caches in one'.ljust(wide)}  {_bar(found.pooled / most, bar)} {found.pooled:6.1%}")
    return "\n".join(line.rstrip() for line in lines)


def name(group: Group) -> str:
    """Return a group's lengths as a range."""
    first, last = group.lengths[0], group.lengths[-1]
    return f"{first:,}" if first == last else f"{first:,}-{last:,}"


def wrapped(text: str, width: int, mark: str) -> str:
    return textwrap.fill(text, width, initial_indent=mark, subsequent_indent=" " * len(mark))


def plot(found: Found, path: Path) -> None:
    """Write a PNG. Raises Fault where matplotlib is not installed or the file cannot be written."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Fault("--plot needs matplotlib, which is not installed; install it, or leave --plot out") from None
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    hits, shares = figure.subplots(1, 2)
    _hit_rates(hits, found)
    _shares(shares, found)
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise Fault(f"{path} cannot be written: {error.strerror}") from None


def _hit_rates(axes: Any, found: Found) -> None:
    for threshold in sorted({trial.threshold for trial in found.trials}):
        some = [trial for trial in found.trials
                if trial.threshold == threshold or (trial.and_above and trial.threshold < threshold)]  # fmt: skip
        points = [(length, trial.figures.hit_rate) for trial in some for length in trial.group.lengths]
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=f"threshold {threshold}")
    for value, label, style in ((found.pooled, "all caches in one", "-"), (found.random.hit_rate, "RANDOM", ":"),
                                (found.least_outstanding.hit_rate, "LEAST_OUTSTANDING", "--")):  # fmt: skip
        axes.axhline(value, color="grey", linestyle=style, label=label)
    _lengths(axes, "prompt tokens found in a cache")
    axes.legend(fontsize="small")


def _shares(axes: Any, found: Found) -> None:
    shares = [(length, trial.group.largest, trial.figures.busiest)
              for trial in _best(found.trials) for length in trial.group.lengths]  # fmt: skip
    lengths, largest, busiest = zip(*sorted(shares), strict=True)
    axes.plot(lengths, largest, marker="o", label="largest group")
    axes.plot(lengths, busiest, marker="o", label="busiest host, best threshold")
    axes.axhline(1 / found.hosts, color="grey", linestyle=":", label="even share")
    _lengths(axes, "share of the requests")
    axes.legend(fontsize="small")


def _lengths(axes: Any, what: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xlabel("PrefixLength")
    axes.set_ylabel(what)
    axes.set_ylim(bottom=0)


def _best(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trial of each group with the highest hit rate."""
    groups = dict.fromkeys(trial.group for trial in trials)
    return [max((trial for trial in trials if trial.group == group), key=lambda trial: trial.figures.hit_rate)
            for group in groups]  # fmt: skip


def _bar(share: float, width: int) -> str:
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    return ("█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()).ljust(width)

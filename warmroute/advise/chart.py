"""The trade-off drawn: bars in a terminal, or a PNG where matplotlib is installed."""

import importlib.util
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warmroute.advise.choose import Advice
from warmroute.advise.trials import Found, Group, Trial
from warmroute.faults import Fault

_BLOCKS = " ▏▎▍▌▋▊▉█"
_BAR_MAX = 30
_TICKS = (1024, 4096, 16384, 65536)


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


def check_plot(path: Path) -> None:
    """Raise Fault where plot() would fail, before minutes of work."""
    if importlib.util.find_spec("matplotlib") is None:
        raise Fault("--plot needs matplotlib, which is not installed; install it, or leave --plot out")
    if not path.parent.is_dir():
        raise Fault(f"{path} cannot be written: there is no directory {path.parent}")


def plot(found: Found, path: Path) -> None:
    """Write a PNG. Raises Fault when the file cannot be written."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5), layout="constrained")
    hits, shares = figure.subplots(1, 2)
    _hit_rates(hits, found)
    _shares(shares, found)
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise Fault(f"{path} cannot be written: {error.strerror}") from None


def _hit_rates(axes: Any, found: Found) -> None:
    several = [trial.threshold for trial in found.trials]
    # One that was tried at one length only, where that length funnels, is a point in the table, not a curve.
    for threshold in sorted({one for one in several if several.count(one) > 1} or set(several)):
        some = [trial for trial in found.trials
                if trial.threshold == threshold or (trial.and_above and trial.threshold < threshold)]  # fmt: skip
        points = [(length, trial.figures.hit_rate) for trial in some for length in trial.group.lengths]
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=f"threshold {threshold}")
    for value, label, style in ((found.pooled, "all caches in one", "-"), (found.random.hit_rate, "RANDOM", ":"),
                                (found.least_outstanding.hit_rate, "LEAST_OUTSTANDING", "--")):  # fmt: skip
        axes.axhline(value, color="grey", linestyle=style, label=label)
    _lengths(axes, "prompt tokens found in a cache")
    axes.legend(fontsize="small", frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _shares(axes: Any, found: Found) -> None:
    shares = [(length, trial.group.largest, trial.figures.busiest)
              for trial in _best(found.trials) for length in trial.group.lengths]  # fmt: skip
    lengths, largest, busiest = zip(*sorted(shares), strict=True)
    axes.plot(lengths, largest, marker="o", label="largest group")
    axes.plot(lengths, busiest, marker="o", label="busiest host, best threshold")
    axes.axhline(1 / found.hosts, color="grey", linestyle=":", label="even share")
    _lengths(axes, "share of the requests")
    axes.legend(fontsize="small", frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _lengths(axes: Any, what: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(_TICKS, [f"{tick:,}" for tick in _TICKS])
    axes.set_xlim(_TICKS[0] / 1.1, _TICKS[-1] * 1.1)
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

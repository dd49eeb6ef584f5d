"""Plots as data, and drawing them: what a results file says is all that a picture shows."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0b6e99", "#d9730d", "#6b6b6b", "#448361", "#9065b0", "#c14c8a")
"""By the order of a panel's curves."""
_WIDTH, _HEIGHT, _DPI = 5.0, 3.7, 110
"""Of a panel, in inches; points an inch."""


class Curve(Struct, frozen=True, forbid_unknown_fields=True):
    """Points in order of x. ``shape``: joined, as stairs (a value holds until the next x), as bars side by side with
    those of other curves, or a dashed line for a bound of the curve before it."""

    label: str
    x: list[float]
    y: list[float]
    shape: Literal["line", "stairs", "bars", "dashed"] = "line"


class Bar(Struct, frozen=True, forbid_unknown_fields=True):
    """A bar that lies, with words at both ends. ``is_ours``: stands out."""

    label: str
    value: float
    text: str
    is_ours: bool = False


class Panel(Struct, frozen=True, forbid_unknown_fields=True):
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    curves: list[Curve]
    log_x: bool = False
    y_from_zero: bool = True
    marks: list[float] = field(default_factory=list)
    """Where on x something happened: a dotted upright line each."""
    ticks: dict[str, float] = field(default_factory=dict)
    """Words on the x axis and where they stand; none: numbers."""
    bars: list[Bar] = field(default_factory=list)
    """From top to bottom, in place of curves."""


class Plot(Struct, frozen=True, forbid_unknown_fields=True):
    """One picture: panels from left to right, then down. ``name`` is unique in its part."""

    name: str
    caption: str
    panels: list[Panel]

    def file_name(self, part: str) -> str:
        return f"{part}-{self.name}.png"


def draw(plot: Plot, path: Path) -> None:
    """Write ``plot`` as PNG: the same bytes for the same plot and versions of the libraries."""
    # Late: everything else of a part works without it.
    from matplotlib.figure import Figure

    columns = min(len(plot.panels), 2 if len(plot.panels) == 4 else 3)
    rows = -(-len(plot.panels) // columns)
    figure = Figure(figsize=(_WIDTH * columns, _HEIGHT * rows), dpi=_DPI, layout="constrained")
    for number, panel in enumerate(plot.panels):
        _draw_panel(figure.add_subplot(rows, columns, number + 1), panel)
    figure.savefig(path, metadata={"Software": None})


def _draw_panel(axes: "Axes", panel: Panel) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    if panel.bars:
        _draw_bars(axes, panel.bars)
    else:
        _draw_curves(axes, panel)
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.x_label, fontsize=9)
    axes.set_ylabel(panel.y_label, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if panel.log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
    if panel.y_from_zero and not panel.bars:
        axes.set_ylim(bottom=0)
    if panel.ticks:
        axes.set_xticks(list(panel.ticks.values()), list(panel.ticks))
    for at in panel.marks:
        axes.axvline(at, color="black", linestyle=":", linewidth=1)
    if len(panel.curves) > 1:
        axes.legend(fontsize=8, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.18))


def _draw_curves(axes: "Axes", panel: Panel) -> None:
    bars = [curve for curve in panel.curves if curve.shape == "bars"]
    width = 0.8 / max(1, len(bars))
    seen = 0
    for curve in panel.curves:
        # A dashed one is about the one before it.
        seen += curve.shape != "dashed"
        colour = COLOURS[(seen - 1) % len(COLOURS)]
        if curve.shape == "bars":
            offset = (bars.index(curve) - (len(bars) - 1) / 2) * width
            axes.bar([x + offset for x in curve.x], curve.y, width, label=curve.label, color=colour)
        elif curve.shape == "stairs":
            axes.step(curve.x, curve.y, where="post", label=curve.label, color=colour, linewidth=1.5)
        elif curve.shape == "dashed":
            axes.plot(curve.x, curve.y, label=curve.label, color=colour, linewidth=1, linestyle="--")
        else:
            axes.plot(curve.x, curve.y, label=curve.label, color=colour, linewidth=1.5)


def _draw_bars(axes: "Axes", bars: list[Bar]) -> None:
    colours = [COLOURS[0] if bar.is_ours else "#b8b8b8" for bar in bars]
    drawn = axes.barh(range(len(bars)), [bar.value for bar in bars], 0.7, color=colours)
    axes.bar_label(drawn, [bar.text for bar in bars], padding=3, fontsize=8)
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.invert_yaxis()
    # Room for the words at the longest one's end.
    axes.set_xlim(right=1.35 * max(bar.value for bar in bars))

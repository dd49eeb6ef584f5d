"""Tables, sentences and plots that are made of what was found. Pure."""

from collections.abc import Iterable, Iterator

from benchmarks.plot import Curve, Panel, Plot
from benchmarks.result import Table
from benchmarks.trace.cells import LARGE, SMALL, THRESHOLD, Found, best
from benchmarks.trace.replay import PREFIX_AWARE, Cell, Spread

TARGET = 0.75
"""Of the bound, that PREFIX_AWARE is to reach at its best PrefixLength."""
SHOWN = {
    "block_hit_rate": ".1%", "token_hit_rate": ".1%", "ttft_p50_ms": ",.0f", "ttft_p90_ms": ",.0f",
    "ttft_p99_ms": ",.0f", "overflow": ".1%", "saturated": ".1%", "share_most": ".1%", "in_flight_most": ".0f",
}  # fmt: skip
HEAD = ["blocks found", "of the bound", "tokens found", "TTFT p50, ms", "p90", "p99", "overflow", "all saturated",
        "busiest host", "most in flight"]  # fmt: skip


def tables(found: Found) -> list[Table]:
    return [_bounds(found), _lengths(found), _thresholds(found), _small(found), _halves(found)]


def _bounds(found: Found) -> Table:
    return Table(
        name="bounds",
        caption=f"What caches can find in the trace: {found.requests:,} requests in {found.seconds / 60:.0f} minutes.",
        columns=["cache", "blocks of 512 tokens found", "tokens found"],
        rows=[
            ["one, without bounds", f"{found.block_bound:.1%}", f"{found.token_bound:.1%}"],
            [f"one, as large as all hosts' at {LARGE:,} blocks", "", f"{found.pooled:.1%}"],
        ],
    )


def _lengths(found: Found) -> Table:
    rows = [[cell.strategy, "", "", "", *_figures(found, spread)] for cell, spread in plain(found, LARGE)]
    rows += [
        [PREFIX_AWARE, f"{cell.prefix_length:,}", f"{found.groups[cell.prefix_length][0]:,}",
         f"{found.groups[cell.prefix_length][1]:.1%}", *_figures(found, spread)]
        for cell, spread in by_length(found)
    ]  # fmt: skip
    return Table(
        name="lengths",
        caption=f"The whole trace, {LARGE:,} blocks of cache a host, ConcurrencyThreshold {THRESHOLD}. Means over the "
        "seeds and, of the blocks found, the least and the most of a seed.",
        columns=["strategy", "PrefixLength", "groups", "largest", *HEAD],
        rows=rows,
    )


def _thresholds(found: Found) -> Table:
    cells = [(cell, spread) for cell, spread in _whole(found, LARGE) if cell.prefix_length in
             found.size.threshold_lengths and cell.threshold in found.size.thresholds]  # fmt: skip
    cells.sort(key=lambda pair: (pair[0].prefix_length, pair[0].threshold))
    return Table(
        name="thresholds",
        caption=f"PREFIX_AWARE at several thresholds, {LARGE:,} blocks of cache a host: a PrefixLength within the "
        "block that all requests share, and one beyond it. Means over the seeds.",
        columns=["PrefixLength", "ConcurrencyThreshold", *HEAD],
        rows=[[f"{cell.prefix_length:,}", f"{cell.threshold:,}", *_figures(found, spread)] for cell, spread in cells],
    )


def _small(found: Found) -> Table:
    cells = [*plain(found, SMALL), *(pair for pair in _whole(found, SMALL) if pair[0].strategy == PREFIX_AWARE)]
    return Table(
        name="small-cache",
        caption=f"With {SMALL:,} blocks of cache a host, ConcurrencyThreshold {THRESHOLD}. Means over the seeds.",
        columns=["strategy", "PrefixLength", *HEAD],
        rows=[[cell.strategy, f"{cell.prefix_length:,}" if cell.prefix_length else "", *_figures(found, spread)]
              for cell, spread in cells],
    )  # fmt: skip


def _halves(found: Found) -> Table:
    advised, cells = found.advised, second(found)
    most = best(cells)[1]["token_hit_rate"][0]
    return Table(
        name="advice",
        caption="`warmroute advise` on the first half of the trace recommends PrefixLength "
        f"{advised.prefix_length:,} and ConcurrencyThreshold {advised.threshold}. The second half, from cold caches, "
        "at that threshold; means over the seeds.",
        columns=["PrefixLength", "recommended", "blocks found", "tokens found", "points below the best"],
        rows=[
            [f"{cell.prefix_length:,}", "yes" if cell.prefix_length == advised.prefix_length else "",
             _bracketed(spread["block_hit_rate"]), f"{spread['token_hit_rate'][0]:.1%}",
             f"{100 * (most - spread['token_hit_rate'][0]):.1f}"]
            for cell, spread in cells
        ],
    )  # fmt: skip


def findings(found: Found) -> Iterator[str]:
    """Yield what the tables say."""
    cell, spread = best(by_length(found))
    mean, least, most = (value / found.block_bound for value in spread["block_hit_rate"])
    reached = "reaches" if mean >= TARGET else "does not reach"
    yield (
        f"PREFIX_AWARE at its best PrefixLength, {cell.prefix_length:,}, finds {spread['block_hit_rate'][0]:.1%} of "
        f"the blocks, {mean:.1%} of the bound ({least:.1%} to {most:.1%} over the seeds): it {reached} the "
        f"{TARGET:.0%} asked for. In tokens it is {spread['token_hit_rate'][0]:.1%} of {found.token_bound:.1%}; one "
        f"cache as large as all hosts' together finds {found.pooled:.1%}."
    )
    plain_best = best(plain(found, LARGE))
    yield (
        f"The other strategies find at most {plain_best[1]['block_hit_rate'][0]:.1%} ({plain_best[0].strategy}). "
        f"Median time to first token: {spread['ttft_p50_ms'][0]:,.0f} ms against "
        f"{plain_best[1]['ttft_p50_ms'][0]:,.0f} ms."
    )
    for wrong, of in _wrong(found):
        yield (
            f"A PrefixLength of {wrong.prefix_length:,} is within what all requests share: one home for all. It "
            f"finds {of['block_hit_rate'][0]:.1%} at ConcurrencyThreshold {wrong.threshold:,}, with "
            f"{of['share_most'][0]:.1%} of the requests on the busiest host, a median time to first token of "
            f"{of['ttft_p50_ms'][0]:,.0f} ms and a p90 of {of['ttft_p90_ms'][0]:,.0f} ms."
        )
    yield _advice(found)


def _wrong(found: Found) -> list[tuple[Cell, Spread]]:
    return sorted(((cell, spread) for cell, spread in _whole(found, LARGE)
                   if cell.prefix_length == found.size.threshold_lengths[0] and found.groups[cell.prefix_length][0] == 1
                   and cell.threshold in (THRESHOLD, found.size.thresholds[-1])),
                  key=lambda pair: pair[0].threshold)  # fmt: skip


def _advice(found: Found) -> str:
    cells, advised = second(found), found.advised
    most = max(spread["token_hit_rate"][0] for _, spread in cells)
    got = next(spread for cell, spread in cells if cell.prefix_length == advised.prefix_length)["token_hit_rate"][0]
    within = "within" if most - got <= 0.01 else "not within"
    return (
        f"Advice on the first half is {within} one point of the best on the second: {got:.1%} of the tokens against "
        f"{most:.1%}. Predicted for the first half were {advised.hit_rate:.1%}."
    )


def plots(found: Found) -> list[Plot]:
    pairs = by_length(found)
    lengths = [float(cell.prefix_length) for cell, _ in pairs]
    others = plain(found, LARGE)

    def curves(figure: str) -> list[Curve]:
        ours = Curve(PREFIX_AWARE, lengths, [_short(spread[figure][0]) for _, spread in pairs])
        level = [Curve(cell.strategy, lengths, [_short(spread[figure][0])] * len(lengths)) for cell, spread in others]
        return [ours, *level]

    bound = Curve("one cache without bounds", lengths, [_short(found.block_bound)] * len(lengths), "dashed")
    ticks = {f"{int(length) // 1024}Ki": length for length in lengths if length in (1024, 4096, 16384, 65536)}

    def panel(title: str, unit: str, shown: list[Curve]) -> Panel:
        return Panel(title, "PrefixLength", unit, shown, log_x=True, ticks=ticks)

    caption = f"The trace at each PrefixLength, {LARGE:,} blocks of cache a host, ConcurrencyThreshold {THRESHOLD}. "
    return [
        Plot("lengths", caption + "Means over the seeds.", [
            panel("blocks found in a cache", "share of the blocks", [*curves("block_hit_rate"), bound]),
            panel("median time to first token", "ms", curves("ttft_p50_ms")),
        ])
    ]  # fmt: skip


def by_length(found: Found) -> list[tuple[Cell, Spread]]:
    """Return the cells of PREFIX_AWARE on the whole trace with large caches at THRESHOLD."""
    return [(cell, spread) for cell, spread in _whole(found, LARGE)
            if cell.strategy == PREFIX_AWARE and cell.threshold == THRESHOLD]  # fmt: skip


def plain(found: Found, cache: int) -> list[tuple[Cell, Spread]]:
    return [pair for pair in _whole(found, cache) if pair[0].strategy != PREFIX_AWARE]


def second(found: Found) -> list[tuple[Cell, Spread]]:
    return [pair for pair in found.cells.items() if pair[0].second_half]


def _whole(found: Found, cache: int) -> Iterable[tuple[Cell, Spread]]:
    return [(cell, spread) for cell, spread in found.cells.items()
            if cell.cache_blocks == cache and not cell.second_half]  # fmt: skip


def _figures(found: Found, spread: Spread) -> list[str]:
    shown = {name: format(spread[name][0], how) for name, how in SHOWN.items()}
    of_bound = f"{spread['block_hit_rate'][0] / found.block_bound:.1%}"
    return [_bracketed(spread["block_hit_rate"]), of_bound, *list(shown.values())[1:]]


def _bracketed(values: tuple[float, float, float]) -> str:
    mean, least, most = (f"{value:.1%}" for value in values)
    return f"{mean} [{least}, {most}]"


def _short(value: float) -> float:
    return float(f"{value:.4g}")

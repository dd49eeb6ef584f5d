"""The tables and sentences that are made of what was found. Pure."""

from collections.abc import Iterator

from benchmarks.announcement import theirs
from benchmarks.announcement.cells import CLIENTS_PER_HOST, HOSTS, LONG, SHORT, THRESHOLD, Cell, Context
from benchmarks.announcement.measure import Found, Measured
from benchmarks.announcement.theirs import SHARES, THEIRS, TTFT_RANGE_MS, Ours, Three
from benchmarks.fleet.closed_loop import PREFIX_AWARE
from benchmarks.fleet.conversations import Api
from benchmarks.fleet.figures import Spread, spread
from benchmarks.result import Table

FORMATS = {
    "ttft_p50_ms": ",.0f", "ttft_p90_ms": ",.0f", "ttft_p99_ms": ",.0f", "hit_rate": ".3f", "reachable": ".3f",
    "requests_per_s": ".2f", "share_least": ".3f", "share_most": ".3f", "overflow": ".4f", "saturated": ".4f",
}  # fmt: skip
POINT = 1.0
"""The hit rate is at the ceiling when it is within this many points of 1 - 1/n."""
Row = tuple[str, str, list[str], str, str]
"""(what, theirs, ours by API, ours with the rest of the TTFT or nothing, at least theirs)."""
MET, MISSED, FITTED, NOT_TOLD = "yes", "no", "fitted", "–"
BY_LOAD = "yes, by the choice of load"


def announcement(found: Found) -> Table:
    """The announcement's table, theirs beside ours."""
    rest = theirs.rest_ms(found)
    rows = [row for context in (LONG, SHORT) for row in _rows(found, context)]
    return Table(
        name="announcement",
        caption="PREFIX_AWARE against RANDOM on 7 hosts. Ours: mean over the seeds and, in brackets, the least and the "
        f"most of a seed. The last column but one adds {rest:.0f} ms to each TTFT of the native API for what the model "
        "leaves out (network, HTTP servers, tokenizer): the least P50 of both is the same then.",
        columns=["", "theirs", *(f"ours, {api.value} API" for api in Api), f"ours + {rest:.0f} ms", "at least theirs"],
        rows=[[what, them, *us, more, verdict] for what, them, us, more, verdict in rows],
    )


def _rows(found: Found, context: Context) -> Iterator[Row]:
    them = THEIRS[context.name]
    native, openai = (theirs.ours(found, context, api) for api in Api)
    both = (native, openai)

    def row(what: str, name: str, said: tuple[float, float] | None = None, rest: str = "") -> Row:
        values: list[Three] = [getattr(one, name) for one in both]
        more = _bracketed(getattr(native, rest), ".1f", "%") if rest else ""
        shown = [_bracketed(value, ".1f", "%") for value in values]
        verdict = _verdict(all(value[0] >= said[0] for value in values)) if said else NOT_TOLD
        return f"{context.name}: {what}", _range(said) if said else NOT_TOLD, shown, more, verdict

    yield row("TTFT P50, lower by", "p50_cut", said=them.p50_cut, rest="p50_cut_with_rest")
    what, said, shown, more, verdict = row(
        "TTFT P90, lower by", "p90_cut", said=them.p90_cut, rest="p90_cut_with_rest"
    )  # fmt: skip
    # With fewer clients it is not: cells.py.
    yield what, said, shown, more, BY_LOAD if context == LONG and verdict == MET else verdict
    yield row("TTFT P99, lower by", "p99_cut", rest="p99_cut_with_rest")
    yield row("throughput, higher by", "gain", said=them.gain)
    fitted = [_bracketed(one.hit_random, ".1f", "%") for one in both]
    yield f"{context.name}: hit rate, RANDOM", f"about {them.hit_random:g}%", fitted, "", FITTED
    yield _hits(context, them.hit_prefix, both)
    yield _shares(found, context)
    yield row("overflow", "overflow")
    yield row("all at the threshold", "saturated")


def _verdict(met: bool) -> str:
    return MET if met else MISSED


def _hits(context: Context, said: float, both: tuple[Ours, Ours]) -> Row:
    least = said
    what = f"{context.name}: hit rate, PREFIX_AWARE"
    if context == LONG:
        ceiling = theirs.ceilings(theirs.n_of_long(), HOSTS)[0]
        least, what = ceiling - POINT, f"{what} (1 - 1/n: {ceiling:.1f}%)"
    values = [one.hit_prefix for one in both]
    met = all(value[0] >= least for value in values)
    return what, f"about {said:g}%", [_bracketed(value, ".1f", "%") for value in values], "", _verdict(met)


def _shares(found: Found, context: Context) -> Row:
    of = {cell.api: theirs.shares(runs) for cell, runs in found.announced()
          if cell.context == context and cell.strategy == PREFIX_AWARE}  # fmt: skip
    met = all(SHARES[0] <= least[0] and most[0] <= SHARES[1] for least, most in of.values())
    shown = ["–".join(_bracketed(share, ".1f", "%") for share in of[api]) for api in Api]
    return f"{context.name}: share of a host, least–most", f"{_range(SHARES)}", shown, "", _verdict(met)


def cells(found: Found) -> Table:
    """One row a configuration."""
    return Table(
        name="cells",
        caption="Every configuration: mean over the seeds and, in brackets, the least and the most of a seed. "
        "Reachable: what an earlier request left in some host's cache. Cold caches at the start are in the figures.",
        columns=["context", "API", "strategy", *(key.replace("_", " ") for key in FORMATS)],
        rows=[
            [cell.context.name, cell.api.value, cell.strategy, *_figures(spread([one.figures for one in runs]))]
            for cell, runs in found.announced()
        ],
    )


def sweep(found: Found, name: str) -> Table:
    """One row a value: PREFIX_AWARE against RANDOM as far as that depends on the value."""
    rows = [_sweep_row(name, value, random, prefix) for value, random, prefix in pairs(found, name)]
    return Table(
        name=f"sweep-{name.replace(' ', '-')}",
        caption=f"Long context, native API, by {name}; else {CLIENTS_PER_HOST} clients a host, threshold {THRESHOLD}. "
        "Means over the seeds. Perfect caches: 1 - 1/n and 1 - 7 (1 - (6/7)^n) / n, of requests.",
        columns=[name, "hit rate, RANDOM", "perfect", "hit rate, PREFIX_AWARE", "perfect", "TTFT P50 lower by, %",
                 "TTFT P90 lower by, %", "throughput higher by, %", "TTFT P90, ms", "most share", "overflow",
                 "all at the threshold"],
        rows=rows,
    )  # fmt: skip


def pairs(found: Found, name: str) -> Iterator[tuple[float, list[Measured], list[Measured]]]:
    """Yield (value, runs with RANDOM, runs with PREFIX_AWARE) of a sweep, in order of value."""
    of: dict[float, dict[str, list[Measured]]] = {}
    for cell, runs in found.swept(name):
        of.setdefault(cell.value, {})[cell.strategy] = runs
    alone = next(runs for cell, runs in found.swept("n")
                 if cell.strategy == "RANDOM" and cell.value == max(_values(found, "n"), key=_from_point))  # fmt: skip
    for value in sorted(of):
        # The threshold means nothing to RANDOM, so its runs are those of the point that is swept around.
        yield value, of[value].get("RANDOM", alone), of[value][PREFIX_AWARE]


def _values(found: Found, name: str) -> list[float]:
    return [cell.value for cell, _ in found.swept(name)]


def _from_point(n: float) -> float:
    return -abs(n - theirs.n_of_long())


def _sweep_row(name: str, value: float, random: list[Measured], prefix: list[Measured]) -> list[str]:
    compared = theirs.compare(random, prefix)
    of = spread([one.figures for one in prefix])
    best, scattered = theirs.ceilings(value if name == "n" else theirs.n_of_long(), HOSTS)
    return [
        f"{value:g}", f"{compared.hit_random[0]:.1f}%", f"{scattered:.1f}%", f"{compared.hit_prefix[0]:.1f}%",
        f"{best:.1f}%", f"{compared.p50_cut[0]:.1f}", f"{compared.p90_cut[0]:.1f}", f"{compared.gain[0]:.1f}",
        f"{of['ttft_p90_ms'][0]:,.0f}", f"{of['share_most'][0]:.3f}", f"{of['overflow'][0]:.4f}",
        f"{of['saturated'][0]:.4f}",
    ]  # fmt: skip


def findings(found: Found) -> Iterator[str]:
    """Yield what the tables say, and where PREFIX_AWARE or the product is behind."""
    rows = announcement(found).rows
    missed = [row[0] for row in rows if row[-1] == MISSED]
    told = sum(row[-1] in (MET, MISSED) for row in rows)
    count = f"{told - len(missed)} of {told}"
    yield f"Of the announcement's figures that the workload was not fitted to or chosen by, {count} are met" + (
        f"; not: {'; '.join(missed)}." if missed else "."
    )
    rest = theirs.rest_ms(found)
    short = [f"{context.name}: {words}" for context in (LONG, SHORT) for words in _short_with_rest(found, context)]
    yield f"With {rest:.0f} ms added to each TTFT for what the model leaves out, " + (
        f"these are below the announcement's: {'; '.join(short)}." if short else "all are met, too."
    )
    least, most = theirs.p50s(found)
    yield (
        f"P50 of TTFT lies between {least:.0f} and {most:.0f} ms over the configurations with RANDOM and PREFIX_AWARE; "
        f"the announcement has {TTFT_RANGE_MS[0]:.0f} to {TTFT_RANGE_MS[1]:.0f} ms."
    )
    runs = next(runs for cell, runs in found.announced() if cell == Cell("", 0, LONG, Api.NATIVE, PREFIX_AWARE))
    chance = theirs.chance_points(spread([one.figures for one in runs])["requests"][0], HOSTS)
    yield (
        f"Shares of hosts differ by the chance of which prefixes are at home where: {chance:.2f} points, one standard "
        f"deviation, for as many prefixes as the long context has; the announcement's range is "
        f"{(SHARES[1] - SHARES[0]) / 2 / chance:.1f} of these to either side."
    )
    for context in (LONG, SHORT):
        behind = list(_behind(found, context))
        yield f"{context.name} context, native API: another strategy is better than PREFIX_AWARE in " + (
            "; ".join(behind) if behind else "no figure") + "."  # fmt: skip


def _short_with_rest(found: Found, context: Context) -> Iterator[str]:
    """Yield which figures the announcement has better once what the model leaves out is added."""
    us, them = theirs.ours(found, context, Api.NATIVE), THEIRS[context.name]
    for what, ours, said in (("P50", us.p50_cut_with_rest, them.p50_cut), ("P90", us.p90_cut_with_rest, them.p90_cut)):
        if ours[0] < said[0]:
            yield f"TTFT {what} lower by {ours[0]:.1f}%, theirs {_range(said)}"


def _behind(found: Found, context: Context) -> Iterator[str]:
    """Yield in which figures another strategy is better."""
    better = {"ttft_p50_ms": min, "ttft_p90_ms": min, "ttft_p99_ms": min, "hit_rate": max, "requests_per_s": max,
              "share_most": min}  # fmt: skip
    of = {cell.strategy: spread([one.figures for one in runs]) for cell, runs in found.announced()
          if cell.context == context and cell.api is Api.NATIVE}  # fmt: skip
    for key, best_of in better.items():
        means = {strategy: figures[key][0] for strategy, figures in of.items()}
        best = best_of(means, key=means.__getitem__)
        if best != PREFIX_AWARE:
            mine, other = (format(means[name], FORMATS[key]) for name in (PREFIX_AWARE, best))
            yield f"{key.replace('_', ' ')} ({best} {other}, PREFIX_AWARE {mine})"


def _figures(figures: Spread) -> list[str]:
    return [_bracketed(figures[key], FORMATS[key], "") for key in FORMATS]


def _bracketed(of: Three, form: str, unit: str) -> str:
    mean, least, most = (format(value, form) for value in of)
    return f"{mean}{unit} [{least}, {most}]"


def _range(of: tuple[float, float]) -> str:
    return f"{of[0]:g}–{of[1]:g}%"

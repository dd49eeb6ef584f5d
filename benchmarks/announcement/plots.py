"""The plots that are made of what was found. Pure."""

from collections.abc import Iterator, Sequence

from benchmarks.announcement import theirs
from benchmarks.announcement.cells import HOSTS, LONG, SHORT, Context
from benchmarks.announcement.measure import QUANTILES, Found, Measured, windows
from benchmarks.announcement.tables import pairs
from benchmarks.announcement.theirs import SHARES
from benchmarks.fleet.conversations import Api
from benchmarks.plot import Curve, Panel, Plot


def plots(found: Found) -> list[Plot]:
    return [
        Plot("ttft", "Time to first token, native API: share of the requests at or below it. Mean over the seeds.",
             [_ttft(found, context) for context in (LONG, SHORT)]),
        Plot("hit-rate", "Prompt tokens found in a cache over time, from cold caches, native API. Mean over the seeds.",
             [_hit_rate(found, context) for context in (LONG, SHORT)]),
        Plot("shares", "Share of the requests that each host got, from the least busy to the busiest, native API. "
             f"Mean over the seeds; dashed: the announcement's {SHARES[0]} and {SHARES[1]}%.",
             [_shares(found, context) for context in (LONG, SHORT)]),
        Plot("sweeps", "Long context, native API, PREFIX_AWARE against RANDOM around the announcement's point. "
             "Means over the seeds; dashed: perfect caches.",
             [_by_n(found), _by_load(found, "clients per host"), _by_load(found, "answer tokens"),
              _by_threshold(found)]),
    ]  # fmt: skip


def _strategies(found: Found, context: Context) -> Iterator[tuple[str, list[Measured]]]:
    return ((cell.strategy, runs) for cell, runs in found.announced()
            if cell.context == context and cell.api is Api.NATIVE)  # fmt: skip


def _mean(lists: Sequence[Sequence[float]]) -> list[float]:
    return [_short(sum(values) / len(values)) for values in zip(*lists, strict=True)]


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _ttft(found: Found, context: Context) -> Panel:
    shares = [(step + 1) / QUANTILES for step in range(QUANTILES)]
    curves = [Curve(strategy, _mean([one.ttft_ms for one in runs]), shares)
              for strategy, runs in _strategies(found, context)]  # fmt: skip
    return Panel(f"{context.name} context", "time to first token, ms", "share of requests", curves, log_x=True)


def _hit_rate(found: Found, context: Context) -> Panel:
    curves = []
    for strategy, runs in _strategies(found, context):
        rates = _mean([one.hit_rates for one in runs])
        minutes = windows(context.seconds * found.size.time_share) / 60
        curves.append(Curve(strategy, [_short(minutes * (place + 1)) for place in range(len(rates))], rates))
    return Panel(f"{context.name} context", "minutes", "hit rate", curves)


def _shares(found: Found, context: Context) -> Panel:
    hosts = [float(place + 1) for place in range(HOSTS)]
    curves = [Curve(strategy, hosts, _mean([one.shares for one in runs]), "bars")
              for strategy, runs in _strategies(found, context)]  # fmt: skip
    bounds = [Curve(f"{share}%", [0.5, HOSTS + 0.5], [share / 100] * 2, "dashed") for share in SHARES]
    return Panel(f"{context.name} context", "host, by share", "share of requests", [*curves, *bounds])


def _by_n(found: Found) -> Panel:
    values, random, prefix, ceilings = [], [], [], []
    for value, before, after in pairs(found, "n"):
        compared = theirs.compare(before, after)
        values.append(value)
        random.append(_short(compared.hit_random[0]))
        prefix.append(_short(compared.hit_prefix[0]))
        ceilings.append(theirs.ceilings(value, HOSTS))
    curves = [
        Curve("PREFIX_AWARE", values, prefix),
        Curve("1 - 1/n", values, [_short(best) for best, _ in ceilings], "dashed"),
        Curve("RANDOM", values, random),
        Curve("1 - 7(1 - (6/7)^n)/n", values, [_short(scattered) for _, scattered in ceilings], "dashed"),
    ]
    return Panel("requests of a prefix, n", "n", "hit rate, %", curves)


def _by_load(found: Found, name: str) -> Panel:
    values: list[float] = []
    rows: dict[str, list[float]] = {"TTFT P50 lower by": [], "TTFT P90 lower by": [], "throughput higher by": []}
    for value, before, after in pairs(found, name):
        compared = theirs.compare(before, after)
        values.append(value)
        for row, of in zip(rows.values(), (compared.p50_cut, compared.p90_cut, compared.gain), strict=True):
            row.append(_short(of[0]))
    return Panel(name, name, "%", [Curve(label, values, row) for label, row in rows.items()])


def _by_threshold(found: Found) -> Panel:
    values: list[float] = []
    rows: dict[str, list[float]] = {"hit rate": [], "overflow": [], "all at the threshold": [], "most share": []}
    for value, _, after in pairs(found, "threshold"):
        figures = [one.figures for one in after]
        values.append(value)
        rows["hit rate"].append(_short(sum(one.hit_rate for one in figures) / len(figures)))
        rows["overflow"].append(_short(sum(one.overflow for one in figures) / len(figures)))
        rows["all at the threshold"].append(_short(sum(one.saturated for one in figures) / len(figures)))
        rows["most share"].append(_short(sum(one.share_most for one in figures) / len(figures)))
    return Panel("ConcurrencyThreshold", "threshold", "share", [Curve(name, values, row) for name, row in rows.items()])

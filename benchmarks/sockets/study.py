"""The part ``sockets``: run each case in both worlds and hold the figures against each other."""

import asyncio
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fleet.closed_loop import run as run_virtual
from benchmarks.fleet.figures import figures, spread_of
from benchmarks.fleet.fleet import percentile
from benchmarks.fleet.parallel import cpu_seconds
from benchmarks.result import Result, Table, Value, machine_facts
from benchmarks.sockets.case import CLIENTS, HOSTS, KIND, PREFIX_LENGTH, PROFILE, QUICK, THRESHOLD, WHOLE, Case, Size
from benchmarks.sockets.load import Seen, load
from benchmarks.sockets.product import product, served

HIT_POINTS, TTFT_SHARE = 5.0, 0.15
"""They agree when the hit rates differ by no more than this and the P50 of TTFT by no more than that."""


@dataclass(frozen=True, slots=True)
class World:
    """One case in one world. Times are the engines'."""

    requests: float
    hit_rate: float
    ttft_p50_ms: float
    ttft_p90_ms: float
    requests_per_s: float
    share_most: float


@dataclass(frozen=True, slots=True)
class Both:
    """One case in both."""

    case: Case
    sockets: World
    virtual: World
    spread: dict[str, tuple[float, float, float]]
    """Figure -> (mean, least, most) of the virtual runs."""

    @property
    def hit_points(self) -> float:
        return 100 * (self.sockets.hit_rate - self.virtual.hit_rate)

    @property
    def ttft_share(self) -> float:
        return self.sockets.ttft_p50_ms / self.virtual.ttft_p50_ms - 1

    @property
    def agree(self) -> bool:
        return abs(self.hit_points) <= HIT_POINTS and abs(self.ttft_share) <= TTFT_SHARE


def run(*, quick: bool, say: Callable[[str], None]) -> Result:
    """Measure all of it."""
    before = cpu_seconds()
    size = QUICK if quick else WHOLE
    with tempfile.TemporaryDirectory() as directory:
        seen = asyncio.run(_over_sockets(size, Path(directory), say))
    found = [compare(case, size, answers) for case, answers in seen.items()]
    return Result(
        part="sockets",
        what="The same small case in virtual time and over real sockets: clients, two workers, Redis and simulated "
        "hosts, each a process, on this machine.",
        command="python -m benchmarks sockets" + (" --quick" if quick else ""),
        quick=quick,
        machine=machine_facts("uvloop", "httptools", "hiredis"),
        seeds=[case.seed for case in size.cases],
        settings=_settings(size),
        cpu_seconds=round(cpu_seconds() - before, 1),
        tables=[_table(found, size)],
        findings=[_finding(found)],
        figures=[_record(both) for both in found],
    )


async def _over_sockets(size: Size, directory: Path, say: Callable[[str], None]) -> dict[Case, list[Seen]]:
    found = {}
    async with product(HOSTS, PROFILE.name, size.speed, directory) as (endpoint, data_url):
        for case in size.cases:
            plan = case.plan(size.real_seconds * size.speed)
            await endpoint.switch(plan.routing)
            await served(data_url)
            began = time.monotonic()
            found[case] = await load(plan, case.seed, data_url, size.real_seconds)
            taken = time.monotonic() - began
            say(f"{case.strategy}, {case.api.value} API: {len(found[case])} requests in {taken:.0f} s")
    return found


def compare(case: Case, size: Size, seen: list[Seen]) -> Both:
    """Run a case in virtual time and put what was seen over sockets beside it."""
    seconds = size.real_seconds * size.speed
    runs = [figures(run_virtual(case.plan(seconds), case.seed, dice), HOSTS, 0, seconds) for dice in range(size.dice)]
    values = {name: spread_of([getattr(one, name) for one in runs]) for name in World.__dataclass_fields__}
    return Both(
        case=case,
        sockets=_world(seen, size),
        virtual=World(**{name: of[0] for name, of in values.items()}),
        spread=values,
    )


def _world(seen: list[Seen], size: Size) -> World:
    waits = sorted(1000 * size.speed * one.ttft for one in seen)
    hosts = [one.host for one in seen]
    return World(
        requests=len(seen),
        hit_rate=sum(one.cached_tokens for one in seen) / sum(one.prompt_tokens for one in seen),
        ttft_p50_ms=percentile(waits, 0.5),
        ttft_p90_ms=percentile(waits, 0.9),
        requests_per_s=len(seen) / (size.real_seconds * size.speed),
        share_most=max(hosts.count(host) for host in set(hosts)) / len(hosts),
    )


def _table(found: list[Both], size: Size) -> Table:
    return Table(
        name="agreement",
        caption=f"Over sockets at {size.speed:g} engine seconds a second, {size.real_seconds:g} s each, against "
        f"{size.dice} virtual runs of the same conversations and hosts, which differ in the dice (mean and, in "
        "brackets, the least and the most). Times are the engines'. Agreed: hit rates within "
        f"{HIT_POINTS:g} points, P50 of TTFT within {100 * TTFT_SHARE:g}%.",
        columns=["strategy", "API", "requests", "virtual", "hit rate", "virtual", "points", "TTFT P50, ms", "virtual",
                 "%", "TTFT P90, ms", "virtual", "requests/s", "virtual", "most share", "virtual", "agree"],
        rows=[_row(both) for both in found],
    )  # fmt: skip


def _row(both: Both) -> list[str]:
    real, virtual = both.sockets, both.virtual
    return [
        both.case.strategy, both.case.api.value, f"{real.requests:.0f}", f"{virtual.requests:.0f}",
        f"{real.hit_rate:.3f}", _bracketed(both.spread["hit_rate"], ".3f"), f"{both.hit_points:+.1f}",
        f"{real.ttft_p50_ms:.0f}", _bracketed(both.spread["ttft_p50_ms"], ".0f"), f"{100 * both.ttft_share:+.1f}",
        f"{real.ttft_p90_ms:.0f}", _bracketed(both.spread["ttft_p90_ms"], ".0f"),
        f"{real.requests_per_s:.2f}", f"{virtual.requests_per_s:.2f}",
        f"{real.share_most:.3f}", f"{virtual.share_most:.3f}", "yes" if both.agree else "no",
    ]  # fmt: skip


def _bracketed(of: tuple[float, float, float], form: str) -> str:
    mean, least, most = (format(value, form) for value in of)
    return f"{mean} [{least}, {most}]"


def _finding(found: list[Both]) -> str:
    points = max(abs(both.hit_points) for both in found)
    share = max(abs(both.ttft_share) for both in found)
    p90 = max(abs(both.sockets.ttft_p90_ms / both.virtual.ttft_p90_ms - 1) for both in found)
    agreed = sum(both.agree for both in found)
    return (
        f"{agreed} of {len(found)} cases agree: hit rates differ by {points:.1f} points and P50 of TTFT by "
        f"{100 * share:.1f}% at most. P90, for which no limit is set, differs by up to {100 * p90:.0f}%."
    )


def _record(both: Both) -> dict[str, Value]:
    record: dict[str, Value] = {
        "strategy": both.case.strategy, "API": both.case.api.value, "seed": both.case.seed,
        **{f"virtual {name}, spread": [float(f"{value:.5g}") for value in of] for name, of in both.spread.items()},
    }  # fmt: skip
    for name, world in (("sockets", both.sockets), ("virtual", both.virtual)):
        for figure in World.__dataclass_fields__:
            record[f"{name} {figure}"] = float(f"{getattr(world, figure):.5g}")
    return record


def _settings(size: Size) -> dict[str, Value]:
    return {
        "engine": PROFILE.name, "hosts": len(HOSTS), "workers": 2, "clients": CLIENTS.number,
        "conversations under way for each client": CLIENTS.open,
        "requests of a prefix": [float(value) for value in KIND.per_prefix], "shared tokens": KIND.shared_tokens,
        "own tokens": KIND.own_tokens, "output tokens": KIND.output_tokens, "PrefixLength": PREFIX_LENGTH,
        "ConcurrencyThreshold": THRESHOLD, "speed": size.speed, "real seconds": size.real_seconds,
    }  # fmt: skip

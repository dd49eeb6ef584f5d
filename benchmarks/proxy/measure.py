"""One window of load on one contender, and the interleaved rounds of windows."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count, product
from statistics import median

from benchmarks.errors import BenchmarkError
from benchmarks.proxy.contenders import Contender, LeftOut
from benchmarks.proxy.load import LOADS, Door, Load, believe, check
from benchmarks.proxy.processes import Server, busy_seconds, own_seconds
from benchmarks.proxy.stage import Stage

DIRECT = "direct"
CONNECTIONS = (1, 32)
_TURNS_A_WINDOW = 10_000_000
"""Each window has turns of its own, so no prompt comes twice."""

Say = Callable[[str], None]
Cell = tuple[str, Load, int]
"""Whose, which requests, how many connections."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    rounds: int
    seconds: float
    warm_seconds: float


WHOLE, QUICK = Size(5, 0.8, 0.3), Size(1, 0.3, 0.1)


@dataclass(frozen=True, slots=True)
class Sample:
    """One window."""

    cpu_us: float
    """User and system time of all processes of the proxy, a request."""
    redis_us: float
    rate: float
    p50_us: float
    p99_us: float
    busy: float
    """Share of its core that the proxy used."""


@dataclass(slots=True)
class Runner:
    """A contender that runs."""

    contender: Contender
    server: Server
    door: Door


@dataclass(slots=True)
class Measured:
    """All samples, and what could not be measured."""

    samples: dict[Cell, list[Sample]] = field(default_factory=dict)
    memory_bytes: dict[str, int] = field(default_factory=dict)
    """At the end, after all rounds."""
    idle_share: float = 0.0
    """Of their core, that all proxies together use while nobody sends: what waiting ones take from the one measured."""
    others_share: float = 0.0
    """Of the machine, that processes of others used during the rounds: rates and latencies need a quiet one."""

    def figure(self, cell: Cell, name: str) -> tuple[float, float, float]:
        """Return (median, least, most) over the rounds."""
        return _spread([getattr(sample, name) for sample in self.samples[cell]])

    def added_us(self, cell: Cell, name: str) -> tuple[float, float, float]:
        """Return (median, least, most) of a latency less the hosts' own in the same round."""
        direct = self.samples[DIRECT, cell[1], cell[2]]
        return _spread([getattr(one, name) - getattr(bare, name)
                        for one, bare in zip(self.samples[cell], direct, strict=True)])  # fmt: skip

    def ratio(self, name: str, other: str, load: Load, connections: int) -> float:
        """Return one's CPU a request over another's: the median of the rounds' ratios."""
        pairs = zip(self.samples[name, load, connections], self.samples[other, load, connections], strict=True)
        return median(one.cpu_us / two.cpu_us for one, two in pairs)


def _spread(values: list[float]) -> tuple[float, float, float]:
    return median(values), min(values), max(values)


def start(stage: Stage, contenders: Sequence[Contender], ends: ExitStack, say: Say) -> list[Runner]:
    """Start contenders and check an answer of each kind; ``ends`` stops them. Raises BenchmarkError.

    What this machine or version does not have, and a router that fails, is noted in ``stage.left_out``.
    """
    runners = []
    for contender in contenders:
        try:
            server, door = contender.start(stage)
            ends.callback(server.stop)
            for load in LOADS:
                check(contender.name, door, load, 0)
        except LeftOut as reason:
            _leave_out(stage, contender, str(reason), say)
        except BenchmarkError as error:
            if not contender.is_router:
                raise
            _leave_out(stage, contender, str(error), say)
        else:
            runners.append(Runner(contender, server, door))
    return runners


def _leave_out(stage: Stage, contender: Contender, reason: str, say: Say) -> None:
    stage.left_out[contender.name] = reason
    say(f"left out: {contender.name}: {reason}")


def measure(stage: Stage, runners: list[Runner], loads: Sequence[Load], size: Size, say: Say) -> Measured:
    """Load each in turn, round by round, so that a noisy minute falls on all of them. Raises BenchmarkError.

    A router that answers wrongly is taken out of ``runners``, and noted.
    """
    found = Measured()
    turns = count(_TURNS_A_WINDOW, _TURNS_A_WINDOW)

    def window(runner: Runner | None, load: Load, connections: int, seconds: float) -> Sample | None:
        try:
            return _window(stage, runner, load, connections, seconds, next(turns))
        except BenchmarkError as error:
            if runner is None or not runner.contender.is_router:
                raise
            _leave_out(stage, runner.contender, str(error), say)
            runners.remove(runner)
            return None

    for load in loads:
        for runner in list(runners):
            window(runner, load, CONNECTIONS[-1], size.warm_seconds)
    found.idle_share = _idle_share(runners, size.seconds)
    began, others = time.monotonic(), _others_seconds(stage, runners)
    for number in range(size.rounds):
        for load, connections in product(loads, CONNECTIONS):
            # Whoever comes first has the coldest core, so that each does at some time.
            order = [None, *runners]
            for whose in order[number % len(order) :] + order[: number % len(order)]:
                if sample := window(whose, load, connections, size.seconds):
                    name = whose.contender.name if whose else DIRECT
                    found.samples.setdefault((name, load, connections), []).append(sample)
        say(f"round {number + 1} of {size.rounds}")
    used = _others_seconds(stage, runners) - others
    found.others_share = max(0.0, used / (time.monotonic() - began) / (os.cpu_count() or 1))
    for runner in runners:
        found.memory_bytes[runner.contender.name] = runner.server.memory_bytes()
        for load in loads:
            check(runner.contender.name, runner.door, load, next(turns))
    return found


def _others_seconds(stage: Stage, runners: Sequence[Runner]) -> float:
    ours = sum(runner.server.cpu_seconds() for runner in runners)
    return busy_seconds() - ours - stage.hosts.cpu_seconds() - stage.redis_cpu_seconds() - own_seconds()


def _idle_share(runners: Sequence[Runner], seconds: float) -> float:
    began, before = time.monotonic(), sum(runner.server.cpu_seconds() for runner in runners)
    time.sleep(seconds)
    return (sum(runner.server.cpu_seconds() for runner in runners) - before) / (time.monotonic() - began)


def _window(
    stage: Stage, runner: Runner | None, load: Load, connections: int, seconds: float, first_turn: int
) -> Sample:
    name, door = (runner.contender.name, runner.door) if runner else (DIRECT, Door(stage.host_ports[0]))
    if runner:
        runner.server.forget_output()
    cpu, redis = runner.server.cpu_seconds() if runner else 0.0, stage.redis_cpu_seconds()
    window = stage.generator.run(door, load, connections, seconds, first_turn)
    redis = stage.redis_cpu_seconds() - redis
    cpu = (runner.server.cpu_seconds() if runner else 0.0) - cpu
    believe(name, load, connections, window)
    each = 1e6 / window.requests
    rate = window.requests / window.seconds
    return Sample(
        cpu * each, redis * each, rate, window.percentile_us(0.5), window.percentile_us(0.99), cpu / window.seconds
    )

"""The measurements: CPU a request in a closed loop, and what open streams take of memory, CPU and others' time."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter, sleep

from benchmarks.errors import BenchmarkError
from benchmarks.proxy.processes import cpu_seconds, memory_bytes
from benchmarks.scale.load import Closed, Probed, Served, Steady, Streamed, Streams, Window
from benchmarks.scale.site import DataPlane, Site, endpoint
from contract.routing_table import Endpoint, Strategy

CONNECTIONS = 32
PREFIXES = 2_000
THRESHOLD = 64
"""Above what a home meets with 32 connections, so that no request leaves it."""
STREAM_INSTANCES = 30
STREAM_THRESHOLD = 1_024
OPEN_PER_SECOND = 800.0
PROBES_PER_SECOND = 60.0
SETTLE_SECONDS = 1.0

Middle = tuple[float, float, float]
"""Median, least and most."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a closed loop meets."""

    axis: str
    """What grows: instances, endpoints or workers."""
    instances: int = 3
    endpoints: int = 1
    workers: int = 1
    strategy: Strategy = Strategy.PREFIX_AWARE
    prefixes: int = PREFIXES
    """0: each request has one of its own."""
    is_one_down: bool = False

    @property
    def variant(self) -> str:
        """What else than the axis is special, in words."""
        words = [self.strategy.value]
        if not self.prefixes:
            words.append("every prefix new")
        if self.is_one_down:
            words.append("an instance set aside")
        return ", ".join(words)

    def table(self, port: int) -> list[Endpoint]:
        return [
            endpoint(f"e{number}", port, self.instances, self.strategy, THRESHOLD, first=number * self.instances,
                     is_one_down=self.is_one_down)
            for number in range(self.endpoints)
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a request, in one setting."""

    setting: Setting
    worker_us: Middle
    redis_us: Middle
    rate: Middle
    """Requests a second."""
    busy: float
    """Of the workers' core, the median share; under 1 the load was what could not go faster."""
    load_busy: float
    reached: int
    degraded: int
    memory_mb: float
    """Of all workers."""


@dataclass(frozen=True, slots=True)
class Held:
    """With so many streams open."""

    streams: int
    memory_mb: float
    memory_before_mb: float
    through_p50: Middle
    through_p95: Middle
    direct_p95: Middle
    """Milliseconds of other requests, through the data plane and without it."""
    events: int
    """Compared, all of them exact."""
    busy: Middle
    """Share of its core that the worker spends, the other requests included."""

    @property
    def stream_kb(self) -> float:
        """Memory of a stream, in units of 1,000 bytes."""
        return 1e3 * (self.memory_mb - self.memory_before_mb) / self.streams if self.streams else 0.0


def middle(values: Sequence[float]) -> Middle:
    return median(values), min(values), max(values)


def cost(site: Site, setting: Setting, windows: int, seconds: float, warm_up: int) -> Cost:
    """Measure a closed loop. Raises BenchmarkError unless every answer is exact."""
    with site.data_plane(setting.table(site.ports[0]), setting.workers) as plane:
        plan = Closed(
            plane.port, CONNECTIONS, [f"e{number}" for number in range(setting.endpoints)], setting.prefixes,
            windows, seconds, warm_up, plane.workers, site.redis_pid,
        )  # fmt: skip
        served = site.result(site.start(plan), Served)
        degraded, memory = plane.degraded(), sum(map(memory_bytes, plane.workers))
    found = served.windows

    def each(name: str) -> list[float]:
        return [1e6 * float(getattr(window, name)) / window.requests for window in found]

    def busy(name: str) -> float:
        return median(float(getattr(window, name)) / window.seconds for window in found)

    return Cost(
        setting, middle(each("worker_seconds")), middle(each("redis_seconds")), middle(list(map(_rate, found))),
        busy("worker_seconds"), busy("load_seconds"), served.reached, degraded, memory / 1e6,
    )  # fmt: skip


def _rate(window: Window) -> float:
    return window.requests / window.seconds


def held(site: Site, streams: int, windows: int, seconds: float) -> Held:
    """Measure with streams open, an event a second each. Raises BenchmarkError unless all of them come exact."""
    table = [
        endpoint("streams", site.ports[0], STREAM_INSTANCES, Strategy.PREFIX_AWARE, STREAM_THRESHOLD),
        endpoint("others", site.ports[1], 3, Strategy.PREFIX_AWARE, THRESHOLD, first=STREAM_INSTANCES, letter="p"),
    ]
    opening = streams / OPEN_PER_SECOND
    watched = SETTLE_SECONDS + 1 + windows * seconds
    with site.data_plane(table) as plane:
        before = memory_bytes(plane.workers[0]) / 1e6
        load, events, began = None, 0, 0.0
        if streams:
            # Enough events for the first stream to outlive the watch of the last one.
            events = int(opening + watched + 4)
            began = perf_counter()
            load = site.start(Streams(plane.port, "streams", streams, events, OPEN_PER_SECOND))
            load.wait(lambda: "OPEN" in load.said() if load else True, opening + 30)
        sleep(SETTLE_SECONDS)
        probed, busy = _probe(site, plane, windows, seconds)
        memory = memory_bytes(plane.workers[0]) / 1e6
        if load is not None and perf_counter() - began > events - 1:
            raise BenchmarkError("the first streams ended before the others were measured: the machine is too busy")
        compared = site.result(load, Streamed).events if load is not None else 0

    def percentile(ways: list[list[float]], share: float) -> Middle:
        return middle([sorted(window)[int(share * len(window))] for window in ways])

    return Held(
        streams, memory, before, percentile(probed.through, 0.5), percentile(probed.through, 0.95),
        percentile(probed.direct, 0.95), compared, busy,
    )  # fmt: skip


def _probe(site: Site, plane: DataPlane, windows: int, seconds: float) -> tuple[Probed, Middle]:
    """Send other requests meanwhile; return what they met, and the worker's share of its core."""
    (worker,) = plane.workers
    probe = site.start(Steady(plane.port, site.ports[1], "others", PROBES_PER_SECOND, windows, seconds))
    spent = []
    for _ in range(windows):
        cpu, began = cpu_seconds(worker), perf_counter()
        sleep(seconds)
        spent.append((cpu_seconds(worker) - cpu) / (perf_counter() - began))
    return site.result(probe, Probed), middle(spent)

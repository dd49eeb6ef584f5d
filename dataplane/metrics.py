"""Counters, gauges and histograms that cost an addition, and the sum over a data plane's workers.

A scrape reaches one worker of several, so each worker leaves its numbers in a file beside the others' and any of them
answers for all. When a worker has ended, its parent absorbs its counters into one file of the past: a sum that fell
would read as a restart of everything. Labels come from the routing table and from fixed words, never from a request.
"""

import logging
import time
from bisect import bisect_left
from pathlib import Path

import msgspec

logger = logging.getLogger(__name__)

Labels = tuple[str, ...]
Samples = dict[str, dict[Labels, list[float]]]

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 480.0)
"""Seconds: the router's own share is in the first, a long generation in the last."""

COUNTERS: dict[str, tuple[str, Labels]] = {
    "requests_total": ("Requests answered, by final status", ("endpoint", "route", "status")),
    "access_refusals_total": ("Callers turned away, by the error's code", ("code",)),
    "route_decisions_total": ("Instances chosen, by how", ("endpoint", "variant", "strategy", "outcome")),
    "route_degraded_total": ("Decisions made without Redis", ("endpoint", "variant")),
    "retries_total": ("Deliveries tried on another instance", ("endpoint",)),
    "host_failures_total": ("Exchanges with hosts that failed", ("endpoint", "instance", "failure")),
    "ejections_total": ("Instances set aside for failures", ("instance",)),
    "in_flight_corrections_total": ("Releases that found nothing to release in Redis", ()),
    "store_calls_total": ("Calls of the admission script", ()),
    "store_admissions_total": ("Requests admitted by those calls", ()),
}
GAUGES: dict[str, tuple[str, Labels]] = {
    "in_flight": ("Requests in flight, this data plane's", ("endpoint", "variant", "instance")),
    "instances_available": ("Instances not set aside, as the least optimistic worker sees it", ("endpoint", "variant")),
    "store_up": ("1 while admission is exact, 0 while Redis is slow or away, least over workers", ()),
    "routes_generation": ("Generation of the routing table, oldest over workers", ()),
    "client_connections": ("Open client connections", ()),
    "host_connections": ("Open connections to hosts", ()),
    "workers": ("Live workers of this data plane", ()),
}
HISTOGRAMS: dict[str, tuple[str, Labels]] = {
    "router_seconds": ("From a request read to its delivery to a host", ("outcome",)),
    "first_byte_seconds": ("From a request read to the first byte of its answer", ("endpoint", "outcome")),
    "request_seconds": ("From a request read to the end of its answer", ("endpoint",)),
}
_LEAST = frozenset(("instances_available", "store_up", "routes_generation"))
_PREFIX = "warmroute_"


class Metrics:
    """One worker's numbers; ``name`` is its own in ``directory``, never used before."""

    def __init__(self, directory: Path | None = None, name: str | int = 0) -> None:
        self._directory = directory
        self._name = str(name)
        self._is_unwritable = False
        self._counters: dict[str, dict[Labels, list[float]]] = {name: {} for name in COUNTERS}
        self._histograms: dict[str, dict[Labels, list[float]]] = {name: {} for name in HISTOGRAMS}
        self._gauges: dict[str, dict[Labels, list[float]]] = {name: {} for name in GAUGES}

    def count(self, name: str, labels: Labels = (), amount: float = 1) -> None:
        self.counter(name, labels)[0] += amount

    def counter(self, name: str, labels: Labels) -> list[float]:
        """Return the cell of a counter, for one who adds to it often."""
        return self._counters[name].setdefault(labels, [0.0])

    def observe(self, name: str, labels: Labels, value: float) -> None:
        put(self.histogram(name, labels), value)

    def histogram(self, name: str, labels: Labels) -> list[float]:
        """Return the cells of a histogram, to ``put`` values into."""
        return self._histograms[name].setdefault(labels, [0.0] * (len(_BUCKETS) + 2))

    def set_all(self, name: str, values: dict[Labels, float]) -> None:
        """Replace all values of a gauge."""
        self._gauges[name] = {labels: [value] for labels, value in values.items()}

    def publish(self) -> None:
        """Leave the numbers where the other workers find them."""
        if self._directory is None:
            return
        try:
            _write(self._directory / f"{self._name}.metrics", self._snapshot())
        except OSError as error:
            # A full disk takes the metrics, not what calls this: the keeper of time limits.
            if not self._is_unwritable:
                logger.warning("Metrics of this worker cannot be kept for the others: %s", error)
            self._is_unwritable = True
        else:
            self._is_unwritable = False

    def text(self) -> str:
        """Return the sum over all workers in Prometheus' text format."""
        snapshots = [self._snapshot()]
        if self._directory is not None:
            past = _read(self._directory / PAST) or _nothing()
            snapshots.append(past)
            for file in sorted(self._directory.glob("*.metrics")):
                if file.name == PAST or file.stem == self._name or file.stem in past.absorbed:
                    continue
                if (snapshot := _read(file)) is not None:
                    snapshots.append(snapshot)
        return _render(snapshots)

    def _snapshot(self) -> "_Snapshot":
        return _Snapshot(time.time(), self._counters, self._histograms, self._gauges)


def put(histogram: list[float], value: float) -> None:
    histogram[bisect_left(_BUCKETS, value)] += 1
    histogram[-1] += value


class _Snapshot(msgspec.Struct):
    written_at: float
    counters: Samples
    histograms: Samples
    gauges: Samples
    absorbed: list[str] = []
    """Of the past: workers whose own file may still be there for a moment."""


def absorb(directory: Path, name: str) -> None:
    """Take the counters of a worker that has ended into the past's. Only the workers' parent calls this."""
    file = directory / f"{name}.metrics"
    ended = _read(file)
    if ended is None:
        return
    past = _read(directory / PAST) or _nothing()
    leaving = [known for known in past.absorbed if (directory / f"{known}.metrics").exists()]
    merged = _Snapshot(
        0.0,
        {kind: _merged([past.counters.get(kind, {}), ended.counters.get(kind, {})]) for kind in COUNTERS},
        {kind: _merged([past.histograms.get(kind, {}), ended.histograms.get(kind, {})]) for kind in HISTOGRAMS},
        {},
        [*leaving, name],
    )
    _write(directory / PAST, merged)
    file.unlink(missing_ok=True)


def _nothing() -> _Snapshot:
    return _Snapshot(0.0, {}, {}, {})


def _write(file: Path, snapshot: _Snapshot) -> None:
    partial = file.with_suffix(".partial")
    partial.write_bytes(_encode(snapshot))
    partial.replace(file)


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_Snapshot)
PAST = "past.metrics"
_STALE_SECONDS = 10.0
"""Gauges of a worker that has not written for so long are not counted; its counters are."""


def _read(file: Path) -> _Snapshot | None:
    try:
        return _decoder.decode(file.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None


def _render(snapshots: list[_Snapshot]) -> str:
    fresh = [s for s in snapshots if time.time() - s.written_at < _STALE_SECONDS]
    lines: list[str] = []
    for name, (words, labels) in COUNTERS.items():
        _head(lines, name, "counter", words)
        for values, cell in _merged([s.counters.get(name, {}) for s in snapshots]).items():
            lines.append(f"{_PREFIX}{name}{_labels(labels, values)} {_number(cell[0])}")
    for name, (words, labels) in GAUGES.items():
        _head(lines, name, "gauge", words)
        merged = _merged([s.gauges.get(name, {}) for s in fresh], least=name in _LEAST)
        for values, cell in merged.items():
            lines.append(f"{_PREFIX}{name}{_labels(labels, values)} {_number(cell[0])}")
    for name, (words, labels) in HISTOGRAMS.items():
        _head(lines, name, "histogram", words)
        for values, cells in _merged([s.histograms.get(name, {}) for s in snapshots]).items():
            _histogram(lines, name, labels, values, cells)
    return "\n".join(lines) + "\n"


def _histogram(lines: list[str], name: str, labels: Labels, values: Labels, cells: list[float]) -> None:
    total = 0.0
    for bound, amount in zip([*map(str, _BUCKETS), "+Inf"], cells, strict=False):
        total += amount
        lines.append(f"{_PREFIX}{name}_bucket{_labels((*labels, 'le'), (*values, bound))} {_number(total)}")
    lines.append(f"{_PREFIX}{name}_sum{_labels(labels, values)} {cells[-1]:.6f}")
    lines.append(f"{_PREFIX}{name}_count{_labels(labels, values)} {_number(total)}")


def _merged(parts: list[dict[Labels, list[float]]], least: bool = False) -> dict[Labels, list[float]]:
    out: dict[Labels, list[float]] = {}
    for part in parts:
        for labels, cells in part.items():
            known = out.get(labels)
            if known is None:
                out[labels] = list(cells)
            elif least:
                known[0] = min(known[0], cells[0])
            else:
                out[labels] = [a + b for a, b in zip(known, cells, strict=True)]
    return out


def _head(lines: list[str], name: str, kind: str, words: str) -> None:
    lines.append(f"# HELP {_PREFIX}{name} {words}")
    lines.append(f"# TYPE {_PREFIX}{name} {kind}")


def _labels(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)

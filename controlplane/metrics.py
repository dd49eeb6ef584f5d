"""The control plane's metrics in the Prometheus text format. Labels are names of ours or of endpoints that exist."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from controlplane.endpoint_status import Status
from controlplane.store.fleet import EndpointRows, Fleet

Sample = tuple[Mapping[str, str], float]


class TaskCounts(Protocol):
    @property
    def runs(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def failing_for(self) -> str | None: ...


class RequestCounts:
    """Requests by operation and outcome. What changes here: the counts, by ``observe`` alone."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.seconds: Counter[str] = Counter()

    def observe(self, operation: str, code: str, seconds: float) -> None:
        """Count one request; ``code`` is OK or an error's name. Both come from sets that callers cannot add to."""
        self.requests[operation, code] += 1
        self.seconds[operation] += seconds  # type: ignore[assignment]


def render(
    requests: RequestCounts,
    found: Fleet,
    tasks: Mapping[str, TaskCounts],
    generation: int,
    published_at: float | None,
) -> str:
    """Return all metrics. ``published_at``: when Redis was last seen to hold the present routes (time.time())."""
    lines: list[str] = []
    for name, kind, about, samples in (
        *_requests(requests),
        *_endpoints(found),
        *_routes(generation, published_at),
        *_tasks(tasks),
    ):
        lines += [f"# HELP warmroute_{name} {about}", f"# TYPE warmroute_{name} {kind}"]
        lines += [f"warmroute_{name}{_labels(labels)} {_number(value)}" for labels, value in samples]
    return "\n".join(lines) + "\n"


Family = tuple[str, str, str, Iterable[Sample]]


def _requests(requests: RequestCounts) -> Iterator[Family]:
    yield (
        "control_requests_total",
        "counter",
        "Requests by operation and error code (OK: none).",
        [({"operation": name, "code": code}, count) for (name, code), count in sorted(requests.requests.items())],
    )
    yield (
        "control_request_seconds_total",
        "counter",
        "Time spent on requests.",
        [({"operation": name}, seconds) for name, seconds in sorted(requests.seconds.items())],
    )


def _endpoints(found: Fleet) -> Iterator[Family]:
    by_status = Counter(rows.endpoint.status for rows in found.endpoints)
    yield (
        "endpoints",
        "gauge",
        "Endpoints by status.",
        [({"status": status}, by_status[status]) for status in Status],
    )
    variants = [
        ({"endpoint": rows.endpoint.name, "variant": variant.name}, rows, variant)
        for rows in found.endpoints
        for variant in rows.active
    ]
    yield (
        "instances_desired",
        "gauge",
        "Instances that a variant is to have.",
        [(labels, variant.instance_count) for labels, _, variant in variants],
    )
    yield (
        "instances_healthy",
        "gauge",
        "Instances of a variant whose last probes succeeded.",
        [(labels, _healthy(rows, variant.name, variant.ping_path)) for labels, rows, variant in variants],
    )


def _healthy(rows: EndpointRows, variant: str, path: str) -> int:
    health = [bound.health.get(path) for bound in rows.hosts if bound.binding.active_variant == variant]
    return sum(row is not None and row.healthy for row in health)


def _routes(generation: int, published_at: float | None) -> Iterator[Family]:
    yield ("routes_generation", "gauge", "Number of the routing table that Redis was seen to hold.", [({}, generation)])
    age: list[Sample] = [] if published_at is None else [({}, time.time() - published_at)]
    yield ("routes_seen_age_seconds", "gauge", "Since Redis was last seen to hold the present routing table.", age)


def _tasks(tasks: Mapping[str, TaskCounts]) -> Iterator[Family]:
    labelled = [({"task": name}, state) for name, state in tasks.items()]
    yield ("task_runs_total", "counter", "Runs of a background task.", [(name, state.runs) for name, state in labelled])
    yield (
        "task_failures_total",
        "counter",
        "Runs of a background task that failed.",
        [(name, state.failures) for name, state in labelled],
    )
    yield (
        "task_failing",
        "gauge",
        "1 while a background task's last run failed; the log says why.",
        [(name, state.failing_for is not None) for name, state in labelled],
    )


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6f}"


def _labels(labels: Mapping[str, str]) -> str:
    # Operations, codes, statuses and names of endpoints and variants hold no character that needs an escape.
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else ""

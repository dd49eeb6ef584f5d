"""What is noted of a request: its host's failures, and at its end its metrics and its line in the access log."""

from time import monotonic

from msgspec import Struct

from dataplane.access_log import AccessLog, Line
from dataplane.host import Failure
from dataplane.metrics import Metrics, put
from dataplane.routing.admission import Outcome
from dataplane.state.health import Health

_DEGRADED = "_degraded"
_WORDS = tuple(outcome.name.lower() for outcome in sorted(Outcome))
_DEGRADED_WORDS = tuple(word + _DEGRADED for word in _WORDS)


def word(outcome: Outcome, degraded: bool) -> str:
    """Return how an instance was chosen, in the log's word."""
    return (_DEGRADED_WORDS if degraded else _WORDS)[outcome]


class _Cells(Struct):
    """Where requests that are alike are counted."""

    counters: list[list[float]]
    router: list[float]
    first_byte: list[float]
    whole: list[float]


class Record:
    """One worker's. What changes here: the cells that requests of each kind are counted in, found once."""

    def __init__(self, metrics: Metrics, log: AccessLog, health: Health) -> None:
        self._metrics = metrics
        self._log = log
        self._health = health
        self._cells: dict[tuple[object, ...], _Cells] = {}

    def failure(self, endpoint: str, identity: str, failed: Failure, *, before_answer: bool) -> None:
        """Count a failed exchange, against the instance's health unless its answer had begun."""
        self._metrics.count("host_failures_total", (endpoint, identity, failed.value))
        if failed is Failure.REFUSED:
            if self._health.refused(identity, monotonic()):
                self._metrics.count("ejections_total", (identity,))
        elif before_answer:
            self.failed_answer(identity)

    def failed_answer(self, identity: str) -> None:
        """Count an exchange without a good answer (5xx, or none) against the instance's health."""
        if self._health.failed(identity, monotonic()):
            self._metrics.count("ejections_total", (identity,))

    def finished(self, line: Line, strategy: str, router_seconds: float | None) -> None:
        """Count a request that was routed, and write its line.

        ``router_seconds``: from the request read to its delivery to a host; None: it was delivered to none.
        """
        delivered, answered = router_seconds is not None, line.first_byte_ms > 0
        kind = (line.endpoint, line.variant, strategy, line.route, line.status, line.outcome, delivered, answered)
        cells = self._cells.get(kind)
        if cells is None:
            cells = self._cells[kind] = self._find(line, strategy, delivered=delivered, answered=answered)
        for cell in cells.counters:
            cell[0] += 1
        if router_seconds is not None:
            put(cells.router, router_seconds)
        if answered:
            put(cells.first_byte, line.first_byte_ms / 1e3)
        put(cells.whole, line.total_ms / 1e3)
        self._log.write(line)

    def _find(self, line: Line, strategy: str, *, delivered: bool, answered: bool) -> _Cells:
        metrics, endpoint, variant = self._metrics, line.endpoint, line.variant
        outcome = line.outcome.removesuffix(_DEGRADED)
        counters = [metrics.counter("requests_total", (endpoint, line.route, str(line.status)))]
        if delivered:
            counters.append(metrics.counter("route_decisions_total", (endpoint, variant, strategy, outcome)))
            if outcome != line.outcome:
                counters.append(metrics.counter("route_degraded_total", (endpoint, variant)))
        return _Cells(
            counters,
            metrics.histogram("router_seconds", (outcome,)) if delivered else [],
            metrics.histogram("first_byte_seconds", (endpoint, outcome)) if answered else [],
            metrics.histogram("request_seconds", (endpoint,)),
        )

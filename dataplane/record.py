"""What is noted of a request: its host's failures, and at its end its metrics and its line in the access log."""

from dataclasses import dataclass
from time import monotonic

from contract.routing_table import Strategy
from dataplane.access_log import AccessLog, Line
from dataplane.host import Failure
from dataplane.metrics import Metrics
from dataplane.routing.admission import Outcome
from dataplane.state.health import Health

_OUTCOMES = {outcome: outcome.name.lower() for outcome in Outcome}


@dataclass(slots=True)
class Finished:
    """A request that was routed, at its end. Times are the loop's; 0 is never."""

    request_id: bytes
    route: str
    status: int
    endpoint: str
    variant: str
    strategy: Strategy
    instance: str
    outcome: Outcome
    degraded: bool
    attempts: int
    request_bytes: int
    answer_bytes: int
    began: float
    sent_at: float
    first_byte_at: float
    ended: float
    failure: str
    reason: str
    client: str
    principal: str = ""


def failure(
    metrics: Metrics, health: Health, endpoint: str, identity: str, failed: Failure, *, before_answer: bool
) -> None:
    """Count a failed exchange, against the instance's health unless its answer had begun."""
    metrics.count("host_failures_total", (endpoint, identity, failed.value))
    if failed is Failure.REFUSED:
        if health.refused(identity, monotonic()):
            metrics.count("ejections_total", (identity,))
    elif before_answer:
        failed_answer(metrics, health, identity)


def failed_answer(metrics: Metrics, health: Health, identity: str) -> None:
    """Count an exchange without a good answer (5xx, or none) against the instance's health."""
    if health.failed(identity, monotonic()):
        metrics.count("ejections_total", (identity,))


def note(metrics: Metrics, log: AccessLog, done: Finished) -> None:
    """Count the request and write its line."""
    outcome = _OUTCOMES[done.outcome]
    metrics.count("requests_total", (done.endpoint, done.route, str(done.status)))
    if done.sent_at:
        metrics.count("route_decisions_total", (done.endpoint, done.variant, done.strategy.value, outcome))
        metrics.observe("router_seconds", (outcome,), done.sent_at - done.began)
        if done.degraded:
            metrics.count("route_degraded_total", (done.endpoint, done.variant))
    if done.first_byte_at:
        metrics.observe("first_byte_seconds", (done.endpoint, outcome), done.first_byte_at - done.began)
    metrics.observe("request_seconds", (done.endpoint,), done.ended - done.began)
    log.write(
        Line(
            at=done.ended,
            request_id=done.request_id.decode("ascii"),
            route=done.route,
            status=done.status,
            endpoint=done.endpoint,
            variant=done.variant,
            instance=done.instance,
            outcome=outcome + "_degraded" if done.degraded else outcome,
            attempts=done.attempts,
            request_bytes=done.request_bytes,
            answer_bytes=done.answer_bytes,
            first_byte_ms=round((done.first_byte_at - done.began) * 1e3, 3) if done.first_byte_at else 0.0,
            total_ms=round((done.ended - done.began) * 1e3, 3),
            failure=done.failure,
            reason=done.reason,
            client=done.client,
            principal=done.principal,
        )
    )

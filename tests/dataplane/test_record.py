import io
import json
from dataclasses import replace
from typing import Any

import pytest

from contract.routing_table import Strategy
from dataplane import record
from dataplane.access_log import AccessLog
from dataplane.host import Failure
from dataplane.metrics import Metrics
from dataplane.routing.admission import Outcome
from dataplane.state.health import FAILURES_MAX, REFUSALS_MAX, Health
from tests.dataplane.test_metrics import read

DONE = record.Finished(
    request_id=b"r1",
    route="invoke",
    status=200,
    endpoint="e",
    variant="v",
    strategy=Strategy.PREFIX_AWARE,
    instance="h1",
    outcome=Outcome.HOME,
    degraded=False,
    attempts=1,
    request_bytes=10,
    answer_bytes=20,
    began=100.0,
    sent_at=100.002,
    first_byte_at=100.5,
    ended=101.0,
    failure="",
    reason="",
    client="203.0.113.9",
)


def noted(done: record.Finished) -> tuple[dict[Any, float], dict[str, Any]]:
    """Return the metrics and the line of one request."""
    stream = io.StringIO()
    metrics, log = Metrics(), AccessLog(stream)
    log.start()
    record.note(metrics, log, done)
    log.stop()
    return read(metrics), json.loads(stream.getvalue())


def test_a_request_that_was_answered() -> None:
    metrics, line = noted(DONE)
    assert metrics["requests_total", ("e", "invoke", "200")] == 1
    assert metrics["route_decisions_total", ("e", "v", "PREFIX_AWARE", "home")] == 1
    assert metrics["router_seconds_sum", ("home",)] == pytest.approx(0.002)
    assert metrics["first_byte_seconds_sum", ("e", "home")] == pytest.approx(0.5)
    assert metrics["request_seconds_sum", ("e",)] == pytest.approx(1.0)
    assert not any(name == "route_degraded_total" for name, _ in metrics)
    assert (line["instance"], line["outcome"], line["first_byte_ms"], line["total_ms"]) == ("h1", "home", 500.0, 1000.0)
    assert (line["request_bytes"], line["answer_bytes"], line["client"]) == (10, 20, "203.0.113.9")


def test_a_request_that_reached_no_host_is_no_decision() -> None:
    metrics, line = noted(replace(DONE, status=503, sent_at=0.0, first_byte_at=0.0, instance="", attempts=0))
    names = {name for name, _ in metrics}
    assert names == {"requests_total", "request_seconds_bucket", "request_seconds_sum", "request_seconds_count"}
    assert not line.get("first_byte_ms")


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_decision_without_the_store_is_marked(outcome: Outcome) -> None:
    metrics, line = noted(replace(DONE, outcome=outcome, degraded=True))
    assert metrics["route_degraded_total", ("e", "v")] == 1
    assert line["outcome"] == f"{outcome.name.lower()}_degraded"


def test_failures_before_an_answer_count_against_the_instance() -> None:
    metrics, health = Metrics(), Health(10.0)
    for _ in range(FAILURES_MAX):
        record.failure(metrics, health, "e", "h1", Failure.LOST, before_answer=True)
    assert health.out == {"h1"}
    found = read(metrics)
    assert found["host_failures_total", ("e", "h1", "lost")] == FAILURES_MAX
    assert found["ejections_total", ("h1",)] == 1


def test_refused_connections_count_against_the_instance() -> None:
    metrics, health = Metrics(), Health(10.0)
    for _ in range(REFUSALS_MAX):
        record.failure(metrics, health, "e", "h1", Failure.REFUSED, before_answer=True)
    assert health.out == {"h1"}
    assert read(metrics)["ejections_total", ("h1",)] == 1


def test_an_answer_that_breaks_off_is_counted_but_sets_nobody_aside() -> None:
    metrics, health = Metrics(), Health(10.0)
    for _ in range(3 * FAILURES_MAX):
        record.failure(metrics, health, "e", "h1", Failure.BROKEN, before_answer=False)
    assert health.out == set()
    assert read(metrics)["host_failures_total", ("e", "h1", "broken")] == 3 * FAILURES_MAX

import io
import json
from typing import Any

import msgspec
import pytest

from dataplane.access_log import AccessLog, Line
from dataplane.host import Failure
from dataplane.metrics import Metrics
from dataplane.record import Record, word
from dataplane.routing.admission import Outcome
from dataplane.state.health import FAILURES_MAX, REFUSALS_MAX, Health
from tests.dataplane.test_metrics import read

DONE = Line(
    at=101.0,
    request_id="r1",
    route="invoke",
    status=200,
    endpoint="e",
    variant="v",
    instance="h1",
    outcome="home",
    attempts=1,
    request_bytes=10,
    answer_bytes=20,
    first_byte_ms=500.0,
    total_ms=1000.0,
    client="203.0.113.9",
)


def noted(*lines: Line, router_seconds: float | None = 0.002) -> tuple[dict[Any, float], dict[str, Any]]:
    """Return the metrics, and the last line, of these requests."""
    stream = io.StringIO()
    metrics, log = Metrics(), AccessLog(stream)
    log.start()
    record = Record(metrics, log, Health(10.0))
    for line in lines:
        record.finished(line, "PREFIX_AWARE", router_seconds)
    log.stop()
    return read(metrics), json.loads(stream.getvalue().splitlines()[-1])


def altered(**members: Any) -> Line:
    return msgspec.structs.replace(DONE, **members)


def test_a_request_that_was_answered() -> None:
    metrics, line = noted(altered())
    assert metrics["requests_total", ("e", "invoke", "200")] == 1
    assert metrics["route_decisions_total", ("e", "v", "PREFIX_AWARE", "home")] == 1
    assert metrics["router_seconds_sum", ("home",)] == pytest.approx(0.002)
    assert metrics["first_byte_seconds_sum", ("e", "home")] == pytest.approx(0.5)
    assert metrics["request_seconds_sum", ("e",)] == pytest.approx(1.0)
    assert not any(name == "route_degraded_total" for name, _ in metrics)
    assert (line["instance"], line["outcome"], line["first_byte_ms"], line["total_ms"]) == ("h1", "home", 500.0, 1000.0)
    assert (line["request_bytes"], line["answer_bytes"], line["client"]) == (10, 20, "203.0.113.9")


def test_requests_that_are_alike_are_counted_together_and_others_apart() -> None:
    metrics, _ = noted(altered(), altered(), altered(status=424), altered(outcome="overflow"), altered(route="chat"))
    assert metrics["requests_total", ("e", "invoke", "200")] == 3
    assert metrics["requests_total", ("e", "invoke", "424")] == metrics["requests_total", ("e", "chat", "200")] == 1
    assert metrics["route_decisions_total", ("e", "v", "PREFIX_AWARE", "home")] == 4
    assert metrics["first_byte_seconds_count", ("e", "overflow")] == 1
    assert metrics["request_seconds_count", ("e",)] == 5


def test_a_request_that_reached_no_host_is_no_decision() -> None:
    metrics, line = noted(altered(status=503, first_byte_ms=0.0, instance="", attempts=0), router_seconds=None)
    names = {name for name, _ in metrics}
    assert names == {"requests_total", "request_seconds_bucket", "request_seconds_sum", "request_seconds_count"}
    assert not line.get("first_byte_ms")


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_decision_without_the_store_is_marked(outcome: Outcome) -> None:
    assert word(outcome, False) == outcome.name.lower()
    metrics, line = noted(altered(outcome=word(outcome, True)))
    assert metrics["route_degraded_total", ("e", "v")] == 1
    assert metrics["route_decisions_total", ("e", "v", "PREFIX_AWARE", outcome.name.lower())] == 1
    assert line["outcome"] == f"{outcome.name.lower()}_degraded"


def recording() -> tuple[Record, Metrics, Health]:
    metrics, health = Metrics(), Health(10.0)
    return Record(metrics, AccessLog(io.StringIO()), health), metrics, health


def test_failures_before_an_answer_count_against_the_instance() -> None:
    record, metrics, health = recording()
    for _ in range(FAILURES_MAX):
        record.failure("e", "h1", Failure.LOST, before_answer=True)
    assert health.out == {"h1"}
    found = read(metrics)
    assert found["host_failures_total", ("e", "h1", "lost")] == FAILURES_MAX
    assert found["ejections_total", ("h1",)] == 1


def test_refused_connections_count_against_the_instance() -> None:
    record, metrics, health = recording()
    for _ in range(REFUSALS_MAX):
        record.failure("e", "h1", Failure.REFUSED, before_answer=True)
    assert health.out == {"h1"}
    assert read(metrics)["ejections_total", ("h1",)] == 1


def test_an_answer_that_breaks_off_is_counted_but_sets_nobody_aside() -> None:
    record, metrics, health = recording()
    for _ in range(3 * FAILURES_MAX):
        record.failure("e", "h1", Failure.BROKEN, before_answer=False)
    assert health.out == set()
    assert read(metrics)["host_failures_total", ("e", "h1", "broken")] == 3 * FAILURES_MAX

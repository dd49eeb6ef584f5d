"""Metrics in the text format, with labels of things that exist only."""

import re
from datetime import UTC, datetime

from controlplane.background.driver import TaskState
from controlplane.metrics import RequestCounts, render
from controlplane.store.fleet import BoundHostRows, EndpointRows, Fleet
from controlplane.store.tables import Binding, Endpoint, EndpointVariant, Host, HostHealth

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LINE = re.compile(r'(# (HELP|TYPE) warmroute_\w+ .+|warmroute_\w+(\{\w+="[^"\\]*"(,\w+="[^"\\]*")*\})? [0-9.e+-]+)')


def fleet() -> Fleet:
    endpoint = Endpoint(
        id="1", name="chat", status="InService", config_name="c", sent_config={}, created_at=NOW, modified_at=NOW
    )
    variant = EndpointVariant(
        endpoint_id="1",
        stage="ACTIVE",
        name="v",
        position=0,
        model_id=1,
        model_name="m",
        ping_path="/ping",
        instance_count=3,
        weight=1.0,
        routing_strategy="RANDOM",
        sent={},
        started_at=NOW,
    )
    hosts = tuple(
        BoundHostRows(
            Host(id=number, identity=f"h{number}", base_url="u", seen_at=NOW),
            Binding(host_id=number, endpoint_id="1", active_variant="v"),
            {"/ping": HostHealth(host_id=number, path="/ping", healthy=up, changed_at=NOW, next_probe_at=NOW)},
        )
        for number, up in enumerate((True, True, False))
    )
    return Fleet((EndpointRows(endpoint, None, (variant,), (), hosts, None),))


def test_every_line_is_well_formed_and_tells_the_state() -> None:
    requests = RequestCounts()
    for code in ("OK", "OK", "ValidationException"):
        requests.observe("CreateEndpoint", code, 0.25)
    failing = TaskState(runs=7, failures=2, failing_for="away")
    text = render(requests, fleet(), {"publish_routes": failing, "settle_endpoints": TaskState(runs=3)}, 12, None)
    assert text.endswith("\n")
    lines = text.splitlines()
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    for line in (
        'warmroute_control_requests_total{operation="CreateEndpoint",code="OK"} 2',
        'warmroute_control_requests_total{operation="CreateEndpoint",code="ValidationException"} 1',
        'warmroute_control_request_seconds_total{operation="CreateEndpoint"} 0.750000',
        'warmroute_endpoints{status="InService"} 1',
        'warmroute_endpoints{status="Failed"} 0',
        'warmroute_instances_desired{endpoint="chat",variant="v"} 3',
        'warmroute_instances_healthy{endpoint="chat",variant="v"} 2',
        "warmroute_routes_generation 12",
        'warmroute_task_runs_total{task="publish_routes"} 7',
        'warmroute_task_failures_total{task="publish_routes"} 2',
        'warmroute_task_failing{task="publish_routes"} 1',
        'warmroute_task_failing{task="settle_endpoints"} 0',
    ):
        assert line in lines
    assert not any(line.startswith("warmroute_routes_seen_age_seconds ") for line in lines)


def test_large_counts_are_whole_numbers() -> None:
    requests = RequestCounts()
    requests.requests["ListModels", "OK"] = 12_345_678
    assert 'code="OK"} 12345678\n' in render(requests, Fleet(()), {}, 123_456_789, 0.0)
    assert "warmroute_routes_generation 123456789\n" in render(requests, Fleet(()), {}, 123_456_789, 0.0)

"""Metrics, request ids and log lines: what an operator can see, and what no request can do to them."""

import json
import re
from typing import Any

import httpx

from tests.dataplane_e2e.stage import Fleet, asking, chat_body, invoke, prefix
from tests.fakes.answers import Answer, echo
from tests.fakes.data_plane import DataPlane
from tests.waiting import wait_until


def outcomes(plane: DataPlane, name: str) -> dict[str, float]:
    """Return outcome -> decisions of one endpoint."""
    found: dict[str, float] = {}
    for (metric, labels), value in plane.metrics().items():
        given = dict(labels)
        if metric == "warmroute_route_decisions_total" and given["endpoint"] == name:
            found[given["outcome"]] = found.get(given["outcome"], 0) + value
    return found


def test_every_decision_is_counted_by_its_outcome(plane: DataPlane, fleet: Fleet) -> None:
    """Home, overflow, all saturated, no key: the sum is the number of requests."""
    deployed = fleet.deploy(2, threshold=1)
    with plane.client() as client:
        for _ in range(3):
            invoke(client, deployed, prefix(0))
        for _ in range(2):
            invoke(client, deployed, b"")
        gates = [host.hold() for host in deployed.hosts]
        with asking(plane, [(deployed.invocations, prefix(0))] * 4) as held:
            wait_until(lambda: deployed.in_flight == 4)
            for host in deployed.hosts:
                host.answer = echo
            for gate in gates:
                gate.open()
            assert {one.read().status for one in held} == {200}
    expected = {"home": 4, "overflow": 1, "all_saturated": 2, "no_key": 2}
    wait_until(lambda: outcomes(plane, deployed.name) == expected, 3.0, str(outcomes(plane, deployed.name)))
    assert plane.metric("warmroute_requests_total", endpoint=deployed.name, status="200") == 9


def test_other_strategies_have_outcomes_of_their_own(plane: DataPlane, fleet: Fleet) -> None:
    expected = {}
    with plane.client() as client:
        for hosts, strategy, outcome in (
            (1, "PREFIX_AWARE", "single"),
            (2, "RANDOM", "random"),
            (2, "LEAST_OUTSTANDING_REQUESTS", "least_outstanding"),
        ):
            deployed = fleet.deploy(hosts, strategy)
            for _ in range(3):
                invoke(client, deployed, b"x")
            expected[deployed.name] = {outcome: 3.0}
    for name, found in expected.items():
        assert outcomes(plane, name) == found


def test_in_flight_is_shown_per_instance(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(2, threshold=4)
    with plane.client() as client:
        home = invoke(client, deployed, prefix(0))
        gate = deployed.host(home).hold()
        with asking(plane, [(deployed.invocations, prefix(0))] * 3) as held:
            wait_until(lambda: deployed.in_flight == 3)
            identity = f"{fleet.scope}/{home}"
            labels = {"endpoint": deployed.name, "variant": "AllTraffic", "instance": identity}
            wait_until(lambda: plane.metric("warmroute_in_flight", **labels) == 3)
            gate.open()
            assert {one.read().status for one in held} == {200}
        wait_until(lambda: plane.metric("warmroute_in_flight", endpoint=deployed.name) == 0)


def test_what_callers_invent_makes_no_new_series(plane: DataPlane, fleet: Fleet) -> None:
    """600 requests with names, models, variants, paths and methods of their own: under 50 new series."""
    deployed = fleet.deploy(1)
    with plane.client() as client:
        invoke(client, deployed, b"x")
        before = len(plane.metrics())
        for number in range(100):
            client.request(f"/endpoints/made-up-{number}/invocations", b"x")
            client.request("/v1/chat/completions", chat_body("x", model=f"made-up-{number}"))
            client.request(deployed.invocations, b"x", [("X-Amzn-SageMaker-Target-Variant", f"v{number}")])
            client.request(f"/made/up/{number}", b"x")
            client.request(deployed.chat, chat_body("x"), [("X-Request-Id", f"id-{number}")])
    for method in ("MADE", "UP", "GET", "PATCH", "TRACE", "CONNECT"):
        with plane.client() as client:
            assert 400 <= (client.ask(deployed.invocations, b"", method=method).outcome() or 400) < 500
    text = httpx.get(f"{plane.url}/metrics").text
    assert len(plane.metrics()) - before < 50
    assert len(text) < 2**20
    assert "made-up" not in text


def test_the_metrics_are_well_formed(plane: DataPlane, fleet: Fleet) -> None:
    """Every sample has a type, histograms are cumulative, names have the product's prefix."""
    deployed = fleet.deploy(1)
    with plane.client() as client:
        invoke(client, deployed, b"x")
    answer = httpx.get(f"{plane.url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", answer.text, re.MULTILINE))
    for name, _ in plane.metrics():
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        assert name.startswith("warmroute_"), name
        assert name in types or types.get(base) == "histogram", name


def test_a_request_id_goes_through(plane: DataPlane, fleet: Fleet) -> None:
    """The caller's id is returned, passed to the host and written into the log line."""
    deployed = fleet.deploy(1)
    with plane.client() as client:
        answer = client.request(deployed.invocations, b"x", [("X-Request-Id", "caller-id-1")])
        assert answer.header("x-amzn-requestid") == "caller-id-1"
        chat = client.request(deployed.chat, chat_body("x"), [("X-Request-Id", "caller-id-2")])
        assert chat.header("x-request-id") == "caller-id-2"
    seen = [delivery.header("x-request-id") for delivery in deployed.hosts[0].deliveries]
    assert seen == [b"caller-id-1", b"caller-id-2"]
    wait_until(lambda: {"caller-id-1", "caller-id-2"} <= {line.get("request_id") for line in lines(plane)})


def lines(plane: DataPlane) -> list[dict[str, Any]]:
    """Return the access log's lines."""
    return [json.loads(line) for line in plane.output.splitlines() if line.startswith("{")]


def test_ids_cannot_forge_log_lines(plane: DataPlane, fleet: Fleet) -> None:
    """Escapes, control characters, 10 KB: one line per request, the id cut or replaced, and used everywhere."""
    deployed = fleet.deploy(1)
    odd = [b"a%0d%0aINFO fake", b"\x1b[31mred", b"x" * 10_000, b'"},{"a":"', b"\xc3\xa9", b"a\tb"]
    at = len(plane.output)
    ids: list[str] = []
    for value in odd:
        with plane.client() as client:
            answer = client.request(deployed.invocations, b"x", [("X-Request-Id", value)])
            assert answer.status in (200, 400)
            # What the parser refuses as no HTTP at all has no id.
            assert answer.status == 400 or answer.header("x-amzn-requestid")
            ids += answer.all("x-amzn-requestid")
    with plane.client() as client:
        client.request("/endpoints/e%0d%0aINFO%20fake%1b%5b31m/invocations", b"x")
    assert all(0 < len(one) <= 200 and one.isascii() and one.isprintable() for one in ids)
    delivered = [(delivery.header("x-request-id") or b"").decode() for delivery in deployed.hosts[0].deliveries]
    assert delivered == [one for one in ids if one in delivered]

    def written() -> bool:
        return {line.get("request_id") for line in lines(plane)} >= set(delivered)

    wait_until(written)
    text = plane.output[at:]
    assert "\x1b" not in text
    assert not [line for line in text.splitlines() if line.startswith("INFO fake")]


def test_nothing_of_a_body_or_a_credential_is_logged(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(1)
    deployed.hosts[0].queue += [Answer(body=b"ANSWER-SECRET", status=500), Answer(body=b"ANSWER-SECRET")]
    headers = [("Authorization", "Bearer TOKEN-SECRET"), ("Cookie", "c=COOKIE-SECRET"), ("X-Request-Id", "last-one")]
    with plane.client() as client:
        client.request(deployed.invocations, b"BODY-SECRET", headers)
        client.request(deployed.chat, chat_body("BODY-SECRET", prompt_cache_key="KEY-SECRET"), headers)
        client.request(deployed.chat, b'{"messages": BODY-SECRET', headers)
    wait_until(lambda: [line.get("request_id") for line in lines(plane)].count("last-one") >= 2)
    assert "-SECRET" not in plane.output


def test_a_log_line_says_where_a_request_went(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(2)
    with plane.client() as client:
        answer = client.request(deployed.invocations, prefix(0), [("X-Request-Id", "where-1")])
        home = json.loads(answer.body)["host"]
    found = wait_until(lambda: [line for line in lines(plane) if line.get("request_id") == "where-1"])
    assert len(found) == 1
    assert found[0]["endpoint"] == deployed.name
    assert found[0]["instance"] == f"{fleet.scope}/{home}"
    assert found[0]["outcome"] == "home"
    assert found[0]["status"] == 200

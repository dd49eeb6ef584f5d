"""Hosts that load, die and return, seen through both planes; updates that must not lose a request."""

import time

import pytest
from botocore.exceptions import ClientError

from tests.end_to_end.stack import LEAST_OUTSTANDING, Stack, Traffic, User, invoke, prefix_aware
from tests.fakes.answers import Answer, Gate, json_answer
from tests.fakes.model_host import Hosts
from tests.waiting import wait_until

LOADING = Answer(body=b"loading", status=503)
READY = Answer(body=b"")


def test_traffic_stays_on_the_old_host_until_the_new_one_is_ready(stack: Stack, user: User, hosts: Hosts) -> None:
    """A serves until B passes its health check; then A gets nothing new, and what it has ends whole."""
    old, new = hosts.make(2)
    endpoint = user.deploy("e", [old], prefix_aware())
    new.ping = LOADING
    config = user.config("new", user.model("new-m", [new]), 1, prefix_aware())
    with Traffic(stack, endpoint, rate=20) as traffic:
        traffic.wait_for(5)
        user.update(endpoint, config, wait=False)
        described = user.describe(endpoint)
        assert described["EndpointStatus"] == "Updating"
        assert described["EndpointConfigName"] != config
        assert described["PendingDeploymentSummary"]["EndpointConfigName"] == config
        wait_until(lambda: len(new.pings) >= 3)
        traffic.wait_for(10)
        assert new.deliveries == []
        gate = Gate()
        old.queue.append(json_answer({"host": old.name}, before=gate))
        wait_until(lambda: not old.queue)
        new.ping = READY
        user.wait_status(endpoint, "InService")
        at_old = len(old.deliveries)
        traffic.wait_for(10)
        assert len(old.deliveries) == at_old
        assert old.in_flight == 1
        gate.open()
        traffic.wait_for(5)
    assert traffic.failures == []
    assert user.describe(endpoint)["EndpointConfigName"] == config
    assert all(delivery.peer_left is None for delivery in old.deliveries)


def test_a_host_that_left_is_not_probed_any_more(stack: Stack, user: User, hosts: Hosts) -> None:
    """Three updates to and fro; afterwards only the host in service hears from the product."""
    left, stays = hosts.make(2)
    endpoint = user.deploy("e", [left], prefix_aware())
    configs = [user.describe(endpoint)["EndpointConfigName"]]
    configs.append(user.config("new", user.model("new-m", [stays]), 1, prefix_aware()))
    for config in (configs[1], configs[0], configs[1]):
        user.update(endpoint, config)
    at_stays = len(stays.pings)
    # A probe that was under way when the update ended may still arrive; one interval later none may.
    wait_until(lambda: len(stays.pings) >= at_stays + 2)
    at_left = len(left.pings)
    wait_until(lambda: len(stays.pings) >= at_stays + 7)
    assert len(left.pings) == at_left


def test_a_loading_host_gets_no_request(stack: Stack, user: User, hosts: Hosts) -> None:
    """It joins when its ping first answers 200; until then the count says so and the other host serves."""
    first, second = hosts.make(2)
    second.ping = LOADING
    model = user.model("m", [first, second])
    endpoint = user.endpoint("e", user.config("c", model, 1, LEAST_OUTSTANDING))
    serving = invoke(stack.runtime(), endpoint, b"x")
    assert serving == "h1"
    user.sagemaker.update_endpoint_weights_and_capacities(
        EndpointName=endpoint,
        DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredInstanceCount": 2}],
    )
    with Traffic(stack, endpoint) as traffic:
        wait_until(lambda: len(second.pings) >= 3)
        traffic.wait_for(20)
        assert second.deliveries == []
        (variant,) = user.describe(endpoint)["ProductionVariants"]
        assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (1, 2)
        second.ping = READY
        user.in_service(endpoint)
        (variant,) = user.describe(endpoint)["ProductionVariants"]
        assert variant["CurrentInstanceCount"] == 2
        wait_until(lambda: second.deliveries != [])
    assert traffic.failures == []


def test_all_hosts_die_and_return(stack: Stack, user: User, hosts: Hosts) -> None:
    """503 with words and in time; the description counts none; everything heals by itself."""
    fleet = hosts.make(2)
    endpoint = user.deploy("e", fleet, prefix_aware())
    runtime = stack.runtime()
    homes = [invoke(runtime, endpoint, b"%d" % number) for number in range(12)]
    for host in fleet:
        host.die()
    for _ in range(6):
        started = time.monotonic()
        with pytest.raises(ClientError) as caught:
            invoke(runtime, endpoint, b"x")
        assert time.monotonic() - started < 1.5
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
        assert caught.value.response["Error"]["Message"]

    def counted() -> int:
        found = user.describe(endpoint)
        assert found["EndpointStatus"] == "InService"
        return int(found["ProductionVariants"][0]["CurrentInstanceCount"])

    wait_until(lambda: counted() == 0)
    for host in fleet:
        host.start()
    wait_until(lambda: _serves(runtime, endpoint), 2.0)
    wait_until(lambda: counted() == 2)
    wait_until(lambda: [invoke(runtime, endpoint, b"%d" % number) for number in range(12)] == homes, 5.0)


def _serves(runtime: object, endpoint: str) -> bool:
    try:
        return bool(invoke(runtime, endpoint, b"x"))
    except ClientError:
        return False


def test_bad_requests_turn_no_host_away(stack: Stack, user: User, hosts: Hosts) -> None:
    """70 of them in a row; both planes still count both hosts, and every prefix is at home."""
    fleet = hosts.make(2)
    endpoint = user.deploy("e", fleet, prefix_aware())
    runtime = stack.runtime()
    homes = [invoke(runtime, endpoint, b"%d" % number) for number in range(12)]
    answers = {host.name: host.answer for host in fleet}
    for status in (400,) * 50 + (429,) * 20:
        for host in fleet:
            host.answer = Answer(body=b"no", status=status)
        with pytest.raises(runtime.exceptions.ModelError):
            runtime.invoke_endpoint(EndpointName=endpoint, Body=b"%d" % status)
    for host in fleet:
        host.answer = answers[host.name]
    assert [invoke(runtime, endpoint, b"%d" % number) for number in range(12)] == homes
    assert user.describe(endpoint)["ProductionVariants"][0]["CurrentInstanceCount"] == 2


def test_a_newcomer_gets_its_share_of_a_burst(stack: Stack, user: User, hosts: Hosts) -> None:
    """Capacity grows from 2 to 3 while each host holds 10; 15 more level all three at 11 or 12."""
    fleet = hosts.make(3)
    fleet[2].ping = LOADING
    model = user.model("m", fleet)
    endpoint = user.endpoint("e", user.config("c", model, 2, LEAST_OUTSTANDING))
    gates = [host.hold() for host in fleet]
    target = f"/endpoints/{endpoint}/invocations"
    clients = [stack.planes[number % 2].client() for number in range(35)]
    for client in clients[:20]:
        client.ask(target, b"x")
    wait_until(lambda: [host.in_flight for host in fleet] == [10, 10, 0])
    fleet[2].ping = READY
    user.sagemaker.update_endpoint_weights_and_capacities(
        EndpointName=endpoint,
        DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredInstanceCount": 3}],
    )
    user.in_service(endpoint)
    for client in clients[20:]:
        client.ask(target, b"x")
    wait_until(lambda: sum(host.in_flight for host in fleet) == 35)
    found = sorted(host.in_flight for host in fleet)
    for gate in gates:
        gate.open()
    assert [client.read().status for client in clients] == [200] * 35
    for client in clients:
        client.close()
    assert found == [11, 12, 12]


def test_an_endpoint_that_is_updating_takes_no_other_change(stack: Stack, user: User, hosts: Hosts) -> None:
    """Neither update nor delete; it serves, and ends at the configuration of the first call."""
    old, new = hosts.make(2)
    endpoint = user.deploy("e", [old], prefix_aware())
    before = user.describe(endpoint)["EndpointConfigName"]
    new.die()
    config = user.config("new", user.model("new-m", [new]), 1, prefix_aware())
    user.update(endpoint, config, wait=False)
    with pytest.raises(ClientError, match="Cannot update in-progress endpoint"):
        user.update(endpoint, before, wait=False)
    with pytest.raises(ClientError, match="Cannot update in-progress endpoint"):
        user.sagemaker.delete_endpoint(EndpointName=endpoint)
    assert invoke(stack.runtime(), endpoint, b"x") == "h1"
    new.start()
    user.in_service(endpoint)
    assert user.describe(endpoint)["EndpointConfigName"] == config

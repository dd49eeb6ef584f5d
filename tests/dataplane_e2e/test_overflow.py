"""ConcurrencyThreshold: where a request goes when its home is full, and that it comes home again."""

from collections import Counter

import pytest

from tests.dataplane_e2e.stage import (
    Deployed,
    Fleet,
    asking,
    bodies_at,
    chat,
    chat_body,
    invoke,
    prefix,
)
from tests.fakes.answers import Gate, echo
from tests.fakes.data_plane import DataPlane
from tests.waiting import wait_until


def hold_all(deployed: Deployed) -> list[Gate]:
    """Hold every host's requests, each behind a gate of its own."""
    return [host.hold() for host in deployed.hosts]


def release(deployed: Deployed, gates: list[Gate]) -> None:
    """Open the gates and let later requests pass at once."""
    for host in deployed.hosts:
        host.answer = echo
    for gate in gates:
        gate.open()


@pytest.mark.parametrize("is_chat", [False, True])
def test_two_at_home_the_rest_elsewhere_then_home_again(
    plane: DataPlane, second_plane: DataPlane, fleet: Fleet, is_chat: bool
) -> None:
    """Threshold 2 and 5 held-open requests of one prefix, over two workers."""
    deployed = fleet.deploy(4, threshold=2)
    target, body = (deployed.chat, chat_body("x" * 2_000)) if is_chat else (deployed.invocations, prefix(0))
    with plane.client() as client:
        home = chat(client, deployed, body) if is_chat else invoke(client, deployed, body)
        gates = hold_all(deployed)
        with asking(plane, [(target, body)] * 3) as one, asking(second_plane, [(target, body)] * 2) as two:
            wait_until(lambda: deployed.in_flight == 5)
            busy = deployed.busy()
            release(deployed, gates)
            assert {client.read().status for client in [*one, *two]} == {200}
        assert busy[home] == 2
        assert sum(busy.values()) == 5
        assert max(busy.values()) == 2
        fleet.expect_idle()
        for _ in range(10):
            assert (chat(client, deployed, body) if is_chat else invoke(client, deployed, body)) == home


@pytest.mark.parametrize("attempt", range(5))
def test_the_threshold_is_exact_across_workers(
    plane: DataPlane, second_plane: DataPlane, fleet: Fleet, attempt: int
) -> None:
    """12 at once over two workers, threshold 4, 3 hosts, native and chat mixed: the home's peak is exactly 4."""
    deployed = fleet.deploy(3, threshold=4)
    key = b'{"messages":[{"role":"user","content":"same text"}]}'
    with plane.client() as client:
        home = invoke(client, deployed, key)
        # Chat keys are of another kind; take a text with the same home.
        texts = (chat_body(f"{attempt} {number}") for number in range(1_000))
        text = next(text for text in texts if chat(client, deployed, text) == home)
    deployed.host(home).clear()
    gates = hold_all(deployed)
    mixed = [(deployed.invocations, key), (deployed.chat, text), (deployed.stream, key)] * 2
    with asking(plane, mixed) as one, asking(second_plane, mixed) as two:
        wait_until(lambda: deployed.in_flight == 12)
        peak = deployed.host(home).peak
        release(deployed, gates)
        assert {client.read().status for client in [*one, *two]} == {200}
    assert peak == 4


def test_overflow_goes_to_the_host_with_fewest_in_flight(plane: DataPlane, fleet: Fleet) -> None:
    """Two hosts are full, the third has one, the fourth none: the fourth; with that stopped, the third."""
    deployed = fleet.deploy(4, threshold=2)
    with plane.client() as client:
        keys = {name: bodies_at(client, deployed, name, 1)[0] for name in ("h1", "h2", "h3")}
        gates = hold_all(deployed)
        held = [("h1", 2), ("h2", 2), ("h3", 1)]
        targets = [(deployed.invocations, keys[name]) for name, count in held for _ in range(count)]
        with asking(plane, targets) as clients:
            wait_until(lambda: deployed.busy() == {"h1": 2, "h2": 2, "h3": 1, "h4": 0})
            deployed.host("h4").answer = echo
            assert invoke(client, deployed, keys["h1"]) == "h4"
            deployed.host("h4").die()
            deployed.host("h3").answer = echo
            assert invoke(client, deployed, keys["h1"]) == "h3"
            release(deployed, gates)
            assert {client.read().status for client in clients} == {200}


def test_overflow_of_many_prefixes_is_spread(plane: DataPlane, fleet: Fleet) -> None:
    """60 prefixes of one full home touch at least 4 of the 5 others, none above half."""
    deployed = fleet.deploy(6, threshold=1)
    with plane.client() as client:
        bodies = bodies_at(client, deployed, "h1", 61)
        gate = deployed.host("h1").hold()
        with asking(plane, [(deployed.invocations, bodies[60])]) as (held,):
            wait_until(lambda: deployed.in_flight == 1)
            found = Counter(invoke(client, deployed, body) for body in bodies[:60])
            gate.open()
            assert held.read().status == 200
    assert "h1" not in found
    assert len(found) >= 4
    assert max(found.values()) <= 30


def test_home_is_resumed_after_overflow(plane: DataPlane, fleet: Fleet) -> None:
    """An overflow binds nothing."""
    deployed = fleet.deploy(4, threshold=1)
    with plane.client() as client:
        home = invoke(client, deployed, prefix(0))
        gate = deployed.host(home).hold()
        with asking(plane, [(deployed.invocations, prefix(0))]) as (held,):
            wait_until(lambda: deployed.in_flight == 1)
            assert home not in {invoke(client, deployed, prefix(0)) for _ in range(5)}
            deployed.host(home).answer = echo
            gate.open()
            assert held.read().status == 200
        fleet.expect_idle()
        assert {invoke(client, deployed, prefix(0)) for _ in range(20)} == {home}


def test_with_all_hosts_full_everything_is_served_and_spread(plane: DataPlane, fleet: Fleet) -> None:
    """3 hosts, threshold 2, 12 at once: all answered, per-host peaks within 2 of each other, nothing queued."""
    deployed = fleet.deploy(3, threshold=2)
    gates = hold_all(deployed)
    with asking(plane, [(deployed.invocations, prefix(0))] * 12) as clients:
        wait_until(lambda: deployed.in_flight == 12, 1.0)
        peaks = [host.peak for host in deployed.hosts]
        release(deployed, gates)
        assert [client.read().status for client in clients] == [200] * 12
    assert sum(peaks) == 12
    assert max(peaks) - min(peaks) <= 2


def test_thresholds_of_variants_are_apart(plane: DataPlane, fleet: Fleet) -> None:
    """V1 is full at 1 while v2 takes 3 at home."""
    hosts = fleet.hosts.make(4)
    deployed = fleet.deploy_variants(
        [
            (fleet.variant(hosts[:2], name="v1", threshold=1), hosts[:2]),
            (fleet.variant(hosts[2:], name="v2", threshold=3), hosts[2:]),
        ]
    )
    gates = hold_all(deployed)
    headers = [("X-Amzn-SageMaker-Target-Variant", "v1")] * 2 + [("X-Amzn-SageMaker-Target-Variant", "v2")] * 3
    clients = [plane.client() for _ in headers]
    for client, header in zip(clients, headers, strict=True):
        client.ask(deployed.invocations, prefix(0), [header])
    wait_until(lambda: deployed.in_flight == 5)
    busy = list(deployed.busy().values())
    release(deployed, gates)
    assert {client.read().status for client in clients} == {200}
    for client in clients:
        client.close()
    assert busy[:2] == [1, 1]
    assert sorted(busy[2:]) == [0, 3]


def test_endpoints_that_share_a_host_count_apart(plane: DataPlane, fleet: Fleet) -> None:
    """Counts belong to an endpoint's instance: eA's load is not eB's, and removing eA leaves eB's counts."""
    hosts = fleet.hosts.make(2)
    first, second = fleet.deploy(hosts, threshold=1), fleet.deploy(hosts, threshold=1)
    with plane.client() as client:
        home = invoke(client, first, prefix(0))
        assert invoke(client, second, prefix(0)) == home
        gate = first.host(home).hold()
        with asking(plane, [(first.invocations, prefix(0)), (second.invocations, prefix(0))]) as held:
            wait_until(lambda: first.host(home).in_flight == 2)
            first.host(home).answer = echo
            fleet.stage.routes.remove(first.name)
            fleet.stage.settle()
            assert invoke(client, second, prefix(0)) != home
            gate.open()
            assert [client.read().status for client in held] == [200, 200]


@pytest.mark.parametrize("route", ["stream", "chat", "invocations"])
def test_a_request_holds_its_place_to_its_last_byte(plane: DataPlane, fleet: Fleet, route: str) -> None:
    """Threshold 1: while home is in the middle of an answer, an equal request goes elsewhere, on every route."""
    deployed = fleet.deploy(2, threshold=1)
    target, body = getattr(deployed, route), chat_body("x", stream=True)
    with plane.client() as client, plane.client() as held:
        assert client.request(target, body).status == 200
        (home,) = (host for host in deployed.hosts if host.deliveries)
        gate = home.hold(before_head=False)
        head = held.ask(target, body).read_head()
        assert head.status == 200
        chunks = held.chunks(head)
        next(chunks)
        assert client.request(target, body).status == 200
        assert [len(host.deliveries) for host in deployed.others(home.name)] == [1]
        gate.open()
        list(chunks)

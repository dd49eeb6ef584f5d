"""Where requests go when nothing is in the way: homes, shares, growth of the fleet, and the other strategies."""

from collections import Counter

import pytest
from msgspec.structs import replace

from tests.dataplane_e2e.stage import Deployed, Fleet, asking, bodies_at, homes, invoke, prefix
from tests.fakes.answers import Answer, echo
from tests.fakes.data_plane import DataPlane
from tests.waiting import wait_until

PREFIXES = [prefix(number) for number in range(400)]


def test_a_fifth_host_takes_its_share_and_no_more(plane: DataPlane, second_plane: DataPlane, fleet: Fleet) -> None:
    """400 prefixes over 4 hosts through 2 workers, and after a restart; then a fifth host joins."""
    deployed = fleet.deploy(4)
    with plane.client() as one, second_plane.client() as two:
        before = homes(one, deployed, PREFIXES)
        assert homes(two, deployed, PREFIXES) == before
    shares = Counter(before)
    assert min(shares.values()) >= 70, shares
    restarted = fleet.stage.start(settings={"LEASE_SECONDS": 1})
    with restarted.client() as client:
        assert homes(client, deployed, PREFIXES) == before
    assert restarted.stop() == 0
    wait_until(lambda: len(fleet.stage.routes.applied()) == _running(fleet))
    grown = fleet.change(deployed, [*deployed.hosts, fleet.hosts.one()])
    with plane.client() as one, second_plane.client() as two:
        after = homes(one, grown, PREFIXES)
        assert homes(two, grown, PREFIXES) == after
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert 0.12 * 400 <= len(moved) <= 0.28 * 400
    assert set(moved) == {"h5"}


def _running(fleet: Fleet) -> int:
    return sum(plane.workers for plane in fleet.stage.planes if plane.process is not None)


def test_a_host_that_leaves_moves_only_its_own_keys(plane: DataPlane, fleet: Fleet) -> None:
    """B.3 rule 9"""
    deployed = fleet.deploy(5)
    with plane.client() as client:
        before = homes(client, deployed, PREFIXES)
        smaller = fleet.change(deployed, deployed.hosts[1:])
        after = homes(client, smaller, PREFIXES)
    assert all(old == new for old, new in zip(before, after, strict=True) if old != "h1")
    assert len({new for old, new in zip(before, after, strict=True) if old == "h1"}) == 4


@pytest.mark.parametrize("scheme", ["h{}", "{}1", "host-{}.example:900"])
def test_seven_hosts_get_even_shares(plane: DataPlane, fleet: Fleet, scheme: str) -> None:
    """3,500 distinct prefixes, every host within 20% of 500, whatever the hosts are called."""
    names = [scheme.format(number) for number in range(7)]
    deployed = fleet.deploy(fleet.hosts.make(names=names))
    shares = Counter(_homes_quickly(plane, deployed, range(3_500)))
    assert {name: shares[name] for name in names if not 400 <= shares[name] <= 600} == {}


def test_names_that_extend_each_other_do_not_collide(plane: DataPlane, fleet: Fleet) -> None:
    """H1, h11, h111: within 20% of the mean."""
    deployed = fleet.deploy(fleet.hosts.make(names=["h1", "h11", "h111"]))
    shares = Counter(_homes_quickly(plane, deployed, range(3_000)))
    assert all(800 <= shares[name] <= 1_200 for name in ("h1", "h11", "h111")), shares


def _homes_quickly(plane: DataPlane, deployed: Deployed, numbers: range) -> list[str]:
    """Return the home of each prefix; requests are pipelined, so at most one is in flight."""
    with plane.client() as client:
        found = []
        for start in range(0, len(numbers), 100):
            batch = numbers[start : start + 100]
            for number in batch:
                client.ask(deployed.invocations, b"%d distinct" % number)
            found += [client.read().body.split(b'"')[3].decode() for _ in batch]
        return found


def test_hosts_on_one_address_are_told_apart(plane: DataPlane, fleet: Fleet) -> None:
    """With one of four ports busy, the other three are not."""
    deployed = fleet.deploy(4, threshold=1)
    with plane.client() as client:
        others = {name: bodies_at(client, deployed, name, 1)[0] for name in ("h2", "h3", "h4")}
        (mine,) = bodies_at(client, deployed, "h1", 1)
        gate = deployed.host("h1").hold()
        with asking(plane, [(deployed.invocations, mine)]) as (held,):
            wait_until(lambda: deployed.in_flight == 1)
            assert {name: invoke(client, deployed, body) for name, body in others.items()} == {
                name: name for name in others
            }
            gate.open()
            assert held.read().status == 200


def test_random_sends_each_request_once_and_spreads(plane: DataPlane, fleet: Fleet) -> None:
    """300 requests, each host 60 to 140."""
    deployed = fleet.deploy(3, "RANDOM")
    with plane.client() as client:
        for number in range(300):
            invoke(client, deployed, b"%d" % number)
    assert deployed.delivered == 300
    assert all(60 <= count <= 140 for count in deployed.shares().values()), deployed.shares()


def test_least_outstanding_uses_all_idle_hosts(plane: DataPlane, fleet: Fleet) -> None:
    """Ties are not broken by position: 100 requests one by one reach all 6 hosts."""
    deployed = fleet.deploy(6, "LEAST_OUTSTANDING_REQUESTS")
    with plane.client() as client:
        for _ in range(100):
            invoke(client, deployed, b"x")
    assert min(deployed.shares().values()) >= 3, deployed.shares()


def test_least_outstanding_levels_a_burst_over_two_workers(
    plane: DataPlane, second_plane: DataPlane, fleet: Fleet
) -> None:
    """40 at once over 4 idle hosts, counted when they are chosen: 8 to 12 on each."""
    deployed = fleet.deploy(4, "LEAST_OUTSTANDING_REQUESTS")
    gates = [host.hold() for host in deployed.hosts]
    burst = [(deployed.invocations, b"x")] * 20
    with asking(plane, burst) as first, asking(second_plane, burst) as second:
        wait_until(lambda: deployed.in_flight == 40)
        busy = deployed.busy()
        for gate in gates:
            gate.open()
        assert {client.read().status for client in [*first, *second]} == {200}
    assert all(8 <= count <= 12 for count in busy.values()), busy


def test_a_newcomer_gets_its_share_of_a_burst_not_all(plane: DataPlane, second_plane: DataPlane, fleet: Fleet) -> None:
    """4 hosts hold 20 each; a fifth joins; 60 more level all five at 28."""
    deployed = fleet.deploy(4, "LEAST_OUTSTANDING_REQUESTS")
    gates = [host.hold() for host in deployed.hosts]
    first = [(deployed.invocations, b"x")] * 40
    with asking(plane, first) as one, asking(second_plane, first) as two:
        wait_until(lambda: deployed.in_flight == 80)
        assert set(deployed.busy().values()) == {20}
        newcomer = fleet.hosts.one()
        gates.append(newcomer.hold())
        grown = fleet.change(deployed, [*deployed.hosts, newcomer], strategy="LEAST_OUTSTANDING_REQUESTS")
        more = [(grown.invocations, b"x")] * 30
        with asking(plane, more) as three, asking(second_plane, more) as four:
            wait_until(lambda: grown.in_flight == 140)
            busy = grown.busy()
            for gate in gates:
                gate.open()
            assert {client.read().status for client in [*one, *two, *three, *four]} == {200}
    assert all(27 <= count <= 29 for count in busy.values()), busy


def test_least_outstanding_ignores_prefixes(plane: DataPlane, fleet: Fleet) -> None:
    """With one host busy, equal bodies go to the others."""
    deployed = fleet.deploy(3, "LEAST_OUTSTANDING_REQUESTS")
    gates = [host.hold() for host in deployed.hosts]
    with asking(plane, [(deployed.invocations, prefix(0))]) as (held,):
        wait_until(lambda: deployed.in_flight == 1)
        busy = next(host for host in deployed.hosts if host.in_flight)
        for host in deployed.others(busy.name):
            host.answer = echo
        with plane.client() as client:
            assert busy.name not in {invoke(client, deployed, prefix(0)) for _ in range(12)}
        for gate in gates:
            gate.open()
        assert held.read().status == 200


@pytest.mark.parametrize("strategy", ["PREFIX_AWARE", "LEAST_OUTSTANDING_REQUESTS", "RANDOM"])
def test_one_host_takes_everything(plane: DataPlane, fleet: Fleet, strategy: str) -> None:
    """A threshold of 1 and 10 at once."""
    deployed = fleet.deploy(1, strategy, threshold=1)
    gate = deployed.hosts[0].hold()
    with asking(plane, [(deployed.invocations, b"x")] * 10) as clients:
        wait_until(lambda: deployed.in_flight == 10)
        gate.open()
        assert [client.read().status for client in clients] == [200] * 10


def test_a_strategy_changes_under_open_requests(plane: DataPlane, fleet: Fleet) -> None:
    """Open requests finish, later ones follow the new rule; hosts are not asked anything."""
    deployed = fleet.deploy(3)
    with plane.client() as client:
        home = invoke(client, deployed, prefix(0))
        host = deployed.host(home)
        gate = host.hold()
        with asking(plane, [(deployed.invocations, prefix(0)), (deployed.stream, prefix(0))]) as held:
            wait_until(lambda: host.in_flight == 2)
            changed = fleet.change(deployed, deployed.hosts, strategy="LEAST_OUTSTANDING_REQUESTS")
            assert home not in {invoke(client, changed, prefix(0)) for _ in range(12)}
            # The two from before still count: one more fits below the threshold, the next does not.
            back = fleet.change(deployed, deployed.hosts, threshold=3)
            with asking(plane, [(back.invocations, prefix(0))]) as (third,):
                wait_until(lambda: host.in_flight == 3)
                assert invoke(client, back, prefix(0)) != home
                gate.open()
                assert {client.read().status for client in (*held, third)} == {200}


def test_a_change_of_prefix_length_holds_for_the_next_request(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(4)
    bodies = [prefix(0) + b"%d" % number for number in range(24)]
    with plane.client() as client:
        assert len(set(homes(client, deployed, bodies))) == 1
        fleet.change(deployed, deployed.hosts, prefix_length=2_048)
        assert len(set(homes(client, deployed, bodies))) > 1


def test_a_host_that_is_not_healthy_gets_nothing_until_it_answers_a_probe(plane: DataPlane, fleet: Fleet) -> None:
    """The control plane's word holds until the worker's own probe succeeds."""
    deployed = fleet.deploy(2, "RANDOM")
    hosts = deployed.hosts
    hosts[1].ping = Answer(body=b"", status=503)
    (one,) = deployed.endpoint.variants
    sick = replace(one, instances=(one.instances[0], replace(one.instances[1], healthy=False)))
    fleet.stage.routes.put(replace(deployed.endpoint, variants=(sick,)))
    fleet.stage.settle()
    with plane.client() as client:
        assert {invoke(client, deployed, b"x") for _ in range(40)} == {"h1"}
        hosts[1].ping = Answer(body=b"")
        wait_until(lambda: invoke(client, deployed, b"x") == "h2")

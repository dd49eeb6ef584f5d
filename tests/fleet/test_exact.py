"""Exact admission: what a fleet of workers counts as one, in every interleaving that a hundred rounds bring."""

import random
from collections import Counter

from tests.dataplane_e2e.stage import Deployed, Fleet, asking, chat, chat_body, invoke, prefix
from tests.fakes.data_plane import DataPlane
from tests.fakes.model_host import HostThread
from tests.fakes.raw_client import request_bytes
from tests.fleet.link import Link
from tests.fleet.stage import JSON, LEASE_SECONDS, SETTINGS, counted, held, hold_all, let_go, wait_true, working
from tests.waiting import wait_until

ROUNDS = 100


def text_at(plane: DataPlane, deployed: Deployed, home: str) -> bytes:
    """Return a chat body whose home is this host."""
    with plane.client() as client:
        return next(body for n in range(100) if chat(client, deployed, body := chat_body(f"text {n} " * 200)) == home)


def test_a_homes_peak_is_the_threshold_in_100_of_100_rounds(planes: list[DataPlane], fleet: Fleet) -> None:
    """Threshold 4, 3 hosts, 12 at once over two workers, native and chat mixed: 4 on each host, all answered."""
    deployed = fleet.deploy(3, threshold=4)
    key = prefix(0)
    with planes[0].client() as client:
        home = invoke(client, deployed, key)
    text = text_at(planes[0], deployed, home)
    requests = [request_bytes(deployed.invocations, key, JSON), request_bytes(deployed.chat, text, JSON)]
    targets = [(deployed.invocations, key), (deployed.chat, text)] * 3
    with asking(planes[0], targets) as one, asking(planes[1], targets) as two:
        clients = [*one, *two]
        assert {client.read().status for client in clients} == {200}
        dice, peaks = random.Random(1), Counter[tuple[int, ...]]()
        for number in range(ROUNDS):
            # A release on its way while the next round begins would make this round's counts too high, and right.
            wait_until(lambda: not counted(fleet, deployed))
            for host in deployed.hosts:
                host.clear()
            gates = hold_all(deployed)
            dice.shuffle(clients)
            for place, client in enumerate(clients):
                client.send(requests[(place + number) % 2])
            wait_until(lambda: deployed.in_flight == 12)
            peaks[tuple(host.peak for host in deployed.hosts)] += 1
            let_go(deployed, gates)
            assert [client.read().status for client in clients] == [200] * 12
    assert peaks == {(4, 4, 4): ROUNDS}


def test_a_newcomer_is_not_flooded(planes: list[DataPlane], fleet: Fleet) -> None:
    """LEAST_OUTSTANDING_REQUESTS, 4 hosts with 20 each, a fifth joins, 60 at once from 3 workers: 28 each."""
    before = fleet.deploy(4, "LEAST_OUTSTANDING_REQUESTS")
    with held(planes, before, [(before.invocations, b"old")] * 80):
        assert list(before.busy().values()) == [20] * 4
        hosts = [*before.hosts, fleet.hosts.one("newcomer")]
        deployed = fleet.change(before, hosts, strategy="LEAST_OUTSTANDING_REQUESTS")
        with held(planes, deployed, [(deployed.invocations, b"new")] * 60):
            assert list(deployed.busy().values()) == [28] * 5


def test_a_burst_is_spread_evenly(planes: list[DataPlane], fleet: Fleet) -> None:
    """LEAST_OUTSTANDING_REQUESTS, 4 idle hosts, 40 at once through two workers: 10 each, in every round."""
    deployed = fleet.deploy(4, "LEAST_OUTSTANDING_REQUESTS")
    for _ in range(5):
        wait_until(lambda: not counted(fleet, deployed))
        with held(planes[:2], deployed, [(deployed.invocations, b"x")] * 40):
            assert list(deployed.busy().values()) == [10] * 4


def test_random_requests_count_for_what_comes_after(planes: list[DataPlane], fleet: Fleet) -> None:
    """9 held at random, then the strategy is switched live: the fewest in flight are filled up first."""
    before = fleet.deploy(3, "RANDOM")
    with held(planes, before, [(before.invocations, b"x")] * 9):
        # They were sent without waiting for Redis, which hears of them a little later.
        wait_true(fleet, before, LEASE_SECONDS)
        most = max(before.busy().values())
        deployed = fleet.change(before, before.hosts, strategy="LEAST_OUTSTANDING_REQUESTS")
        with held(planes, deployed, [(deployed.invocations, b"x")] * (3 * most - 9)):
            assert list(deployed.busy().values()) == [most] * 3


def test_random_waits_for_no_answer_of_redis(fleet: Fleet, planes: list[DataPlane], hosts_thread: HostThread) -> None:
    """Redis cannot answer: a RANDOM request is sent at once and as ever, and is counted when Redis hears of it."""
    stage = fleet.stage
    link = Link(hosts_thread, int(stage.routes.redis.connection_pool.connection_kwargs["port"]))
    plane = DataPlane(link.url, stage.directory / "linked", settings=SETTINGS)
    try:
        plane.start()
        stage.planes.append(plane)
        deployed, keyed = fleet.deploy(2, "RANDOM"), fleet.deploy(2)
        wait_until(lambda: plane.metric("warmroute_store_up") == 1)
        link.cut()
        with held([plane], deployed, [(deployed.invocations, b"x")]), held([plane], keyed, [(keyed.invocations, b"x")]):
            assert counted(fleet, deployed) == counted(fleet, keyed) == {}
            link.mend()
            wait_until(lambda: counted(fleet, deployed) == working(deployed) != {})
        degraded = {x.name: plane.metric("warmroute_route_degraded_total", endpoint=x.name) for x in (deployed, keyed)}
        assert degraded == {deployed.name: 0, keyed.name: 1}
    finally:
        stage.planes.remove(plane)
        plane.stop()
        link.close()

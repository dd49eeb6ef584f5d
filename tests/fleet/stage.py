"""Short ways to hold requests open on a fleet and to compare what Redis counts with what the hosts see."""

import contextlib
from collections.abc import Iterator, Sequence

from tests.dataplane_e2e.conftest import SHARED
from tests.dataplane_e2e.stage import Deployed, Fleet
from tests.fakes.answers import Gate, echo
from tests.fakes.data_plane import DataPlane
from tests.fakes.raw_client import RawClient, request_bytes
from tests.waiting import wait_until

LEASE_SECONDS = 2.0
RESYNC_SECONDS = 1.0
SETTINGS = {**SHARED, "LEASE_SECONDS": LEASE_SECONDS, "RESYNC_SECONDS": RESYNC_SECONDS}
PATIENT = {**SETTINGS, "STORE_BUDGET_SECONDS": 0.5}
"""For tests of exactness: on a machine that is busy with other tests, a worker may be held up for longer than 20 ms."""
JSON = [("Content-Type", "application/json")]

Target = tuple[str, bytes]
"""Path and body."""


def hold_all(deployed: Deployed) -> list[Gate]:
    """Hold every host's later requests, each host behind a gate of its own."""
    return [host.hold() for host in deployed.hosts]


def let_go(deployed: Deployed, gates: Sequence[Gate]) -> None:
    """Open the gates and answer later requests at once."""
    for host in deployed.hosts:
        host.answer = echo
    for gate in gates:
        gate.open()


@contextlib.contextmanager
def held(planes: Sequence[DataPlane], deployed: Deployed, targets: Sequence[Target]) -> Iterator[list[RawClient]]:
    """Hold requests open on the hosts, sent through the planes in turn; later ones are answered at once.

    Afterwards all of them must be answered 200.
    """
    before = deployed.in_flight
    gates = hold_all(deployed)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(planes[n % len(planes)].client()) for n in range(len(targets))]
        for client, (target, body) in zip(clients, targets, strict=True):
            client.send(request_bytes(target, body, JSON))
        wait_until(lambda: deployed.in_flight == before + len(targets), what=f"all are held, {deployed.busy()} are")
        for host in deployed.hosts:
            host.answer = echo
        try:
            yield clients
        finally:
            for gate in gates:
                gate.open()
        assert [client.read().status for client in clients] == [200] * len(targets)


def counted(fleet: Fleet, deployed: Deployed) -> dict[str, int]:
    """Return host name -> requests in flight that Redis counts over all workers."""
    found = fleet.stage.routes.in_flight(deployed.endpoint)
    return {identity.rpartition("/")[2]: count for identity, count in found.items()}


def working(deployed: Deployed) -> dict[str, int]:
    """Return host name -> requests the host is working on, hosts without any left out."""
    return {name: count for name, count in deployed.busy().items() if count}


def wait_true(fleet: Fleet, deployed: Deployed, limit_seconds: float) -> None:
    """Wait until Redis counts what the hosts are working on, host by host."""
    wait_until(
        lambda: counted(fleet, deployed) == working(deployed),
        limit_seconds,
        f"counts are true: {counted(fleet, deployed)} in Redis, {working(deployed)} on the hosts",
    )


def is_true_under_load(fleet: Fleet, deployed: Deployed, held: dict[str, int]) -> bool:
    """Tell whether Redis counts what is held open and no more, or what the hosts are working on just now.

    On a busy machine requests of the load are open at every moment. What stays wrong, the check after the load finds.
    """
    return counted(fleet, deployed) in (held, working(deployed))


def expect_exact(
    fleet: Fleet, planes: Sequence[DataPlane], deployed: Deployed, target: Target, home: str, threshold: int
) -> None:
    """Check that twice the threshold and one at once, over all planes, put exactly the threshold on their home.

    What is open before stays; it must be less than the threshold on the home. A round does not count in which a worker,
    held up by a busy machine, did not wait for Redis.
    """
    for _ in range(20):
        wait_true(fleet, deployed, 10.0)
        before = degraded(planes, deployed)
        with held(planes, deployed, [target] * (2 * threshold + 1)):
            on_home = deployed.busy()[home]
        if degraded(planes, deployed) == before:
            assert on_home == threshold
            return
    raise AssertionError("no round in which every request was admitted by Redis")


def degraded(planes: Sequence[DataPlane], deployed: Deployed) -> float:
    """Return how many requests were decided without Redis."""
    return sum(plane.metric("warmroute_route_degraded_total", endpoint=deployed.name) for plane in planes)


def worker_pid(plane: DataPlane) -> int:
    """Return the process id of the plane's only worker."""
    return plane.pids()[-1]

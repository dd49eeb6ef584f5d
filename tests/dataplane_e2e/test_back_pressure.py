"""Clients that do not read: their hosts are held back, the worker stays small, others are served."""

import contextlib
import hashlib
import threading
import time

from tests.dataplane_e2e.stage import Fleet, chat_body, frames, invoke, payload
from tests.fakes.answers import Flood, Gate, sse
from tests.fakes.data_plane import DataPlane
from tests.fakes.raw_client import RawClient
from tests.waiting import wait_until


def test_a_slow_reader_holds_back_its_host(plane: DataPlane, fleet: Fleet) -> None:
    """3 clients that do not read: the host is stopped, the worker stays small, others are served, all is whole."""
    deployed = fleet.deploy(1)
    quiet = fleet.deploy(1)
    total = 32 * 2**20
    deployed.hosts[0].answer = flood = Flood(total)
    before = plane.worker_bytes()
    targets = [deployed.chat, deployed.stream, deployed.invocations]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(plane.client()) for _ in targets]
        for client, target in zip(clients, targets, strict=True):
            client.ask(target, chat_body("x"))
        wait_until(lambda: deployed.in_flight == 3)
        sent = [-1]

        def is_steady() -> bool:
            sent.append(sum(delivery.bytes_sent for delivery in deployed.hosts[0].deliveries))
            time.sleep(0.2)
            return sent[-1] == sent[-2] > 0

        wait_until(is_steady)
        assert max(delivery.bytes_sent for delivery in deployed.hosts[0].deliveries) < 8 * 2**20
        assert plane.worker_bytes() - before < 4 * 2**20
        started = time.monotonic()
        with plane.client() as other:
            invoke(other, quiet, b"{}")
        assert time.monotonic() - started < 1
        expected = hashlib.sha256(flood.block * (total // len(flood.block))).digest()
        bodies = _read_all(clients)
    bodies[1] = payload(frames(bodies[1]))
    assert [hashlib.sha256(body).digest() for body in bodies] == [expected] * 3


def _read_all(clients: list[RawClient]) -> list[bytes]:
    found: dict[int, bytes] = {}

    def read(number: int) -> None:
        found[number] = clients[number].read().body

    threads = [threading.Thread(target=read, args=(number,)) for number in range(len(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[number] for number in range(len(clients))]


def test_many_clients_that_leave_large_streams_stall_nobody(plane: DataPlane, fleet: Fleet) -> None:
    """30 streams of 5 MiB reset at once, while health and a small invocation are asked for."""
    deployed = fleet.deploy(1)
    quiet = fleet.deploy(1)
    deployed.hosts[0].answer = sse(b"x" * 5 * 2**20, Gate())
    clients = [plane.client() for _ in range(30)]
    for client in clients:
        client.ask(deployed.chat, chat_body("x", stream=True))
    wait_until(lambda: deployed.in_flight == 30)
    for client in clients:
        client.read_head()
    for client in clients:
        client.reset()
    slowest = 0.0
    with plane.client() as probe:
        for _ in range(40):
            started = time.monotonic()
            assert probe.request("/health/live", method="GET").status == 200
            invoke(probe, quiet, b"{}")
            slowest = max(slowest, time.monotonic() - started)
    assert slowest < 1
    wait_until(lambda: deployed.in_flight == 0, 2.0)

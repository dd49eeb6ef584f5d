"""The supervisor: real processes on one port. How a drain treats requests is tested in dataplane_e2e."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock, patch

import pytest

from contract.settings import Settings, SettingsError
from dataplane import main
from dataplane.main import StartupError
from tests.fakes.answers import echo
from tests.fakes.certificates import Authority
from tests.fakes.data_plane import DataPlane
from tests.fakes.model_host import Hosts, ModelHost, host_thread
from tests.fakes.raw_client import RawClient
from tests.fakes.routes import Routes, endpoint, instance, variant
from tests.waiting import wait_until, wait_until_async
from warmroute.embedded.processes import alive, children

WORKERS = 2
INVOCATIONS = "/endpoints/e/invocations"


@pytest.fixture(scope="module")
def hosts(redis_url: str) -> Iterator[list[ModelHost]]:
    """Two hosts behind one endpoint, in the routing table."""
    with host_thread() as thread, contextlib.ExitStack() as stack:
        made = Hosts(thread)
        stack.callback(made.close)
        routes = Routes(redis_url)
        stack.callback(routes.close)
        two = made.make(2)
        routes.put(endpoint("e", variant([instance(host) for host in two])))
        yield two


@pytest.fixture(scope="module")
def plane(redis_url: str, hosts: list[ModelHost], tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataPlane]:
    """Two workers."""
    plane = DataPlane(redis_url, tmp_path_factory.mktemp("plane"), workers=WORKERS, settings={"DRAIN_SECONDS": 5})
    try:
        yield plane.start()
    finally:
        plane.close()


def invoke(plane: DataPlane) -> int:
    """Send one request on a connection of its own."""
    with RawClient(plane.port) as client:
        client.ask(INVOCATIONS, b"hello")
        return client.read().status


def workers(plane: DataPlane) -> list[int]:
    return plane.pids()[1:]


# --- starting --------------------------------------------------------------------------------------------------------


def test_a_plane_has_a_parent_and_its_workers(plane: DataPlane) -> None:
    assert len(workers(plane)) == WORKERS
    assert plane.metric("warmroute_workers") == WORKERS


def run(settings: Settings, host: str = "127.0.0.1", port: int = 0, directory: Path | None = None) -> int:
    return main.run(settings, host, port, 1, directory)


SETTINGS = Settings(redis_url="redis://127.0.0.1:1")


def test_without_a_store_in_the_settings_nothing_starts() -> None:
    with pytest.raises(SettingsError, match="WARMROUTE_REDIS_URL is not set"):
        run(Settings())


def test_authentication_needs_the_secret_key() -> None:
    """A worker that found out later would turn everybody away."""
    with pytest.raises(SettingsError, match="WARMROUTE_AUTH=on needs WARMROUTE_SECRET_KEY or WARMROUTE_SECRET_KEY_"):
        run(replace(SETTINGS, auth="on"))
    with pytest.raises(SettingsError, match="WARMROUTE_SECRET_KEY is no key"):
        run(replace(SETTINGS, auth="on", secret_key="guess"))


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "example.internal"])
def test_with_authentication_any_address_is_listened_on(host: str) -> None:
    main._check_doors(replace(SETTINGS, auth="on", secret_key="A" * 43 + "="), host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.internal", "", "127.0.0.1.example"])
def test_without_authentication_only_loopback_is_listened_on(host: str) -> None:
    with pytest.raises(StartupError, match="accepted on loopback addresses only"):
        run(SETTINGS, host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_loopback_has_many_names(host: str) -> None:
    main._check_doors(SETTINGS, host)


def test_a_port_that_is_taken_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(StartupError, match="cannot listen on 127"):
        run(SETTINGS, port=taken.getsockname()[1])


def test_the_port_of_another_plane_is_taken(plane: DataPlane) -> None:
    """Its workers share it among themselves, which would let a stranger in unnoticed."""
    with pytest.raises(StartupError, match=f"cannot listen on 127.0.0.1 port {plane.port}: .*; choose another"):
        run(SETTINGS, port=plane.port)
    assert invoke(plane) == 200


def test_a_directory_that_cannot_be_used_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError, match=r"--data-dir .* cannot be used"):
        run(SETTINGS, directory=tmp_path / "file")


def test_workers_share_a_port_by_listeners_of_their_own() -> None:
    listeners = main._listen("127.0.0.1", 0, 3)
    with contextlib.ExitStack() as stack:
        for listener in listeners:
            stack.enter_context(listener)
        assert len({listener.getsockname() for listener in listeners}) == 1
        assert len({listener.fileno() for listener in listeners}) == 3


def test_workers_are_not_told_the_database() -> None:
    settings = replace(
        SETTINGS,
        environ={"WARMROUTE_DATABASE_URL": "postgresql://secret", "WARMROUTE_LEASE_SECONDS": "3"},
    )
    environment = main._environment(settings)
    assert "WARMROUTE_DATABASE_URL" not in environment
    assert environment["WARMROUTE_LEASE_SECONDS"] == "3"
    assert environment["WARMROUTE_REDIS_URL"] == "redis://127.0.0.1:1"


def test_metrics_of_an_earlier_run_are_removed(tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "0.metrics").write_text("old")
    main._make(tmp_path)
    assert list((tmp_path / "metrics").iterdir()) == []


def test_a_worker_that_cannot_start_ends_the_start(tmp_path: Path) -> None:
    """With its reason in the log, within seconds, and with nothing left running."""
    program = (
        "import sys; from contract.settings import Settings; from dataplane import main\n"
        "s = Settings(redis_url='redis://127.0.0.1:1', environ={'WARMROUTE_LEASE_SECONDS': 'never'})\n"
        "try: main.run(s, '127.0.0.1', 0, 2, None)\n"
        "except main.StartupError as error: sys.exit(f'said: {error}')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)
    assert "said: a worker did not start; its log says why" in done.stderr
    assert "WARMROUTE_LEASE_SECONDS" in done.stderr


async def test_a_worker_that_cannot_be_started_anew_is_tried_again(
    redis_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No memory or no processes left, and a full disk for the counters of the one that ended."""
    main._make(tmp_path)
    settings = replace(SETTINGS, redis_url=redis_url, environ={"WARMROUTE_REDIS_URL": redis_url})
    supervisor = main._Supervisor(settings, main._listen("127.0.0.1", 0, 1), tmp_path)
    refusals = [
        BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ]
    execute, ready = supervisor._execute, asyncio.Event()

    async def scarce(slot: int, pipe: socket.socket) -> asyncio.subprocess.Process:
        if ready.is_set() and refusals:
            raise refusals.pop()
        return await execute(slot, pipe)

    with (
        patch.object(supervisor, "_execute", scarce),
        patch.object(main, "absorb", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))),
    ):
        running = asyncio.create_task(supervisor.run(lambda port: ready.set()))
        await asyncio.wait_for(ready.wait(), 15)
        first = supervisor._processes[0]
        first.kill()
        await wait_until_async(lambda: supervisor._processes[0] is not first, 15.0)
        supervisor._ended()
        assert await asyncio.wait_for(running, 15) == 0
    assert not refusals
    assert caplog.text.count("worker 0 cannot be started") == 2
    assert "counters of worker 0 are lost" in caplog.text


# --- running ---------------------------------------------------------------------------------------------------------


def test_a_killed_worker_is_replaced_and_who_waits_is_served(plane: DataPlane) -> None:
    """Connections that came to its queue while it was dead are answered by its successor."""
    victim, other = workers(plane)
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: victim not in workers(plane))
    clients = [RawClient(plane.port) for _ in range(24)]
    for client in clients:
        client.ask(INVOCATIONS, b"waited")
    assert [client.read().status for client in clients] == [200] * 24
    for client in clients:
        client.close()
    wait_until(lambda: len(workers(plane)) == WORKERS)
    assert other in workers(plane)
    wait_until(lambda: plane.metric("warmroute_workers") == WORKERS)


@contextlib.contextmanager
def traffic(send: Callable[[], int], threads: int = 4) -> Iterator[list[object]]:
    """Call ``send`` all the time; yield what came of it."""
    results: list[object] = []
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            try:
                results.append(send())
            except Exception as error:
                results.append(error)

    started = [threading.Thread(target=go_on) for _ in range(threads)]
    for thread in started:
        thread.start()
    try:
        yield results
    finally:
        over.set()
        for thread in started:
            thread.join()


def test_a_reload_replaces_every_worker_and_loses_no_request(plane: DataPlane) -> None:
    before = set(workers(plane))
    with traffic(lambda: invoke(plane)) as results:
        wait_until(lambda: len(results) > 20)
        plane.signal(signal.SIGHUP)
        wait_until(lambda: len(workers(plane)) == WORKERS and not before & set(workers(plane)), 20.0)
        seen = len(results)
        wait_until(lambda: len(results) > seen + 20)
    assert [result for result in results if result != 200] == []


def test_counters_survive_a_reload(redis_url: str, hosts: list[ModelHost], tmp_path: Path) -> None:
    """Also what the old workers answer while their successors are here already: a sum never falls."""
    plane = DataPlane(redis_url, tmp_path, workers=WORKERS).start()
    before = set(workers(plane))
    with traffic(lambda: invoke(plane)) as results:
        wait_until(lambda: len(results) > 20)
        plane.signal(signal.SIGHUP)
        wait_until(lambda: len(workers(plane)) == WORKERS and not before & set(workers(plane)), 20.0)
    wanted = len(results)
    wait_until(
        lambda: plane.metric("warmroute_requests_total", route="invoke", status="200") == wanted,
        3.0,
        f"{wanted} in all",
    )
    plane.close()


def test_a_reload_with_a_certificate_that_cannot_be_used_changes_nothing(redis_url: str, tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue()
    settings = {"TLS_CERT_FILE": certificate, "TLS_KEY_FILE": key}
    plane = DataPlane(redis_url, tmp_path / "plane", workers=WORKERS, settings=settings).start(wait=False)
    before = workers(plane)
    certificate.write_text("no certificate")
    plane.signal(signal.SIGHUP)
    wait_until(lambda: "SIGHUP: the workers stay as they are: WARMROUTE_TLS_CERT_FILE" in plane.output)
    assert workers(plane) == before
    plane.close()


def test_a_signal_during_the_start_ends_it(redis_url: str) -> None:
    program = (
        "import sys; from contract.settings import Settings; from dataplane import main\n"
        f"sys.exit(main.run(Settings(redis_url={redis_url!r}), '127.0.0.1', 0, 2, None))"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL, start_new_session=True)
    started = wait_until(lambda: children(parent.pid))
    parent.terminate()
    assert parent.wait(10) == 0
    assert not any(alive(pid) for pid in started)


def test_the_end_is_told_to_everybody_and_waited_for(redis_url: str, hosts: list[ModelHost], tmp_path: Path) -> None:
    plane = DataPlane(redis_url, tmp_path, workers=2).start()
    assert plane.stop() == 0, "and no process is left"
    with socket.create_server(("127.0.0.1", plane.port)):
        plane.close()


def test_what_was_begun_before_the_end_is_answered(redis_url: str, hosts: list[ModelHost], tmp_path: Path) -> None:
    plane = DataPlane(redis_url, tmp_path, workers=1).start()
    gates = [host.hold() for host in hosts]
    with RawClient(plane.port) as client:
        client.ask(INVOCATIONS, b"hello")
        wait_until(lambda: any(host.in_flight for host in hosts))
        plane.signal(signal.SIGTERM)
        wait_until(lambda: plane.status("/health/live") == 0, what="no new connections are taken")
        for host, gate in zip(hosts, gates, strict=True):
            host.answer = echo
            gate.open()
        assert client.read().status == 200
    assert plane.process is not None
    assert plane.process.wait(10) == 0
    plane.close()

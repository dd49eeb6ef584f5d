"""Listening addresses are looked at before anything starts."""

import socket
import threading

import pytest

from tests.waiting import free_port
from warmroute import network
from warmroute.faults import Fault


def test_a_port_in_use_is_named_with_its_option() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            Fault, match=rf"^--data-port {port} is in use on 127\.0\.0\.1; .* give another --data-port$"
        ):
            network.claim_port("127.0.0.1", port, "--data-port")


def test_a_port_shared_by_workers_is_in_use() -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Fault, match="is in use"):
            network.claim_port("127.0.0.1", taken.getsockname()[1])


def test_a_port_that_is_about_to_be_free_is_waited_for() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        timer = threading.Timer(0.2, taken.close)
        timer.start()
        assert network.claim_port("127.0.0.1", port, patience_seconds=10) == port
        timer.join()


def test_a_free_port_is_returned_and_zero_becomes_one() -> None:
    port = free_port()
    assert network.claim_port("127.0.0.1", port) == port
    assert network.claim_port("127.0.0.1", 0) > 0


def test_a_connection_lingering_from_the_last_run_is_no_obstacle() -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = int(listener.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port)) as client:
            served, _ = listener.accept()
            served.close()  # The server closes first: its side lingers in TIME_WAIT.
            assert client.recv(1) == b""
    assert network.claim_port("127.0.0.1", port) == port


@pytest.mark.parametrize("host", ["no such name", "nowhere.invalid", "198.51.100.7"])
def test_an_address_of_no_interface_is_named(host: str) -> None:
    with pytest.raises(Fault, match=r"^--host .* is no address of this machine"):
        network.claim_port(host, 0)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
        ("localhost", "http://localhost:80"),
    ],
)
def test_url(host: str, url: str) -> None:
    assert network.url(host, 80) == url

"""What has ended is gone at once: between two full collections a worker would gather the bodies of megabytes."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from dataplane.wire.host_connection import READ_BYTES, HostConnection
from dataplane.wire.server import ClientConnection
from tests.dataplane.wire.test_host_connection import Exchange, Owner
from tests.dataplane.wire.test_server import Service, post
from tests.dataplane.wire.transport import ManualLoop, ManualTransport


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(kind: type) -> int:
    return sum(type(one) is kind for one in gc.get_objects())


@pytest.mark.parametrize("cut", [20, 200, None], ids=["in its head", "in its body", "while it is answered"])
def test_a_client_that_left_leaves_nothing(cut: int | None) -> None:
    connection = ClientConnection(service := Service(at_once=False))
    transport: Any = ManualTransport(service.loop, connection)
    connection.connection_made(transport)
    connection.data_received(post(b"/a", b"x" * 1_000)[:cut])
    connection.connection_lost(None)
    del connection, transport
    service.loop, service.responders = ManualLoop(), []
    assert alive(ClientConnection) == 0


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi"], ids=["silent", "midway"])
def test_a_host_that_left_leaves_nothing(answer: bytes) -> None:
    buffer = bytearray(READ_BYTES)
    connection = HostConnection(Owner(), buffer, None)
    transport: Any = ManualTransport(ManualLoop(), connection)
    connection.connection_made(transport)
    connection.send(Exchange(), b"POST / HTTP/1.1\r\n\r\n", b"")
    buffer[: len(answer)] = answer
    connection.buffer_updated(len(answer))
    connection.connection_lost(None)
    del connection, transport
    assert alive(HostConnection) == 0

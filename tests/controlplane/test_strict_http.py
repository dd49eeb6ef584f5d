"""Heads fed to the connection; what a client sees of it is tested over sockets, in test_hard_front."""

import itertools

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.strict_http import StrictConnection

HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nX: \xe9 y\tz\r\nContent-Length: 2\r\n\r\n"


def events(*reads: bytes) -> list[object]:
    connection, found = StrictConnection(h11.SERVER), []
    for data in reads:
        connection.receive_data(data)
        while True:
            event = connection.next_event()
            if event in (h11.NEED_DATA, h11.PAUSED):
                break
            found.append(event)
    return found


@given(st.lists(st.integers(0, len(HEAD) + 2), max_size=5))
def test_a_clear_head_is_read_however_it_comes(cuts: list[int]) -> None:
    data = HEAD + b"\n\x00"
    edges = sorted({0, len(data), *cuts})
    found = events(*(data[start:end] for start, end in itertools.pairwise(edges)))
    assert isinstance(found[0], h11.Request)
    assert b"".join(bytes(event.data) for event in found if isinstance(event, h11.Data)) == b"\n\x00"
    assert isinstance(found[-1], h11.EndOfMessage)


@pytest.mark.parametrize(
    "head",
    [
        HEAD.replace(b"\r\n", b"\n"),
        HEAD.replace(b"h\r\n", b"h\n"),
        HEAD.replace(b"h\r\n", b"h\r"),
        HEAD.replace(b"h\r\n", b"h\r\n "),
        HEAD.replace(b" y", b"\x1b"),
        HEAD.replace(b" y", b"\x7f"),
        HEAD.replace(b" y", b"\x00"),
        HEAD.replace(b"HTTP/1.1", b"HTTP/2.0"),
        HEAD.replace(b"Content", b"Transfer-Encoding: chunked\r\nContent"),
        HEAD.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Content-Length: 2", b"Transfer-Encoding: chunked"),
        HEAD.replace(b": h", b": h i"),
        HEAD.replace(b"Host: h", b"Host: h\r\nHost: h"),
    ],
)
def test_an_unclear_head_is_refused(head: bytes) -> None:
    with pytest.raises(h11.RemoteProtocolError):
        events(head + b"{}")
    with pytest.raises(h11.RemoteProtocolError):
        events(*(bytes([byte]) for byte in head), b"{}")

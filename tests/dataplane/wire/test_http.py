import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.wire.http import HOP_BY_HOP, LAST_CHUNK, Request, chunk, status_line


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (200, b"HTTP/1.1 200 OK\r\n"),
        (424, b"HTTP/1.1 424 Failed Dependency\r\n"),
        (530, b"HTTP/1.1 530 \r\n"),
        (799, b"HTTP/1.1 799 \r\n"),
    ],
)
def test_every_status_has_a_line(status: int, line: bytes) -> None:
    assert status_line(status) == line


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=5))
def test_chunks_give_back_the_body(parts: list[bytes]) -> None:
    """Read by the rules of RFC 9112, 7.1."""
    data, body = b"".join(map(chunk, parts)) + LAST_CHUNK, b""
    while True:
        size, _, data = data.partition(b"\r\n")
        if int(size, 16) == 0:
            break
        body, data = body + data[: int(size, 16)], data[int(size, 16) + 2 :]
    assert body == b"".join(parts)
    assert data == b"\r\n"


def test_headers_are_found_by_their_lower_case_name() -> None:
    request = Request(headers={b"a": b"1", b"b": b"2"}, repeated=[(b"a", b"3")])
    assert request.header(b"a") == b"1"
    assert request.header_values(b"a") == [b"1", b"3"]
    assert request.header(b"c") is None
    assert request.header_values(b"c") == []
    assert request.all_headers() == [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]


def test_what_is_hop_by_hop_is_written_as_names_are_kept() -> None:
    assert all(name == name.lower() for name in HOP_BY_HOP)
    assert {b"connection", b"transfer-encoding", b"upgrade"} <= HOP_BY_HOP
    assert b"content-encoding" not in HOP_BY_HOP

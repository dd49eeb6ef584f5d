"""The reader fed by hand. What a client sees of it is tested with its connection, in test_server."""

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.wire.http import Request
from dataplane.wire.request_reader import HEADER_BYTES_MAX, Refusal, RequestReader

GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
CHUNKED = b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


class Limits:
    body_bytes_max = 1_000

    def refuse_early(self, request: Request, content_length: int | None) -> bytes | None:
        return b"no" if request.target == b"/no" else None


@pytest.fixture
def reader() -> RequestReader:
    return RequestReader(Limits())


def feed(reader: RequestReader, *reads: bytes) -> None:
    for data in reads:
        reader.feed(data)


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5), st.data())
def test_bodies_do_not_depend_on_chunks_or_reads(bodies: list[bytes], data: st.DataObject) -> None:
    reader, sent = RequestReader(Limits()), b""
    for body in bodies:
        size = data.draw(st.integers(1, 20))
        parts = [body[start : start + size] for start in range(0, len(body), size)]
        sent += CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    while sent:
        size = data.draw(st.integers(1, len(sent)))
        reader.feed(sent[:size])
        sent = sent[size:]
    assert [request.body for request in reader.requests] == bodies
    assert reader.reading is None


@pytest.mark.parametrize("before", [b"", GET, GET * 2_000], ids=["none", "one", "many"])
@pytest.mark.parametrize("cut", [0, 40_000], ids=["in one read", "in two"])
def test_a_long_head_is_refused_however_it_comes(reader: RequestReader, before: bytes, cut: int) -> None:
    """Also behind other requests in the same read, where it is not the first to be counted."""
    data = before + b"GET /b HTTP/1.1\r\nX: %b\r\n\r\n" % (b"x" * HEADER_BYTES_MAX)
    with pytest.raises(Refusal) as caught:
        feed(reader, data[: len(data) - cut], data[len(data) - cut :])
    assert caught.value.status == 431
    assert len(reader.requests) == len(before) // len(GET), "what came before is answered"


def test_many_short_requests_in_one_read_are_no_long_head(reader: RequestReader) -> None:
    data = GET * (2 * HEADER_BYTES_MAX // len(GET))
    reader.feed(data + GET[:20])
    reader.feed(GET[20:])
    assert len(reader.requests) == len(data) // len(GET) + 1


def test_a_body_that_grows_too_large_is_refused_while_it_comes(reader: RequestReader) -> None:
    reader.feed(CHUNKED)
    with pytest.raises(Refusal) as caught:
        feed(reader, *[b"1\r\nx\r\n"] * (Limits.body_bytes_max + 1))
    assert caught.value.status == 413
    assert reader.reading is not None
    assert reader.reading.target == b"/a", "whose API says so is known by it"


def test_a_body_in_tiny_chunks_takes_no_more_memory_than_its_bytes(reader: RequestReader) -> None:
    """Each of a thousand objects would be fifty times its byte."""
    reader.feed(CHUNKED + b"1\r\nx\r\n" * 500)
    assert [len(piece) for piece in reader._body] == [500]
    reader.feed(b"1\r\nx\r\n" * 500 + b"0\r\n\r\n")
    assert len(reader.requests[0].body) == Limits.body_bytes_max


def test_a_refusal_by_the_head_comes_before_the_body(reader: RequestReader) -> None:
    with pytest.raises(Refusal) as caught:
        reader.feed(b"POST /no HTTP/1.1\r\nContent-Length: 10\r\n\r\n")
    assert caught.value.answer == b"no"


@pytest.mark.parametrize(
    ("head", "expects"),
    [
        (b"POST /a HTTP/1.1\r\nExpect: 100-Continue\r\n", True),
        (b"POST /a HTTP/1.0\r\nExpect: 100-continue\r\n", False),
        (b"POST /a HTTP/1.1\r\nExpect: something\r\n", False),
        (b"POST /a HTTP/1.1\r\n", False),
    ],
)
def test_a_client_that_waits_is_noticed(reader: RequestReader, head: bytes, expects: bool) -> None:
    reader.feed(head + b"Content-Length: 1\r\n\r\n")
    assert reader.expects is expects
    reader.feed(b"x")
    assert not reader.expects, "it has not waited"


def test_what_ended_goes_at_once() -> None:
    """Not with the next full collection, which is long in coming to a worker that makes few cycles."""
    limits = Limits()
    held = weakref.ref(limits)
    reader = RequestReader(limits)
    reader.feed(CHUNKED + b"a\r\n0123456789\r\n")
    gc.disable()
    try:
        reader.end()
        del reader, limits
        assert held() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("count", [1, 2, 4_000])
def test_any_number_of_offers_may_come_in_one_read(reader: RequestReader, count: int) -> None:
    """Each is declined; thousands of them are a quarter of a megabyte."""
    offer = GET.replace(b"Host: h", b"Connection: Upgrade\r\nUpgrade: h2c")
    reader.feed(offer * count + GET)
    assert [request.target for request in reader.requests] == [b"/a"] * (count + 1)

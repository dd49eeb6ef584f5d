import itertools
import socket
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.host import Failure
from dataplane.wire.host_connection import HEAD_BYTES_MAX, READ_BYTES, HostConnection
from dataplane.wire.http import AnswerHead, Headers
from tests.dataplane.wire.transport import ManualLoop, ManualTransport

OK = b"HTTP/1.1 200 OK\r\n"
WHOLE = OK + b"Content-Length: 2\r\n\r\nhi"


@dataclass
class Exchange:
    """What the connection told, in order."""

    status: int = 0
    headers: Headers = field(default_factory=list)
    body: bytes = b""
    ends: list[str] = field(default_factory=list)
    failure: Failure | None = None
    reason: str = ""
    parts: int = 0
    pauses: int = 0

    def host_head(self, head: AnswerHead) -> None:
        assert not self.status
        assert not self.ends
        assert head.named == dict(head.headers)
        self.status, self.headers = head.status, head.headers

    def host_body(self, parts: list[bytes]) -> None:
        assert self.status
        assert not self.ends
        assert all(parts)
        self.body += b"".join(parts)
        self.parts += len(parts)

    def host_pause(self) -> None:
        assert not self.ends
        self.pauses += 1

    def host_done(self) -> None:
        self.ends.append("done")

    def host_failed(self, failure: Failure, reason: str) -> None:
        self.ends.append("failed")
        self.failure, self.reason = failure, reason


class Owner:
    def __init__(self) -> None:
        self.told: list[str] = []

    def returned(self, connection: HostConnection) -> None:
        self.told.append("returned")

    def retired(self, connection: HostConnection) -> None:
        self.told.append("retired")


class Host:
    """A connection whose other end is the test."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.owner = Owner()
        self.connection = HostConnection(self.owner, bytearray(READ_BYTES), None)
        self.transport = ManualTransport(self.loop, self.connection)
        self.connection.connection_made(self.transport)

    def ask(self, body: bytes = b"") -> Exchange:
        exchange = Exchange()
        self.connection.send(exchange, b"POST / HTTP/1.1\r\n\r\n", body)
        return exchange

    def say(self, data: bytes) -> None:
        """The host sends bytes, as they come in one read."""
        if self.transport.is_closed:
            return
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))
        self.loop.run()

    def end(self, error: Exception | None = None) -> None:
        if not self.transport.is_closed:
            if error is None:
                assert self.connection.eof_received() is False
            self.transport.lose(error)


@pytest.fixture
def host() -> Host:
    return Host()


# --- answers ---------------------------------------------------------------------------------------------------------

tokens = st.text("abcXYZ019-_", min_size=1, max_size=8).map(lambda name: b"X-" + name.encode())
values = st.text("abc XYZ;=,\"'é", max_size=12).map(lambda value: value.strip().encode("latin-1"))
answers = st.fixed_dictionaries(
    {
        "interim": st.lists(st.sampled_from([100, 102, 103]), max_size=2),
        "status": st.sampled_from([200, 201, 204, 304, 400, 404, 429, 500, 503]),
        "headers": st.lists(st.tuples(tokens, values), max_size=4),
        "body": st.lists(st.binary(min_size=1, max_size=40), max_size=4),
        "framing": st.sampled_from(["length", "chunked", "close"]),
    }
)


def written(answer: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return an answer's bytes and its body."""
    body = b"".join(answer["body"]) if answer["status"] not in (204, 304) else b""
    head = b"".join(b"HTTP/1.1 %d Wait\r\nX-Interim: 1\r\n\r\n" % status for status in answer["interim"])
    head += b"HTTP/1.1 %d Word\r\n" % answer["status"]
    head += b"".join(b"%b: %b\r\n" % header for header in answer["headers"])
    if answer["status"] in (204, 304):
        return head + b"\r\n", b""
    if answer["framing"] == "length":
        return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body), body
    if answer["framing"] == "chunked":
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in answer["body"])
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nX-Trailer: 1\r\n\r\n", body
    return head + b"\r\n" + body, body


@given(st.lists(answers, min_size=1, max_size=3), st.lists(st.integers(0, 500), max_size=10))
def test_answers_do_not_depend_on_how_their_bytes_arrive(wanted: list[dict[str, Any]], cuts: list[int]) -> None:
    """Interim answers are passed over, trailers dropped; what can be kept is kept, over several answers."""
    host = Host()
    for answer in wanted:
        exchange = host.ask()
        data, body = written(answer)
        edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
        for start, end in itertools.pairwise(edges):
            host.say(data[start:end])
        ends_by_close = answer["framing"] == "close" and answer["status"] not in (204, 304)
        if ends_by_close:
            assert exchange.ends == []
            host.end()
        assert exchange.ends == ["done"], exchange.reason
        assert (exchange.status, exchange.body) == (answer["status"], body)
        own = [header for header in exchange.headers if header[0] not in (b"content-length", b"transfer-encoding")]
        assert own == [(name.lower(), value) for name, value in answer["headers"]]
        assert host.owner.told[-1] == ("retired" if ends_by_close else "returned")
        if ends_by_close:
            return


@given(answers, st.integers(0, 600), st.booleans())
def test_an_answer_that_is_cut_off_is_never_taken_for_a_whole_one(
    answer: dict[str, Any], cut: int, is_reset: bool
) -> None:
    host = Host()
    exchange = host.ask()
    data, body = written(answer)
    host.say(data[: cut % len(data)])
    is_whole = bool(exchange.ends)
    host.end(ConnectionResetError("reset") if is_reset else None)
    if is_whole:
        assert exchange.ends == ["done"]
        assert exchange.body == body
    elif exchange.status and answer["framing"] == "close" and not is_reset:
        assert exchange.ends == ["done"], "its end is the end of the connection"
    else:
        assert exchange.ends == ["failed"]
        assert exchange.failure is (Failure.BROKEN if exchange.status else Failure.LOST)
        assert "closed the connection" in exchange.reason
    assert host.owner.told[-1] == "retired"


def test_what_came_in_one_read_is_handed_on_and_said_to_be_all(host: Host) -> None:
    """So that it leaves in one write."""
    exchange = host.ask()
    host.say(OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n")
    assert (exchange.body, exchange.parts, exchange.pauses) == (b"abc", 2, 1)
    host.say(b"1\r\nd\r\n")
    assert (exchange.body, exchange.pauses) == (b"abcd", 2)


def test_repeated_headers_and_odd_bytes_are_kept(host: Host) -> None:
    exchange = host.ask()
    host.say(OK + b"Set-Cookie: a\r\nX: \xff\xfe\r\nSET-COOKIE: b\r\nContent-Length: 0\r\n\r\n")
    assert exchange.headers[:3] == [(b"set-cookie", b"a"), (b"x", b"\xff\xfe"), (b"set-cookie", b"b")]


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_ends_with_its_head(host: Host, status: int) -> None:
    exchange = host.ask()
    host.say(b"HTTP/1.1 %d Word\r\nContent-Length: 5\r\n\r\n" % status)
    assert exchange.ends == ["done"]
    assert host.owner.told == ["returned"]


# --- keeping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "is_kept"),
    [
        (b"HTTP/1.1 200 OK\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n", False),
        (b"HTTP/1.0 200 OK\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", True),
    ],
)
def test_a_connection_is_kept_as_the_host_says(host: Host, head: bytes, is_kept: bool) -> None:
    exchange = host.ask()
    host.say(head + b"Content-Length: 2\r\n\r\nhi")
    assert exchange.ends == ["done"]
    assert host.owner.told == (["returned"] if is_kept else ["retired"])


def test_bytes_after_the_answer_end_the_connection_not_the_answer(host: Host) -> None:
    """They can belong to nobody, and the next exchange must not get them."""
    exchange = host.ask()
    host.say(WHOLE + b"surplus")
    assert (exchange.body, exchange.ends) == (b"hi", ["done"])
    assert host.owner.told == ["retired"]


def test_the_beginning_of_a_second_answer_is_nobodys(host: Host) -> None:
    """It would be taken for the beginning of the next one."""
    exchange = host.ask()
    host.say(WHOLE + OK + b"X-Left: ")
    assert (exchange.body, exchange.ends) == (b"hi", ["done"])
    assert host.owner.told == ["retired"]


def test_a_second_answer_is_nobodys(host: Host) -> None:
    exchange = host.ask()
    host.say(WHOLE + OK + b"Content-Length: 3\r\n\r\nbad")
    assert (exchange.body, exchange.ends) == (b"hi", ["done"])
    assert host.owner.told == ["retired"]


def test_bytes_on_an_idle_connection_end_it(host: Host) -> None:
    first = host.ask()
    host.say(WHOLE)
    host.say(OK)
    assert host.transport.is_aborted
    assert first.ends == ["done"]
    assert host.owner.told == ["returned", "retired"]


def test_an_early_answer_is_delivered_and_the_connection_not_used_again(host: Host) -> None:
    """The host answered before it had read the request, whose rest would run into the next one."""
    exchange = host.ask(b"x" * 10 * READ_BYTES)
    host.transport.unsent = 1
    host.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
    assert (exchange.status, exchange.body, exchange.ends) == (413, b"no", ["done"])
    assert host.owner.told == ["retired"]


def test_an_early_answer_before_a_reset_is_kept(host: Host) -> None:
    exchange = host.ask(b"x" * 10 * READ_BYTES)
    host.transport.unsent = 1
    host.say(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
    host.end(ConnectionResetError())
    assert (exchange.body, exchange.ends) == (b"no", ["done"])


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"timeout=5", 5.0),
        (b"timeout=5, max=100", 5.0),
        (b"max=3,Timeout=7", 7.0),
        (b"timeout=soon", None),
        (b"", None),
    ],
)
def test_a_promise_to_keep_the_connection_is_noted(host: Host, value: bytes, seconds: float | None) -> None:
    host.ask()
    host.say(OK + b"Keep-Alive: %b\r\nContent-Length: 0\r\n\r\n" % value)
    assert host.connection.keep_alive_seconds == seconds


def test_whether_the_answer_was_a_stream_is_noted(host: Host) -> None:
    host.ask()
    host.say(OK + b"Content-Type: text/event-stream; charset=utf-8\r\nContent-Length: 0\r\n\r\n")
    assert host.connection.streamed
    host.ask()
    host.say(OK + b"Content-Type: application/json\r\nContent-Length: 0\r\n\r\n")
    assert not host.connection.streamed
    assert host.connection.uses == 2


# --- what is no answer -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/9.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
)
def test_what_is_no_answer_is_malformed(host: Host, data: bytes) -> None:
    exchange = host.ask()
    host.say(data)
    assert exchange.ends == ["failed"]
    assert exchange.failure is Failure.MALFORMED
    assert exchange.reason
    assert host.owner.told == ["retired"]


def test_a_body_that_turns_malformed_is_broken(host: Host) -> None:
    exchange = host.ask()
    host.say(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\nzz\r\n")
    assert (exchange.body, exchange.failure) == (b"ab", Failure.BROKEN)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 %b\r\n\r\n" % (b"x" * (HEAD_BYTES_MAX + 1)),
        OK + b"X: %b\r\n\r\n" % (b"x" * HEAD_BYTES_MAX),
        OK + b"%b\r\n" % b"".join(b"X-%d: %b\r\n" % (n, b"x" * 900) for n in range(80)),
        b"HTTP/1.1 103 Hints\r\nX: %b\r\n\r\n" % (b"x" * 900) * 80,
    ],
    ids=["reason", "one header", "all headers", "interim answers"],
)
def test_a_head_that_is_too_long_is_malformed(host: Host, head: bytes) -> None:
    exchange = host.ask()
    for start in range(0, len(head), 10_000):
        host.say(head[start : start + 10_000])
    assert exchange.failure is Failure.MALFORMED
    assert f"over {HEAD_BYTES_MAX} bytes" in exchange.reason


def test_a_head_is_limited_while_it_comes(host: Host) -> None:
    """An endless header must not fill the memory."""
    exchange = host.ask()
    host.say(OK + b"X: ")
    for _ in range(10 * HEAD_BYTES_MAX // 10_000):
        host.say(b"x" * 10_000)
    assert exchange.failure is Failure.MALFORMED


def test_a_short_head_may_come_with_a_long_piece_of_its_body(host: Host) -> None:
    exchange = host.ask()
    host.say(OK + b"X: %b" % (b"x" * 9_000))
    rest = b"\r\nContent-Length: 65000\r\n\r\n"
    host.say(rest + b"x" * (READ_BYTES - len(rest)))
    host.say(b"x" * (65_000 - READ_BYTES + len(rest)))
    assert (exchange.ends, len(exchange.body)) == (["done"], 65_000)


def test_heads_are_limited_one_by_one(host: Host) -> None:
    for _ in range(20):
        exchange = host.ask()
        host.say(OK + b"X: %b\r\n" % (b"x" * 9_000))
        host.say(b"Content-Length: 2\r\n\r\nhi")
        assert exchange.ends == ["done"], exchange.reason


def test_bodies_are_as_long_as_they_are(host: Host) -> None:
    exchange = host.ask()
    host.say(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(50):
        host.say(b"2710\r\n%b\r\n" % (b"x" * 10_000))
    host.say(b"0\r\n\r\n")
    assert (len(exchange.body), exchange.ends) == (500_000, ["done"])


def test_trailers_without_end_are_broken_off(host: Host) -> None:
    exchange = host.ask()
    host.say(OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n")
    for number in range(100):
        host.say(b"X-%d: %b\r\n" % (number, b"x" * 1_000))
    assert exchange.failure is Failure.BROKEN


# --- the exchange's side ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 10, READ_BYTES - 1, READ_BYTES, 10 * READ_BYTES])
def test_a_request_is_sent_whole(host: Host, size: int) -> None:
    host.ask(b"x" * size)
    assert host.transport.take() == b"POST / HTTP/1.1\r\n\r\n" + b"x" * size


def test_a_cancelled_exchange_hears_no_more(host: Host) -> None:
    exchange = host.ask()
    host.say(OK + b"Content-Length: 10\r\n\r\nhi")
    host.connection.cancel()
    host.loop.run()
    assert host.transport.is_aborted, "the host sees that nobody listens"
    assert exchange.ends == []
    assert host.owner.told == ["retired"]


def test_an_exchange_may_cancel_from_within_its_answer(host: Host) -> None:
    class Cancelling(Exchange):
        def host_body(self, parts: list[bytes]) -> None:
            super().host_body(parts)
            host.connection.cancel()

    exchange = Cancelling()
    host.connection.send(exchange, b"GET / HTTP/1.1\r\n\r\n", b"")
    host.say(OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n")
    assert (exchange.body, exchange.ends) == (b"ab", [])
    assert host.owner.told == ["retired"], "what a cancelled connection still brought makes it no idle one"


def test_an_exchange_may_cancel_at_the_head(host: Host) -> None:
    class Cancelling(Exchange):
        def host_head(self, head: AnswerHead) -> None:
            super().host_head(head)
            host.connection.cancel()

    exchange = Cancelling()
    host.connection.send(exchange, b"GET / HTTP/1.1\r\n\r\n", b"")
    host.say(WHOLE)
    assert (exchange.status, exchange.body, exchange.ends) == (200, b"", [])
    assert host.owner.told == ["retired"]


def test_a_host_is_read_no_faster_than_the_client_reads(host: Host) -> None:
    host.ask()
    host.connection.pause()
    assert host.transport.is_paused
    host.connection.resume()
    assert not host.transport.is_paused


def test_a_closed_connection_may_be_told_anything(host: Host) -> None:
    host.end()
    host.connection.pause()
    host.connection.resume()
    host.connection.cancel()
    host.connection.close()
    assert host.owner.told == ["retired"]


# --- idle ------------------------------------------------------------------------------------------------------------


def test_an_idle_connection_is_alive_until_the_host_has_ended_it() -> None:
    """The end may lie unread in the socket; a look at it is all that stands between a request and a lost one."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = HostConnection(Owner(), bytearray(READ_BYTES), ours)
        assert not connection.is_alive, "not yet connected"
        transport = ManualTransport(ManualLoop(), connection)
        connection.connection_made(transport)
        assert connection.is_alive
        theirs.close()
        assert not connection.is_alive


def test_an_idle_connection_with_something_to_read_is_not_used() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = HostConnection(Owner(), bytearray(READ_BYTES), ours)
        connection.connection_made(ManualTransport(ManualLoop(), connection))
        theirs.send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        assert not connection.is_alive
        assert ours.recv(8) == b"HTTP/1.1", "a look takes nothing"

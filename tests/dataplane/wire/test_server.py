import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.wire.http import Request
from dataplane.wire.request_reader import HEADER_BYTES_MAX, HEADER_COUNT_MAX
from dataplane.wire.server import (
    LINGER_SECONDS,
    READ_AHEAD_BYTES,
    WRITE_HIGH_BYTES,
    ClientConnection,
    Responder,
)
from tests.dataplane.wire.transport import ManualLoop, ManualTransport

BODY_BYTES_MAX = 10_000
OK = b"HTTP/1.1 200 OK\r\n"
GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"


def post(target: bytes, body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(b"%b\r\n" % line for line in headers)
    return b"POST %b HTTP/1.1\r\nHost: h\r\n%bContent-Length: %d\r\n\r\n%b" % (target, lines, len(body), body)


class Answering(Responder):
    """Notes what the connection tells whoever answers."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def client_gone(self) -> None:
        self.told.append("gone")

    def pause(self) -> None:
        self.told.append("pause")

    def resume(self) -> None:
        self.told.append("resume")


class Service:
    """Answers at once with the target and the body, or when the test does."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.loop: ManualLoop = ManualLoop()
        self.body_bytes_max = BODY_BYTES_MAX
        self.keep_alive_seconds = 75.0
        self.read_timeout_seconds = 60.0
        self.draining = False
        self.at_once = at_once
        self.accepts = True
        self.early: Callable[[Request, int | None], bytes | None] = lambda request, length: None
        self.requests: list[Request] = []
        self.responders: list[Answering] = []
        self.refusals: list[tuple[bytes, int, str]] = []
        self.ended = 0

    def opened(self, connection: ClientConnection) -> bool:
        return self.accepts

    def closed(self, connection: ClientConnection) -> None:
        self.ended += 1

    def refuse_early(self, request: Request, content_length: int | None) -> bytes | None:
        return self.early(request, content_length)

    def handle(self, connection: ClientConnection, request: Request) -> Responder | None:
        self.requests.append(request)
        if self.at_once:
            connection.respond(200, b"", request.target + request.body)
            return None
        self.responders.append(Answering())
        return self.responders[-1]

    def refusal(self, target: bytes, status: int, reason: str) -> bytes:
        self.refusals.append((target, status, reason))
        return b"refused %d" % status


@dataclass
class Client:
    """One connection, by hand."""

    service: Service
    connection: ClientConnection
    transport: ManualTransport

    def send(self, data: bytes) -> bytes:
        """Feed bytes; return what was answered so far."""
        self.connection.data_received(data)
        self.service.loop.run()
        return self.transport.take()

    def answer(self, body: bytes = b"late") -> bytes:
        """Answer the current request."""
        self.connection.respond(200, b"", body)
        self.service.loop.run()
        return self.transport.take()


def connect(service: Service | None = None) -> Client:
    service = service or Service()
    connection = ClientConnection(service)  # type: ignore[arg-type]
    transport = ManualTransport(service.loop, connection)
    connection.connection_made(transport)
    return Client(service, connection, transport)


@pytest.fixture
def client() -> Client:
    """Answers come at once."""
    return connect()


@pytest.fixture
def later() -> Client:
    """Answers come when the test gives them."""
    return connect(Service(at_once=False))


def bodies(answers: bytes) -> Iterator[bytes]:
    """Take apart answers that have a Content-Length."""
    while answers:
        head, _, answers = answers.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK")
        length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
        yield answers[:length]
        answers = answers[length:]


# --- reading ---------------------------------------------------------------------------------------------------------

tokens = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789-_", min_size=1, max_size=10).map(str.encode)
values = st.binary(max_size=20).map(lambda value: bytes(c for c in value if c >= 32 and c != 127).strip(b" \t"))
parsed = st.fixed_dictionaries(
    {
        "method": st.sampled_from([b"GET", b"POST", b"PUT", b"DELETE", b"OPTIONS"]),
        "target": tokens.map(lambda path: b"/" + path),
        "headers": st.lists(st.tuples(tokens.map(lambda name: b"X-" + name), values), max_size=4),
        "body": st.binary(max_size=60),
        "chunked": st.booleans(),
        "offer": st.sampled_from([[], [], [], [b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c"]]),
    }
)


def written(request: dict[str, Any]) -> bytes:
    body = request["body"]
    lines = [b"%b: %b" % header for header in request["headers"]] + request["offer"]
    if request["chunked"]:
        middle = len(body) // 2
        parts = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:middle], body[middle:]) if part)
        lines, body = [*lines, b"Transfer-Encoding: chunked"], parts + b"0\r\n\r\n"
    else:
        lines.append(b"Content-Length: %d" % len(body))
    return b"%b %b HTTP/1.1\r\n%b\r\n\r\n%b" % (request["method"], request["target"], b"\r\n".join(lines), body)


@given(st.lists(parsed, min_size=1, max_size=4), st.lists(st.integers(0, 400), max_size=12), st.booleans())
def test_requests_do_not_depend_on_how_their_bytes_arrive(
    requests: list[dict[str, Any]], cuts: list[int], at_once: bool
) -> None:
    """Whole, byte by byte, several in one read, answered at once or later: the same requests, in order.

    Offers to upgrade are passed over, wherever they come.
    """
    client = connect(Service(at_once=at_once))
    data = b"".join(map(written, requests))
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    answers = b"".join(client.send(data[start:end]) for start, end in itertools.pairwise(edges))
    while len(client.service.requests) > len(list(bodies(answers))):
        request = client.service.requests[-1]
        answers += client.answer(request.target + request.body)
    found = client.service.requests
    assert [(r.method, r.target, r.body) for r in found] == [(r["method"], r["target"], r["body"]) for r in requests]
    for one, wanted in zip(found, requests, strict=True):
        for name in {name.lower() for name, _ in wanted["headers"]}:
            assert one.header_values(name) == [value for known, value in wanted["headers"] if known.lower() == name]
    assert list(bodies(answers)) == [one.target + one.body for one in found]


def test_a_request_waits_until_its_body_is_here(client: Client) -> None:
    """Until then it takes no capacity anywhere."""
    assert client.send(post(b"/a", b"body")[:-1]) == b""
    assert client.service.requests == []
    assert client.send(b"y").endswith(b"/abody")


def test_requests_sent_ahead_are_answered_in_order(later: Client) -> None:
    assert later.send(post(b"/1", b"") + post(b"/2", b"") + post(b"/3", b"")) == b""
    assert [request.target for request in later.service.requests] == [b"/1"]
    for number in (1, 2, 3):
        assert later.answer(b"%d" % number).endswith(b"\r\n\r\n%d" % number)
    assert [request.target for request in later.service.requests] == [b"/1", b"/2", b"/3"]


def test_no_more_is_read_ahead_than_the_limit(later: Client) -> None:
    """A client that sends without reading fills its own buffers, not ours."""
    later.send(GET)
    while not later.transport.is_paused:
        later.send(post(b"/x", b"x" * 4_000))
    assert later.connection._ahead_bytes <= READ_AHEAD_BYTES + 5_000
    later.answer()
    assert later.transport.is_paused, "what was read ahead comes first"
    while len(later.service.requests) > 1 and later.transport.is_paused:
        later.answer()
    assert not later.transport.is_paused


def test_members_of_a_request(client: Client) -> None:
    client.send(b"PUT /p?q=%20#f HTTP/1.1\r\nHOST: h\r\nX-A: 1\r\nx-a: \t2 \r\nX-B:\r\nContent-Length: 0\r\n\r\n")
    (request,) = client.service.requests
    assert (request.method, request.target, request.minor) == (b"PUT", b"/p?q=%20#f", 1)
    assert request.header(b"host") == b"h"
    assert request.header_values(b"x-a") == [b"1", b"2"]
    assert request.header(b"x-b") == b""


def test_trailers_are_no_headers(client: Client) -> None:
    """RFC 9110, 6.5.1: merged, they would pass the checks that were made on the head."""
    client.send(b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Late: 1\r\n\r\n")
    (request,) = client.service.requests
    assert request.body == b"x"
    assert request.header(b"x-late") is None


# --- limits ----------------------------------------------------------------------------------------------------------


def expect_refused(client: Client, status: int, said: bytes) -> None:
    """The answer has gone out, its end too, nothing is read any more, and the connection ends after a while."""
    assert said == b"refused %d" % status
    assert client.service.refusals[-1][1] == status
    assert client.transport.has_eof
    assert not client.transport.is_closed, "closing at once could lose the answer"
    assert client.send(b"x" * 100_000 + GET) == b""
    assert client.connection.deadline == client.service.loop.now + LINGER_SECONDS
    client.connection.overdue()
    assert client.transport.is_aborted


def test_a_body_that_is_announced_too_large_is_not_read(client: Client) -> None:
    client.service.early = lambda request, length: b"refused 413" if (length or 0) > BODY_BYTES_MAX else None
    said = client.send(b"POST /a HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1))
    client.service.refusals.append((b"/a", 413, ""))
    expect_refused(client, 413, said)
    assert client.service.requests == []


def test_a_chunked_body_is_refused_as_soon_as_it_is_too_large(client: Client) -> None:
    client.send(b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
    said = b""
    for _ in range(BODY_BYTES_MAX // 1_000 + 1):
        said += client.send(b"3e8\r\n%b\r\n" % (b"x" * 1_000))
    expect_refused(client, 413, said)
    assert client.service.refusals[0][0] == b"/a"


def test_a_body_at_the_limit_is_read(client: Client) -> None:
    assert client.send(post(b"/", b"x" * BODY_BYTES_MAX)).startswith(OK)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /%b HTTP/1.1\r\n" % (b"x" * HEADER_BYTES_MAX),
        b"GET / HTTP/1.1\r\nX: %b\r\n\r\n" % (b"x" * HEADER_BYTES_MAX),
        b"GET / HTTP/1.1\r\n%b\r\n" % b"".join(b"X-%d: %b\r\n" % (n, b"x" * 4_000) for n in range(9)),
        b"GET / HTTP/1.1\r\n%b\r\n" % b"".join(b"X-%d:\r\n" % n for n in range(HEADER_COUNT_MAX + 1)),
    ],
    ids=["target", "one header", "all headers", "number"],
)
def test_a_head_that_is_too_large_is_refused(client: Client, head: bytes) -> None:
    expect_refused(client, 431, client.send(head))
    assert client.service.requests == []


def test_a_head_at_the_limits_is_read(client: Client) -> None:
    lines = b"".join(b"X-%d: v\r\n" % n for n in range(HEADER_COUNT_MAX))
    assert client.send(b"GET /%b HTTP/1.1\r\n%b\r\n" % (b"x" * 30_000, lines)).startswith(OK)


def test_a_head_is_limited_while_it_comes(client: Client) -> None:
    """Not only when it is complete: an endless header must not fill the memory."""
    said = client.send(b"GET / HTTP/1.1\r\nX: ")
    for _ in range(10 * HEADER_BYTES_MAX // 1_000):
        said += client.send(b"x" * 1_000)
        if said:
            break
    expect_refused(client, 431, said)


def test_heads_are_limited_one_by_one(client: Client) -> None:
    for _ in range(20):
        assert client.send(b"GET / HTTP/1.1\r\nX: %b\r\n" % (b"x" * 9_000)) == b""
        assert client.send(b"\r\n").startswith(OK)


def test_a_body_in_many_small_pieces_is_read(client: Client) -> None:
    client.send(b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(BODY_BYTES_MAX):
        client.send(b"1\r\nx\r\n")
    assert client.send(b"0\r\n\r\n").startswith(OK)


def test_a_request_must_be_sent_in_time(client: Client) -> None:
    """The clock starts with its first byte, and trickling does not stop it."""
    start = client.service.loop.now
    assert client.connection.deadline == start + 75
    client.send(b"POST /slow HTTP/1.1\r\nContent-Length: 10\r\n\r\n")
    for _ in range(5):
        client.service.loop.now += 5
        client.send(b"x")
        assert client.connection.deadline == start + 60
    client.connection.overdue()
    expect_refused(client, 408, client.transport.take())
    assert client.service.refusals[-1][0] == b"/slow"


def test_an_idle_connection_is_closed_without_a_word(client: Client) -> None:
    client.send(GET)
    assert client.connection.deadline == client.service.loop.now + 75
    client.connection.overdue()
    assert client.transport.is_closed
    assert not client.transport.is_aborted
    assert client.transport.take() == b""


def test_a_request_being_answered_has_no_deadline_here(later: Client) -> None:
    later.send(GET + GET[:5])
    assert later.connection.deadline is None
    later.answer()
    assert later.connection.deadline == later.service.loop.now + 60, "of the one that is half sent"


def test_too_many_connections_are_told_so() -> None:
    service = Service()
    service.accepts = False
    client = connect(service)
    expect_refused(client, 503, client.transport.take())


# --- what is no request ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad name: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nX : x\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: a\x00b\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\nx",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        b"GET /\r\nHost: a\r\n\r\n",
    ],
)
def test_malformed_bytes_are_answered_400(client: Client, data: bytes) -> None:
    """Nothing of it is handled, above all nothing that two readers could cut differently."""
    expect_refused(client, 400, client.send(data))
    assert client.service.requests == []


def test_requests_before_the_malformed_one_are_answered_first(later: Client) -> None:
    assert later.send(post(b"/1", b"") + post(b"/2", b"") + b"nonsense\r\n\r\n") == b""
    assert later.answer(b"one").endswith(b"one")
    said = later.answer(b"two")
    assert said.startswith(OK)
    assert said.endswith(b"tworefused 400")
    assert later.transport.has_eof


@pytest.mark.parametrize("body", [b"", b"body"])
def test_an_offer_to_upgrade_never_costs_a_request_its_body(client: Client, body: bytes) -> None:
    """Java's and curl's clients offer h2c with an ordinary request; a server may ignore it (RFC 9110, 7.8).

    Ignored or refused: but one answer, and never a request run without what it carried.
    """
    said = client.send(post(b"/a", body, b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: x"))
    assert all(request.body == body for request in client.service.requests)
    assert len(client.service.requests) + len(client.service.refusals) == 1, said


def test_a_client_that_offers_and_says_close_is_closed_on(client: Client) -> None:
    client.send(post(b"/a", b"x", b"Connection: close, Upgrade", b"Upgrade: h2c"))
    assert client.transport.is_closed


@pytest.mark.parametrize("at_once", [True, False])
def test_what_comes_after_the_last_request_is_no_request(at_once: bool) -> None:
    """Nor is it counted as a malformed one."""
    client = connect(Service(at_once=at_once))
    said = client.send(GET.replace(b"Host: h", b"Connection: close") + GET)
    if not at_once:
        said = client.answer(b"/a")
    assert len(client.service.requests) == 1
    assert client.service.refusals == []
    assert said.endswith(b"/a")
    assert client.transport.is_closed


def test_connect_is_refused(client: Client) -> None:
    said = client.send(b"CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n")
    assert client.transport.has_eof or client.service.refusals, said


# --- Expect ----------------------------------------------------------------------------------------------------------


def test_a_client_that_waits_is_told_to_go_on(client: Client) -> None:
    head, _, body = post(b"/a", b"body", b"Expect: 100-Continue").partition(b"\r\n\r\n")
    assert client.send(head + b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert client.send(body).startswith(OK)


def test_a_client_that_waits_in_vain_is_told_no(client: Client) -> None:
    client.service.early = lambda request, length: b"no"
    assert client.send(post(b"/a", b"", b"Expect: 100-continue")) == b"no"
    assert client.service.requests == []


def test_an_old_client_is_not_told_to_go_on(client: Client) -> None:
    """HTTP/1.0 knows no interim answers."""
    said = client.send(b"POST /a HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n")
    assert said == b""


def test_no_interim_answer_cuts_into_another(later: Client) -> None:
    later.send(GET)
    head, _, body = post(b"/a", b"body", b"Expect: 100-continue").partition(b"\r\n\r\n")
    assert later.send(head + b"\r\n\r\n") == b""
    assert later.answer(b"first").endswith(b"firstHTTP/1.1 100 Continue\r\n\r\n")
    later.send(body)
    assert later.answer(b"second").endswith(b"second")


# --- answers ---------------------------------------------------------------------------------------------------------


def test_a_connection_is_kept_unless_the_client_says_close(client: Client) -> None:
    assert b"connection:" not in client.send(GET)
    assert not client.transport.is_closed
    assert b"connection: close\r\n" in client.send(GET.replace(b"Host: h", b"Connection: close"))
    assert client.transport.is_closed
    assert client.service.ended == 1


def test_an_old_client_is_closed_on_unless_it_says_keep_alive(client: Client) -> None:
    assert b"connection: keep-alive\r\n" in client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert not client.transport.is_closed
    assert b"connection: close\r\n" in client.send(b"GET / HTTP/1.0\r\n\r\n")
    assert client.transport.is_closed


@pytest.mark.parametrize("lines", [b"Connection: keep-alive, Close", b"Connection: keep-alive\r\nConnection: x, close"])
def test_close_counts_for_more_than_keep_alive(client: Client, lines: bytes) -> None:
    """RFC 9112, 9.3; what comes after it is no request."""
    assert b"connection: close\r\n" in client.send(b"GET / HTTP/1.0\r\n%b\r\n\r\n" % lines + GET)
    assert client.transport.is_closed
    assert len(client.service.requests) == 1


def test_the_answer_to_head_has_no_body(client: Client) -> None:
    said = client.send(b"HEAD /path HTTP/1.1\r\n\r\n")
    assert b"content-length: 5\r\n" in said
    assert said.endswith(b"\r\n\r\n")
    assert client.send(GET).endswith(b"/a")


def test_the_refusal_of_head_has_no_body(client: Client) -> None:
    """RFC 9110, 9.3.2. While its head is read, nobody knows that it is one."""
    client.service.early = lambda request, length: b"HTTP/1.1 413 X\r\ncontent-length: 2\r\n\r\nno"
    assert client.send(b"HEAD / HTTP/1.1\r\nContent-Length: 9\r\n\r\n").endswith(b"content-length: 2\r\n\r\n")


def test_a_body_without_a_length_is_chunked(later: Client) -> None:
    later.send(GET)
    later.connection.start(200, b"x-a: 1\r\n", None)
    for part in (b"one", b"x" * 300):
        later.connection.send(part)
    later.connection.finish()
    head, _, body = later.transport.take().partition(b"\r\n\r\n")
    assert head == OK + b"x-a: 1\r\ntransfer-encoding: chunked"
    assert body == b"3\r\none\r\n12c\r\n" + b"x" * 300 + b"\r\n0\r\n\r\n"
    assert not later.transport.is_closed


def test_a_body_with_a_length_is_sent_as_it_comes(later: Client) -> None:
    later.send(GET)
    later.connection.start(404, b"", 6)
    later.connection.send(b"abc")
    later.connection.flush()
    assert later.transport.take() == b"HTTP/1.1 404 Not Found\r\ncontent-length: 6\r\n\r\nabc"
    later.connection.send(b"def")
    later.connection.finish()
    assert later.transport.take() == b"def"


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_that_has_no_body_has_no_framing(later: Client, status: int) -> None:
    later.send(GET)
    later.connection.start(status, b"", None)
    later.connection.finish()
    said = later.transport.take()
    assert b"content-length" not in said
    assert b"transfer-encoding" not in said
    assert not later.transport.is_closed


def test_to_an_old_client_the_end_of_the_connection_ends_the_body(later: Client) -> None:
    """It knows no chunks."""
    later.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    later.connection.start(200, b"", None)
    later.connection.send(b"abc")
    later.connection.finish()
    assert later.transport.take() == OK + b"connection: close\r\n\r\nabc"
    assert later.transport.is_closed


def test_a_status_without_a_name_is_sent_all_the_same(later: Client) -> None:
    later.send(GET)
    later.connection.respond(599, b"", b"")
    assert later.transport.take().startswith(b"HTTP/1.1 599 \r\n")


def test_an_answer_larger_than_the_buffers_pauses_its_source(later: Client) -> None:
    """A client that reads slowly slows the host down; memory is not what gives."""
    later.send(GET)
    assert later.transport.high == WRITE_HIGH_BYTES
    (responder,) = later.service.responders
    later.connection.pause_writing()
    later.connection.resume_writing()
    assert responder.told == ["pause", "resume"]
    later.answer()
    later.connection.pause_writing()
    later.connection.resume_writing()
    assert responder.told == ["pause", "resume"], "its answer is over"


def test_whoever_answers_is_told_that_the_client_left(later: Client) -> None:
    later.send(GET + GET)
    later.transport.lose()
    assert later.service.responders[0].told == ["gone"]
    assert later.service.ended == 1
    later.service.loop.run()
    assert len(later.service.requests) == 1, "what it had sent ahead is not run"


def test_an_answer_to_a_client_that_left_goes_nowhere(later: Client) -> None:
    later.send(GET)
    later.transport.lose()
    later.connection.respond(200, b"", b"x")
    assert later.transport.take() == b""


def test_a_half_closed_connection_is_a_client_that_left(later: Client) -> None:
    assert later.connection.eof_received() is False


def test_a_broken_answer_cannot_be_taken_for_a_whole_one(later: Client) -> None:
    """The client misses the rest of the length or the last chunk."""
    later.send(GET)
    later.connection.start(200, b"", None)
    later.connection.send(b"abc")
    later.connection.abort()
    assert later.transport.take().endswith(b"3\r\nabc\r\n")
    assert later.transport.is_closed


def test_a_broken_answer_without_framing_is_reset(later: Client) -> None:
    """Its end would look like the end of the body."""
    later.send(b"GET / HTTP/1.0\r\n\r\n")
    later.connection.start(200, b"", None)
    later.connection.send(b"abc")
    later.connection.abort()
    assert later.transport.is_aborted


# --- draining --------------------------------------------------------------------------------------------------------


def test_a_draining_worker_closes_after_the_answer(later: Client) -> None:
    later.send(GET)
    later.service.draining = True
    later.connection.close_if_idle()
    assert not later.transport.is_closed, "it is not idle"
    assert b"connection: close\r\n" in later.answer()
    assert later.transport.is_closed


def test_a_worker_that_drains_while_an_answer_is_under_way_closes_after_it(later: Client) -> None:
    later.send(GET)
    later.connection.start(200, b"", None)
    later.service.draining = True
    later.connection.finish()
    assert later.transport.is_closed


def test_a_draining_worker_closes_what_is_idle_and_lets_requests_come_in(client: Client) -> None:
    half = connect()
    half.send(GET[:10])
    half.service.draining = True
    half.connection.close_if_idle()
    assert not half.transport.is_closed
    assert b"connection: close\r\n" in half.send(GET[10:])
    client.connection.close_if_idle()
    assert client.transport.is_closed


def test_what_a_connection_does_is_told_for_the_log(later: Client) -> None:
    assert later.connection.phase == "idle"
    later.send(GET[:5])
    assert later.connection.phase == "sending a request"
    later.send(GET[5:])
    assert later.connection.phase == "answering"
    later.answer()
    later.send(b"nonsense\r\n\r\n")
    assert later.connection.phase == "lingering"

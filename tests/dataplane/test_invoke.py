"""The life of a request with every part played by the test, in every order of events that can be.

What clients and hosts see of it over sockets is tested in dataplane_e2e.
"""

import io
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from access.sealing import Sealing
from contract.routing_table import Endpoint, Instance, RoutingTable, Strategy, Variant
from contract.settings import Settings
from dataplane.access_log import AccessLog
from dataplane.api import faults
from dataplane.api.call import Call
from dataplane.api.chat import ChatCompletions
from dataplane.api.faults import Refused
from dataplane.api.native import Invoke, InvokeWithResponseStream
from dataplane.host import Address, Failure
from dataplane.host_credentials import HostCredentials
from dataplane.invoke import Exchange
from dataplane.metrics import Metrics
from dataplane.parts import Parts
from dataplane.record import Record
from dataplane.routing.admission import Outcome
from dataplane.routing.retry import BUDGET_SHARE
from dataplane.routing.routes import Routes
from dataplane.state.budget import RetryBudget
from dataplane.state.health import FAILURES_MAX, Health
from dataplane.wire.http import AnswerHead, Headers, Request
from tests.dataplane.test_metrics import read
from tests.dataplane.wire.transport import ManualLoop

SEALING = Sealing([b"k" * 32])
SETTINGS = Settings(
    invoke_timeout_seconds=10, stream_timeout_seconds=20, first_byte_timeout_seconds=5, idle_timeout_seconds=3
)
JSON: Headers = [(b"content-type", b"application/json"), (b"content-length", b"4")]
EVENTS: Headers = [(b"content-type", b"text/event-stream")]


@dataclass
class Client:
    """The client's connection; knows what may follow what."""

    peer: str = "203.0.113.9"
    status: int = 0
    head: bytes = b""
    body: bytes = b""
    end: str = ""

    def respond(self, status: int, headers: bytes, body: bytes) -> None:
        assert not self.status
        assert not self.end
        self.status, self.head, self.body, self.end = status, headers, body, "respond"

    def start(self, status: int, headers: bytes, content_length: int | None) -> None:
        assert not self.status
        assert not self.end
        self.status, self.head = status, headers

    def send(self, data: bytes) -> None:
        assert self.status
        assert not self.end
        assert data, "an empty chunk would end the body"
        self.body += data

    def flush(self) -> None:
        assert not self.end

    def finish(self) -> None:
        assert self.status
        assert not self.end
        self.end = "finish"

    def abort(self) -> None:
        assert self.status
        assert not self.end
        self.end = "abort"


@dataclass
class Host:
    """A connection to a host."""

    address: Address
    sent: bytes = b""
    state: str = "new"
    told: list[str] = field(default_factory=list)

    def send(self, exchange: Exchange, head: bytes, body: bytes) -> None:
        assert self.state == "new"
        self.state, self.sent = "asked", head + body

    def pause(self) -> None:
        self.told.append("pause")

    def resume(self) -> None:
        self.told.append("resume")

    def cancel(self) -> None:
        assert self.state == "asked"
        self.state = "cancelled"


@dataclass
class Connecting:
    """A connection being made."""

    address: Address
    connected: Callable[[Host | None, str], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Pool:
    def __init__(self) -> None:
        self.idle: Host | None = None
        self.connecting: list[Connecting] = []
        self.leased: list[Host] = []

    def lease_idle(self, address: Address) -> Host | None:
        if self.idle is None:
            return None
        host, self.idle = self.idle, None
        host.address = address
        self.leased.append(host)
        return host

    def connect(self, address: Address, connected: Any, seconds: float | None = None) -> Connecting:
        self.connecting.append(Connecting(address, connected))
        return self.connecting[-1]


@dataclass
class Admission:
    numbers: Sequence[int]
    threshold: int
    granted: Callable[[int, Outcome, bool], None]
    everything: Callable[[], Sequence[int]] | None


class InFlight:
    def __init__(self) -> None:
        self.waiting: list[Admission] = []
        self.asked: list[Admission] = []
        self.held: dict[int, int] = {}

    def admit(
        self,
        endpoint_id: str,
        numbers: Sequence[int],
        threshold: int,
        dice: int,
        granted: Callable[[int, Outcome, bool], None],
        everything: Callable[[], Sequence[int]] | None = None,
    ) -> None:
        assert endpoint_id == "id"
        assert numbers
        self.waiting.append(Admission(numbers, threshold, granted, everything))
        self.asked.append(self.waiting[-1])

    def grant(self, rank: int = 0, outcome: Outcome = Outcome.HOME, degraded: bool = False) -> None:
        admission = self.waiting.pop(0)
        number = admission.numbers[rank % len(admission.numbers)]
        self.held[number] = self.held.get(number, 0) + 1
        admission.granted(number, outcome, degraded)

    def count(self, endpoint_id: str, number: int) -> None:
        self.held[number] = self.held.get(number, 0) + 1

    def release(self, endpoint_id: str, number: int) -> None:
        assert self.held[number] > 0, "released what was not held"
        self.held[number] -= 1

    @property
    def total(self) -> int:
        return sum(self.held.values())


class Play:
    """One request and the parts around it."""

    def __init__(
        self,
        api: str = "invoke",
        *,
        count: int = 3,
        strategy: Strategy = Strategy.PREFIX_AWARE,
        body: bytes = b'{"messages":[{"content":"hello"}]}',
        request_id: bytes = b"r1",
        authorization: bytes = b"",
    ) -> None:
        instances = tuple(Instance(f"h{n}", n, f"http://h{n}:8000/base") for n in range(1, count + 1))
        is_aware = strategy is Strategy.PREFIX_AWARE
        variant = Variant("v1", 1.0, instances, strategy, 1024 if is_aware else None, 2 if is_aware else None)
        variant = msgspec.structs.replace(variant, host_authorization=authorization)
        self.routes = Routes(RoutingTable("e", 1, "0" * 12, "us-east-1", (Endpoint("e", "id", 1, (variant,)),)))
        self.credentials = HostCredentials(SEALING)
        self.credentials.apply(self.routes)
        self.client, self.pool, self.in_flight = Client(), Pool(), InFlight()
        self.metrics, self.health, self.budget = Metrics(), Health(10.0), RetryBudget()
        self.lines = io.StringIO()
        self.log = AccessLog(self.lines)
        self.exchanges: dict[Any, None] = {}
        self.parts = Parts(
            ManualLoop(),  # type: ignore[arg-type]
            SETTINGS,
            self.in_flight,  # type: ignore[arg-type]
            self.pool,  # type: ignore[arg-type]
            self.health,
            self.credentials,
            self.budget,
            None,  # type: ignore[arg-type]  # limits stand before the request, not in it
            self.metrics,
            self.log,
            Record(self.metrics, self.log, self.health),
            self.exchanges,
            random.Random(5),
        )
        request = Request(body=body, received_at=monotonic())
        self.call = self._call(api, request)
        self.exchange = Exchange(self.parts, self.client, request, self.call, request_id)

    def _call(self, api: str, request: Request) -> Call:
        if api == "chat":
            return ChatCompletions().read(request, "e")
        if api == "stream":
            return InvokeWithResponseStream().read(request, "e")
        return Invoke().read(request, "e")

    def begin(self) -> "Play":
        self.exchange.begin(self.routes)
        return self

    def head(self, status: int, headers: Headers) -> None:
        self.exchange.host_head(AnswerHead(status, headers, dict(headers)))

    def delivered(self) -> Host:
        """Go on until the request is with a host."""
        if self.in_flight.waiting:
            self.in_flight.grant()
        return self.connect()

    def connect(self) -> Host:
        connecting = self.pool.connecting.pop(0)
        assert not connecting.is_cancelled
        host = Host(connecting.address)
        self.pool.leased.append(host)
        connecting.connected(host, "")
        return host

    def refuse(self) -> None:
        connecting = self.pool.connecting.pop(0)
        assert not connecting.is_cancelled
        connecting.connected(None, "Connection refused")

    @property
    def host(self) -> Host | None:
        """The host that has the request."""
        asked = [host for host in self.pool.leased if host.state == "asked"]
        assert len(asked) <= 1, "a request is with one host at a time"
        return asked[0] if asked else None

    def line(self) -> dict[str, Any]:
        """Return the one line of the access log."""
        self.log.start()
        self.log.stop()
        (found,) = [json.loads(text) for text in self.lines.getvalue().split("\n")[:-1]]
        return dict(found)


# --- in any order ----------------------------------------------------------------------------------------------------

FAILURES = [failure for failure in Failure if failure is not Failure.REFUSED]
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["grant", "connect", "refuse", "head", "body", "done", "fail", "gone", "pause", "resume", "late", "cut"]
        ),
        st.integers(0, 9),
    ),
    max_size=25,
)


def take(play: Play, step: str, draw: int, seen: dict[str, bool]) -> None:
    """Let one thing happen, if it can happen now."""
    exchange, host = play.exchange, play.host
    connecting = [one for one in play.pool.connecting if not one.is_cancelled]
    if step == "grant" and play.in_flight.waiting:
        if draw % 3 == 0:
            play.pool.idle = Host(Address.of("http://idle:1"))
        play.in_flight.grant(draw, [Outcome.HOME, Outcome.OVERFLOW, Outcome.LEAST_OUTSTANDING][draw % 3], draw > 5)
    elif step == "connect" and connecting:
        play.connect()
    elif step == "refuse" and connecting:
        play.refuse()
    elif host is not None and step == "head" and not seen["head"]:
        seen["head"] = True
        play.head([200, 200, 204, 301, 404, 429, 500, 503][draw % 8], EVENTS if draw % 2 else JSON)
    elif host is not None and step == "body" and seen["head"]:
        exchange.host_body([b"x" * (40_000 if draw == 9 else 4)] * (draw % 3 + 1))
        if host.state == "asked":
            exchange.host_pause()
    elif host is not None and step == "done" and seen["head"]:
        host.state = "returned"
        exchange.host_done()
    elif host is not None and step == "fail":
        host.state = "failed"
        failure = [Failure.BROKEN, Failure.SILENT][draw % 2] if seen["head"] else FAILURES[draw % len(FAILURES)]
        exchange.host_failed(failure, "it failed")
    elif step == "gone" and not play.client.end and not seen["gone"]:
        seen["gone"] = True
        exchange.client_gone()
    elif step in ("pause", "resume") and not play.client.end and not seen["gone"]:
        exchange.pause() if step == "pause" else exchange.resume()
    elif step == "late":
        exchange.check(monotonic() + 1_000)
    elif step == "cut":
        exchange.cut("the worker is stopping")
    if play.host is not host:
        seen["head"] = seen["head"] and play.host is None


@given(
    st.sampled_from(["invoke", "stream", "chat"]), st.sampled_from(list(Strategy)), st.sampled_from([1, 3, 12]), steps
)
@settings(max_examples=300, deadline=None)
def test_whatever_happens_counts_go_back_and_the_client_gets_one_answer(
    api: str, strategy: Strategy, count: int, events: list[tuple[str, int]]
) -> None:
    """Released exactly once on every way out, one answer or none to a client that left, no host left running."""
    play = Play(api, count=count, strategy=strategy).begin()
    seen = {"head": False, "gone": False}
    for step, draw in [*events, ("cut", 0)]:
        take(play, step, draw, seen)
        assert play.in_flight.total <= 1
    while play.in_flight.waiting:
        play.in_flight.grant()
    assert play.in_flight.total == 0
    assert play.exchanges == {}
    assert play.host is None, "nobody listens to it any more"
    assert not [one for one in play.pool.connecting if not one.is_cancelled]
    assert bool(play.client.end) != seen["gone"]
    line = play.line()
    assert line["status"] == (499 if seen["gone"] else play.client.status)


# --- choose ----------------------------------------------------------------------------------------------------------


def test_an_unknown_endpoint_is_refused_in_aws_words() -> None:
    play = Play()
    play.call.endpoint_name = "other"
    with pytest.raises(Refused, match="Endpoint other of account 000000000000 not found") as caught:
        play.begin()
    assert caught.value.fault is faults.VALIDATION
    assert play.exchanges == {}


def test_an_unknown_variant_is_refused_with_those_there_are() -> None:
    play = Play()
    play.call.target_variant = "v9"
    with pytest.raises(Refused, match=r"v9.*v1"):
        play.begin()
    assert play.in_flight.asked == []


def test_a_prefix_is_offered_its_order_and_the_threshold() -> None:
    play = Play().begin()
    (admission,) = play.in_flight.asked
    assert sorted(admission.numbers) == [1, 2, 3]
    assert (admission.threshold, admission.everything) == (2, None)
    again = Play().begin().in_flight.asked[0].numbers
    assert tuple(again) == tuple(admission.numbers)


def test_of_a_large_fleet_the_first_ranks_are_offered_and_the_rest_on_demand() -> None:
    (admission,) = Play(count=20).begin().in_flight.asked
    assert len(admission.numbers) == 8
    assert admission.everything is not None
    everything = admission.everything()
    assert tuple(everything[:8]) == tuple(admission.numbers)
    assert sorted(everything) == list(range(1, 21))


def test_without_a_key_the_fewest_in_flight_are_asked_for() -> None:
    play = Play(body=b"").begin()
    (admission,) = play.in_flight.asked
    assert (admission.threshold, sorted(admission.numbers)) == (0, [1, 2, 3])
    play.in_flight.grant(outcome=Outcome.LEAST_OUTSTANDING)
    play.connect()
    play.exchange.cut("over")
    assert play.line()["outcome"] == "no_key"


def test_random_counts_and_goes_without_a_word_to_the_store() -> None:
    play = Play(strategy=Strategy.RANDOM).begin()
    assert play.in_flight.asked == []
    assert play.in_flight.total == 1
    assert len(play.pool.connecting) == 1


def test_a_single_instance_needs_no_choice() -> None:
    play = Play(count=1).begin()
    assert (play.in_flight.asked, play.in_flight.held) == ([], {1: 1})


def test_instances_that_are_set_aside_are_not_offered_unless_all_are() -> None:
    play = Play()
    play.health.out = {"h1", "h3"}
    play.begin()
    assert play.in_flight.held == {2: 1}
    play = Play()
    play.health.out = {"h1", "h2", "h3"}
    play.begin()
    assert sorted(play.in_flight.asked[0].numbers) == [1, 2, 3]


# --- deliver ---------------------------------------------------------------------------------------------------------


def test_the_host_gets_the_body_as_it_came_under_its_own_name() -> None:
    """Not the client's Host; with a length of its own."""
    play = Play(body=b"\x00raw bytes", request_id=b"id-9").begin()
    head, _, body = play.delivered().sent.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /base/invocations HTTP/1.1"
    assert sorted(lines[1:]) == [b"Content-Length: 10", b"Host: h%b:8000" % lines[1][7:8], b"X-Request-Id: id-9"]
    assert body == b"\x00raw bytes"


def test_an_idle_connection_is_used_first() -> None:
    play = Play().begin()
    play.pool.idle = Host(Address.of("http://any:1"))
    play.in_flight.grant()
    assert play.pool.connecting == []
    assert play.host is not None


def test_a_refused_connection_goes_to_another_instance_and_its_count_with_it() -> None:
    play = Play().begin()
    play.in_flight.grant()
    (first,) = [number for number, held in play.in_flight.held.items() if held]
    play.refuse()
    assert play.in_flight.total == 0
    assert first not in play.in_flight.waiting[0].numbers
    play.delivered()
    assert read(play.metrics)["retries_total", ("e",)] == 1
    play.head(200, JSON)
    play.exchange.host_done()
    assert (play.client.status, play.client.end) == (200, "finish")


def test_when_nobody_can_be_reached_the_answer_is_503() -> None:
    play = Play().begin()
    while not play.client.end:
        if play.in_flight.waiting:
            play.in_flight.grant()
        play.refuse()
    assert play.client.status == 503
    assert b"No instance of variant v1 of endpoint e can be reached." in play.client.body
    assert play.in_flight.total == 0


def test_a_spent_budget_of_retries_ends_trying() -> None:
    play = Play()
    play.budget.left = 0.0
    play.begin()
    play.in_flight.grant()
    play.refuse()
    assert play.client.status == 503
    assert play.in_flight.waiting == []


@pytest.mark.parametrize("failure", [Failure.LOST, Failure.MALFORMED])
def test_what_a_host_may_have_run_is_not_sent_to_another(failure: Failure) -> None:
    play = Play().begin()
    host = play.delivered()
    host.state = "failed"
    play.exchange.host_failed(failure, "it failed")
    assert play.client.status == 424
    assert play.in_flight.waiting == []
    assert read(play.metrics)["host_failures_total", ("e", host_identity(host), failure.value)] == 1


def host_identity(host: Host) -> str:
    return host.address.host


# --- answer ----------------------------------------------------------------------------------------------------------


def test_parts_go_on_as_they_come() -> None:
    play = Play("chat").begin()
    play.delivered()
    play.head(200, EVENTS)
    assert play.client.status == 200
    for part in (b"data: a\n\n", b"data: b\n\n"):
        play.exchange.host_body([part])
        assert play.client.body.endswith(part)
    play.exchange.host_done()
    assert play.client.end == "finish"
    line = play.line()
    assert (line["status"], line["answer_bytes"], line.get("attempts", 1)) == (200, 18, 1)


def test_an_error_answer_of_a_host_is_read_whole_first() -> None:
    play = Play().begin()
    play.delivered()
    play.head(500, JSON)
    play.exchange.host_body([b"no "])
    assert not play.client.status
    play.exchange.host_body([b"luck"])
    play.exchange.host_done()
    assert (play.client.status, play.client.end) == (424, "respond")
    assert json.loads(play.client.body)["OriginalMessage"] == "no luck"
    assert b"x-amzn-RequestId: r1\r\n" in play.client.head


def test_an_error_answer_without_end_is_not_read_on() -> None:
    play = Play().begin()
    host = play.delivered()
    play.head(500, JSON)
    for _ in range(10):
        if host.state == "asked":
            play.exchange.host_body([b"x" * 10_000])
    assert host.state == "cancelled"
    assert "could not load the entire response body" in json.loads(play.client.body)["Message"]


@pytest.mark.parametrize(("api", "end"), [("invoke", "abort"), ("stream", "finish"), ("chat", "abort")])
def test_a_stream_that_breaks_is_never_taken_for_a_whole_one(api: str, end: str) -> None:
    play = Play(api).begin()
    host = play.delivered()
    play.head(200, EVENTS)
    play.exchange.host_body([b"data: half"])
    host.state = "failed"
    play.exchange.host_failed(Failure.BROKEN, "it ended")
    assert play.client.end == end
    assert (b"StreamBroken" in play.client.body) == (api == "stream")
    assert (b'"model_error"' in play.client.body) == (api == "chat")


def test_a_slow_client_slows_its_host_down() -> None:
    play = Play("chat").begin()
    host = play.delivered()
    play.exchange.pause()
    play.exchange.resume()
    assert host.told == ["pause", "resume"]


@pytest.mark.parametrize(
    ("status", "sets_aside", "clears"),
    [(200, False, True), (304, False, True), (400, False, False), (429, False, False), (500, True, False)],
)
def test_what_an_answer_says_about_a_host(status: int, sets_aside: bool, clears: bool) -> None:
    """A failure counts, a success clears, and a client's error says nothing."""
    play = Play("chat").begin()
    identity = host_identity(play.delivered())
    for _ in range(FAILURES_MAX - 1):
        play.health.failed(identity, 0.0)
    play.head(status, JSON)
    assert (play.health.out == {identity}) == sets_aside
    assert (not sets_aside and not play.health.failed(identity, 0.0)) == clears


def test_each_request_earns_its_share_of_a_retry() -> None:
    play = Play()
    play.budget.left = 0.0
    play.begin()
    assert play.budget.left == BUDGET_SHARE


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api", "is_begun", "headers", "limit"),
    [
        ("invoke", False, JSON, SETTINGS.invoke_timeout_seconds),
        ("stream", False, JSON, SETTINGS.first_byte_timeout_seconds),
        ("invoke", True, JSON, SETTINGS.invoke_timeout_seconds),
        ("stream", True, EVENTS, SETTINGS.idle_timeout_seconds),
        ("invoke", True, EVENTS, SETTINGS.idle_timeout_seconds),
    ],
)
def test_each_wait_has_its_limit(api: str, is_begun: bool, headers: Headers, limit: float) -> None:
    play = Play(api).begin()
    host = play.delivered()
    if is_begun:
        play.head(200, headers)
    now = monotonic()
    play.exchange.check(now + limit - 0.5)
    assert host.state == "asked"
    play.exchange.check(now + limit + 0.5)
    assert host.state == "cancelled"
    assert play.client.end


def test_a_stream_ends_at_its_limit_though_parts_keep_coming() -> None:
    play = Play("stream").begin()
    host = play.delivered()
    play.head(200, EVENTS)
    play.exchange.host_body([b"x"])
    play.exchange.check(monotonic() + SETTINGS.stream_timeout_seconds + 0.5)
    assert host.state == "cancelled"
    assert b"ModelInvocationTimeExceeded" in play.client.body


def test_a_client_that_does_not_read_is_not_the_hosts_silence() -> None:
    play = Play("stream").begin()
    host = play.delivered()
    play.head(200, EVENTS)
    play.exchange.pause()
    play.exchange.check(monotonic() + SETTINGS.idle_timeout_seconds + 1)
    assert host.state == "asked"


def test_waiting_for_an_instance_is_nobodys_silence() -> None:
    play = Play().begin()
    play.exchange.check(monotonic() + 1_000)
    assert not play.client.end


# --- the client leaves -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["waiting", "connecting", "asked", "streaming"])
def test_a_client_that_leaves_takes_its_request_along(phase: str) -> None:
    play = Play("chat").begin()
    if phase != "waiting":
        play.in_flight.grant()
    if phase in ("asked", "streaming"):
        play.connect()
    if phase == "streaming":
        play.head(200, EVENTS)
    play.exchange.client_gone()
    if phase == "waiting":
        play.in_flight.grant()
    assert play.in_flight.total == 0
    assert all(connecting.is_cancelled for connecting in play.pool.connecting)
    assert all(host.state == "cancelled" for host in play.pool.leased)
    assert play.client.end == ""
    assert play.line()["status"] == 499


# --- the host's own credential ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", ["invoke", "stream", "chat"])
def test_a_host_is_sent_its_own_credential(api: str) -> None:
    host = Play(api, authorization=SEALING.seal("Bearer of-the-host")).begin().delivered()
    assert host.sent.count(b"\r\nAuthorization: Bearer of-the-host\r\n") == 1


def test_a_host_without_a_credential_is_sent_none() -> None:
    assert b"uthorization" not in Play().begin().delivered().sent


def test_a_credential_that_does_not_open_fails_the_request_rather_than_going_without() -> None:
    with pytest.raises(Refused) as caught:
        Play(authorization=Sealing([b"x" * 32]).seal("Bearer of-the-host")).begin()
    assert caught.value.fault is faults.UNAVAILABLE

"""A limited request with every part played by the test: whatever ends it, what it held is given back once."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.principals import Kind, Principal, Role
from contract.routing_table import RoutingTable
from dataplane.api import faults
from dataplane.api.faults import Refused
from dataplane.limits import Limited, is_limited
from dataplane.routing.admission import Outcome
from dataplane.routing.routes import Routes

ROUTES = Routes(RoutingTable("e", 1, "0" * 12, "us-east-1"))


def principal(rate: float | None = None, most: int | None = None) -> Principal:
    return Principal("AKWR", Kind.ACCESS_KEY, Role.INVOKE, b"", requests_per_second=rate, concurrent_requests=most)


class Client:
    peer = "203.0.113.9"

    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given: self.told.append(name)


class Request(Client):
    """The request itself; ``refusal`` is raised when it begins."""

    refusal: Refused | None = None

    def begin(self, routes: Routes) -> None:
        assert routes is ROUTES
        self.told.append("begin")
        if self.refusal is not None:
            raise self.refusal


class Play:
    """Also both stores: ``rate_wait`` and ``outcome`` answer what the test has not answered yet."""

    def __init__(self, caller: Principal) -> None:
        self.client, self.request = Client(), Request()
        self.refused: list[Refused] = []
        self.paced: list[Callable[[float], None]] = []
        self.counted: list[Callable[..., None]] = []
        self.held = 0
        self.limited = Limited(self, self, caller, self.client, self.refused.append)  # type: ignore[arg-type]

    def take(self, identity: str, rate: float, decided: Callable[[float], None]) -> None:
        assert (identity, rate) == ("AKWR", 5.0)
        self.paced.append(decided)

    def admit(self, ledger: str, numbers: Any, threshold: int, dice: int, granted: Callable[..., None]) -> None:
        assert (ledger, numbers, threshold) == ("principal:AKWR", (0,), 2)
        self.counted.append(granted)

    def release(self, ledger: str, number: int) -> None:
        assert (ledger, number) == ("principal:AKWR", 0)
        self.held -= 1
        assert self.held >= 0, "given back twice"

    def begin(self) -> "Play":
        self.limited.begin(self.request, ROUTES)  # type: ignore[arg-type]
        return self

    def pace(self, wait: float = 0.0) -> "Play":
        self.paced.pop()(wait)
        return self

    def count(self, outcome: Outcome = Outcome.HOME) -> "Play":
        self.held += 1
        self.counted.pop()(0, outcome, False)
        return self


def retry_after(refused: Refused) -> int:
    name, _, value = refused.headers.decode().partition(": ")
    assert name == "retry-after"
    return int(value)


def test_who_is_limited() -> None:
    assert not is_limited(principal())
    assert is_limited(principal(rate=0.5))
    assert is_limited(principal(most=1))


def test_a_request_within_its_limits_goes_its_way() -> None:
    play = Play(principal(5.0, 2)).begin()
    assert play.request.told == []
    play.pace()
    assert play.request.told == []
    play.count()
    assert play.request.told == ["begin"]
    play.limited.start(200, b"", None)
    play.limited.send(b"x")
    play.limited.flush()
    assert play.held == 1
    play.limited.finish()
    assert play.held == 0
    assert play.client.told == ["start", "send", "flush", "finish"]


@pytest.mark.parametrize(("wait", "seconds"), [(0.01, 1), (1.0, 1), (1.2, 2), (30.0, 30)])
def test_beyond_the_rate_it_is_told_when_to_come_back(wait: float, seconds: int) -> None:
    play = Play(principal(5.0, 2)).begin().pace(wait)
    (refused,) = play.refused
    assert refused.fault is faults.THROTTLED
    assert "5 requests a second" in refused.message
    assert retry_after(refused) == seconds
    assert (play.request.told, play.counted) == ([], [])


def test_beyond_the_concurrency_nothing_stays_counted() -> None:
    play = Play(principal(None, 2)).begin().count(Outcome.ALL_SATURATED)
    (refused,) = play.refused
    assert refused.fault is faults.THROTTLED
    assert "2 in flight" in refused.message
    assert retry_after(refused) == 1
    assert (play.request.told, play.held) == ([], 0)


def test_a_request_that_is_refused_after_all_gives_back_what_it_held() -> None:
    play = Play(principal(None, 2))
    play.request.refusal = Refused(faults.VALIDATION, "no such variant")
    play.begin().count()
    assert play.refused == [play.request.refusal]
    assert play.held == 0


steps = st.lists(
    st.sampled_from(
        ["pace", "wait", "count", "full", "gone", "pause", "resume", "start", "respond", "finish", "abort"]
    ),
    max_size=12,
)


@given(steps, st.booleans(), st.booleans())
def test_in_any_order_of_events_what_is_held_is_given_back(order: list[str], has_rate: bool, has_most: bool) -> None:
    """Ends with the client's departure, as every connection does."""
    play = Play(principal(5.0 if has_rate else None, 2 if has_most else None)).begin()
    is_over = False
    for step in order:
        if step == "pace" and play.paced:
            play.pace()
        elif step == "wait" and play.paced:
            play.pace(1.0)
        elif step in ("count", "full") and play.counted:
            play.count(Outcome.HOME if step == "count" else Outcome.ALL_SATURATED)
        elif step in ("pause", "resume"):
            getattr(play.limited, step)()
        elif step == "gone" and not is_over:
            is_over = True
            play.limited.client_gone()
        elif step in ("start", "respond", "finish", "abort") and "begin" in play.request.told and not is_over:
            is_over = step != "start"
            getattr(play.limited, step)(*{"start": (200, b"", None), "respond": (200, b"", b"")}.get(step, ()))
    if not is_over:
        play.limited.client_gone()
    while play.paced:
        play.pace()
    while play.counted:
        play.count()
    assert play.held == 0
    assert len(play.refused) <= 1

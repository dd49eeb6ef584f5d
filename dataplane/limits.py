"""Limits of principals: a request of one waits here until its rate and its concurrency allow it, or is told 429.

Only requests of principals that have a limit come here. Concurrency is counted as instances' loads are, by the same
exact and leased counts of state/inflight, in a ledger of the principal's own.
"""

import math
from collections.abc import Callable
from typing import Protocol

from contract.principals import Principal
from dataplane.api import faults
from dataplane.api.faults import Refused
from dataplane.parts import Client
from dataplane.routing.admission import Outcome
from dataplane.routing.routes import Routes
from dataplane.state.inflight import InFlight
from dataplane.state.rates import Rates
from dataplane.wire.server import Responder

_SLOT = 0
"""The one number in a principal's ledger."""


def is_limited(principal: Principal) -> bool:
    return principal.requests_per_second is not None or principal.concurrent_requests is not None


class Begun(Responder, Protocol):
    """A request that goes its way once it may (dataplane.invoke.Exchange)."""

    def begin(self, routes: Routes) -> None:
        """Raises Refused."""


class Limited:
    """Between the client's connection and its request: to the one its responder, to the other its client.

    What is held is given back by whatever ends the answer, and once.
    """

    __slots__ = ("_caller", "_client", "_in_flight", "_is_gone", "_is_held", "_rates", "_refuse", "_request", "_routes",
                 "peer")  # fmt: skip

    def __init__(
        self, in_flight: InFlight, rates: Rates, caller: Principal, client: Client, refuse: Callable[[Refused], None]
    ) -> None:
        """``refuse``: answers the client."""
        self._in_flight = in_flight
        self._rates = rates
        self._caller = caller
        self._client = client
        self._refuse = refuse
        self._request: Begun | None = None
        self._routes: Routes | None = None
        self._is_held = False
        self._is_gone = False
        self.peer = client.peer

    def begin(self, request: Begun, routes: Routes) -> None:
        """Let the request begin when its caller's limits allow it."""
        self._routes = routes
        rate = self._caller.requests_per_second
        if rate is None:
            self._paced(request, 0.0)
        else:
            self._rates.take(self._caller.id, rate, lambda wait: self._paced(request, wait))

    def _paced(self, request: Begun, wait_seconds: float) -> None:
        if self._is_gone:
            return
        if wait_seconds > 0:
            rate = self._caller.requests_per_second
            self._turn_down(f"Rate exceeded: {self._caller.id} may send {rate:g} requests a second.", wait_seconds)
        elif (most := self._caller.concurrent_requests) is None:
            self._let_go(request)
        else:
            ledger = f"principal:{self._caller.id}"
            self._in_flight.admit(ledger, (_SLOT,), most, 0, lambda *found: self._counted(request, found[1]))

    def _counted(self, request: Begun, outcome: Outcome) -> None:
        self._is_held = True
        if self._is_gone:
            self._give_back()
        elif outcome is Outcome.ALL_SATURATED:
            self._give_back()
            most = self._caller.concurrent_requests
            self._turn_down(f"Too many requests at once: {self._caller.id} may have {most} in flight.", 1.0)
        else:
            self._let_go(request)

    def _let_go(self, request: Begun) -> None:
        assert self._routes is not None
        self._request = request
        try:
            request.begin(self._routes)
        except Refused as refused:
            self._request = None
            self._give_back()
            self._refuse(refused)

    def _turn_down(self, message: str, wait_seconds: float) -> None:
        lines = b"retry-after: %d\r\n" % max(1, math.ceil(wait_seconds))
        self._refuse(Refused(faults.THROTTLED, message, headers=lines))

    def _give_back(self) -> None:
        if self._is_held:
            self._is_held = False
            self._in_flight.release(f"principal:{self._caller.id}", _SLOT)

    # --- to the connection: its responder ----------------------------------------------------------------------------

    def client_gone(self) -> None:
        self._is_gone = True
        if self._request is not None:
            self._request.client_gone()
        self._give_back()

    def pause(self) -> None:
        if self._request is not None:
            self._request.pause()

    def resume(self) -> None:
        if self._request is not None:
            self._request.resume()

    # --- to the request: its client ----------------------------------------------------------------------------------

    def respond(self, status: int, headers: bytes, body: bytes) -> None:
        self._give_back()
        self._client.respond(status, headers, body)

    def start(self, status: int, headers: bytes, content_length: int | None) -> None:
        self._client.start(status, headers, content_length)

    def send(self, data: bytes) -> None:
        self._client.send(data)

    def flush(self) -> None:
        self._client.flush()

    def finish(self) -> None:
        self._give_back()
        self._client.finish()

    def abort(self) -> None:
        self._give_back()
        self._client.abort()

"""Who a request is from and whether it may: access's answers in the words of the two APIs. Only there with AUTH on.

Nothing here asks Redis: the principals come with the routing table, and so does the end of one.
"""

import logging
import time
from collections.abc import Callable

from access.permissions import may
from access.refusals import Refusal, forbidden
from access.sealing import Sealing
from access.verifier import Claim, Verifier
from contract.principals import Principal
from dataplane.api import faults
from dataplane.api.faults import Refused
from dataplane.api.paths import Door, is_openai
from dataplane.routing.routes import EndpointRoutes, Routes
from dataplane.wire.http import Request

logger = logging.getLogger(__name__)

OPEN = frozenset((Door.LIVE, Door.READY))
"""For load balancers and orchestrators, which have no keys. They name no endpoint."""
INVOKE = "InvokeEndpoint"
"""The right to all doors that lead to a host (AWS has one action for both native operations)."""
_METRICS = "ReadMetrics"
_BEARER_ONLY = "This route takes a bearer token (Authorization: Bearer ...), not a signature."


class Guard:
    """Owns the verifier. ``clock``: epoch seconds."""

    def __init__(self, sealing: Sealing, clock: Callable[[], float] = time.time) -> None:
        self._sealing = sealing
        self._clock = clock
        self._verifier: Verifier | None = None
        self._principals: tuple[Principal, ...] | None = None
        self._region = ""
        self._told: set[str] = set()

    def apply(self, routes: Routes) -> None:
        """Take the principals of a new table; who is not in it is a stranger from now on."""
        if self._verifier is None or self._region != routes.region:
            self._verifier, self._region = Verifier(routes.region, self._sealing), routes.region
            self._principals = None
        if self._principals != routes.table.principals:
            self._principals = routes.table.principals
            self._verifier.apply(self._principals)

    def claim(self, request: Request) -> Claim:
        """Return whom the request says it is from, by its head alone. Raises Refused."""
        if self._verifier is None:
            raise Refused(faults.UNAVAILABLE, "This worker has no routing table yet.")
        try:
            claim = self._verifier.identify(request.all_headers(), self._clock())
        except Refusal as refusal:
            self._tell_operator()
            raise _refused(refusal) from None
        if claim.is_signed and is_openai(request.target):
            # As AWS answers it: the routes of each API have that API's way of saying who one is.
            raise Refused(faults.INVALID_SIGNATURE, _BEARER_ONLY)
        return claim

    def caller(self, request: Request) -> Principal:
        """Return who sent this request, proved. Raises Refused."""
        claim = self.claim(request)
        assert self._verifier is not None
        try:
            self._verifier.prove(claim, request.method, request.target, request.all_headers(), request.body)
        except Refusal as refusal:
            self._tell_operator()
            raise _refused(refusal) from None
        return claim.principal

    def check(self, caller: Principal, door: Door, name: str, routes: Routes | None) -> None:
        """Raise Refused unless the caller may use the door, and the endpoint that the path names, if it names one."""
        if door is Door.METRICS:
            if not may(caller, _METRICS):
                raise _refused(forbidden(caller.id, _METRICS, "metrics of all endpoints"))
        elif not may(caller, INVOKE):
            raise _refused(forbidden(caller.id, INVOKE, f"endpoint/{name[:63] or '*'}"))
        elif name and routes is not None:
            self.check_endpoint(caller, name, routes)

    def check_endpoint(self, caller: Principal, name: str, routes: Routes) -> None:
        """Raise Refused unless the caller may invoke what has this name, or would have it."""
        endpoint = routes.endpoints.get(name)
        if not may(caller, INVOKE, name, endpoint.tenant if endpoint is not None else None):
            arn = f"arn:aws:sagemaker:{routes.region}:{routes.account_id}:endpoint/{name[:63]}"
            raise _refused(forbidden(caller.id, INVOKE, arn))

    def _tell_operator(self) -> None:
        assert self._verifier is not None
        for principal in self._verifier.unsealable - self._told:
            self._told.add(principal)
            logger.error(
                "The secret of access key %s does not open, so its requests are refused; give this worker the "
                "WARMROUTE_SECRET_KEY that the control plane has",
                principal,
            )


def invocable(caller: Principal | None, endpoint: EndpointRoutes) -> bool:
    """Return whether the endpoint is there for this caller; None: there are no callers, AUTH is off."""
    return caller is None or may(caller, INVOKE, endpoint.name, endpoint.tenant)


def _refused(refusal: Refusal) -> Refused:
    return Refused(faults.BY_CODE[refusal.denial.code], refusal.message)

"""What a worker answers: each request to its door; the doors that ask no host are answered here."""

import asyncio
import itertools
import json
import os
from collections.abc import Callable
from functools import partial
from time import monotonic

from contract.principals import Principal
from dataplane.access_log import Line, milliseconds
from dataplane.api import faults
from dataplane.api.chat import ChatCompletions
from dataplane.api.faults import Answer, Fault, Refused
from dataplane.api.native import Invoke, InvokeWithResponseStream
from dataplane.api.paths import METHODS, Door, is_openai, resolve
from dataplane.guard import OPEN, Guard, invocable
from dataplane.invoke import Exchange
from dataplane.limits import Limited, is_limited
from dataplane.parts import Parts
from dataplane.routing.routes import Routes
from dataplane.wire.http import Request, status_line
from dataplane.wire.server import ClientConnection, Responder

REQUEST_ID_BYTES_MAX = 128
"""Of a client's own X-Request-Id; a longer or unprintable one is replaced, since it goes into logs."""

UNPROVEN_BYTES_MAX = 65_536
"""With AUTH on, a longer body, or one of unknown length, is read only for a caller whose key is known."""

_POST = (b"POST",)
_PROMETHEUS = b"content-type: text/plain; version=0.0.4; charset=utf-8\r\n"


class Front:
    """The service behind all client connections of a worker (``wire.server.Service``)."""

    def __init__(self, parts: Parts, routes: Callable[[], Routes | None], guard: Guard | None = None) -> None:
        """``guard``: None with AUTH off."""
        self._parts = parts
        self._guard = guard
        self._routes = routes
        self._invoke = Invoke()
        self._stream = InvokeWithResponseStream()
        self._chat = ChatCompletions()
        self._ids = itertools.count(1)
        self._id_prefix = os.urandom(8).hex().encode()
        self.connections: dict[ClientConnection, None] = {}
        self.loop: asyncio.AbstractEventLoop = parts.loop
        self.body_bytes_max = parts.settings.body_bytes_max
        self.keep_alive_seconds = parts.settings.keep_alive_seconds
        self.read_timeout_seconds = parts.settings.read_timeout_seconds
        self.draining = False

    # --- connections -------------------------------------------------------------------------------------------------

    def opened(self, connection: ClientConnection) -> bool:
        self.connections[connection] = None
        return len(self.connections) <= self._parts.settings.connections_max

    def closed(self, connection: ClientConnection) -> None:
        self.connections.pop(connection, None)

    # --- refusals of the wire ----------------------------------------------------------------------------------------

    def refuse_early(self, request: Request, content_length: int | None) -> bytes | None:
        """A body that is too large, or one that waits for 100-continue in vain, is not read at all."""
        if content_length is not None and content_length > self.body_bytes_max:
            reason = f"the request body of {content_length} bytes is over the limit of {self.body_bytes_max} bytes"
            return self.refusal(request.target, 413, reason)
        expects = request.header(b"expect") is not None
        if self._guard is not None:
            is_long = (content_length or 0) > UNPROVEN_BYTES_MAX or request.header(b"transfer-encoding") is not None
            return self._turn_away(self._guard, request) if is_long or expects else None
        if not expects:
            return None
        door, name = resolve(request.target)
        routes = self._routes()
        if door is Door.UNKNOWN:
            return self._whole(request.target, faults.NOT_FOUND, "There is no such path.")
        if name and routes is not None and name not in routes.endpoints:
            said = f"Endpoint {name} of account {routes.account_id} not found."
            return self._whole(request.target, faults.VALIDATION, said)
        return None

    def _turn_away(self, guard: Guard, request: Request) -> bytes | None:
        """Refuse by its head a stranger's body: it would take memory before anybody knew whose it is."""
        if resolve(request.target)[0] in OPEN:
            return None
        try:
            guard.claim(request)
        except Refused as refused:
            return self._whole(request.target, refused.fault, refused.message)
        return None

    def refusal(self, target: bytes, status: int, reason: str) -> bytes:
        return self._whole(target, faults.BY_STATUS[status], reason)

    def _whole(self, target: bytes, fault: Fault, message: str) -> bytes:
        status, headers, body = self._answer(target, fault, message)
        self._count(Door.UNKNOWN, status)
        lines = headers + faults.ids(self._new_id())
        return b"%b%bcontent-length: %d\r\nconnection: close\r\n\r\n%b" % (status_line(status), lines, len(body), body)

    def _answer(self, target: bytes, fault: Fault, message: str, param: str | None = None) -> Answer:
        if fault.code in faults.BY_CODE:
            self._parts.metrics.count("access_refusals_total", (fault.code,))
        if is_openai(target):
            return faults.openai(fault, message, param)
        return faults.native(fault, message)

    # --- requests ----------------------------------------------------------------------------------------------------

    def handle(self, connection: ClientConnection, request: Request) -> Responder | None:
        door, name = resolve(request.target)
        request_id = self._request_id(request)
        caller: Principal | None = None
        try:
            if self._guard is not None and door not in OPEN:
                caller = self._guard.caller(request)
                self._guard.check(caller, door, name, self._routes())
            if request.method not in METHODS.get(door, _POST):
                wanted = METHODS.get(door, _POST)[0].decode()
                fault = faults.NOT_FOUND if door is Door.UNKNOWN else faults.METHOD
                raise Refused(fault, "There is no such path." if door is Door.UNKNOWN else f"Use {wanted} here.")
            if door in (Door.INVOKE, Door.INVOKE_STREAM, Door.CHAT, Door.CHAT_BY_MODEL):
                return self._begin(connection, request, door, name, request_id, caller)
            status, headers, body = self._plain(door, caller)
        except Refused as refused:
            self._refuse(connection, request, door, request_id, refused, caller)
            return None
        self._count(door, status)
        connection.respond(status, headers + faults.ids(request_id), body)
        return None

    def _refuse(
        self,
        connection: ClientConnection,
        request: Request,
        door: Door,
        request_id: bytes,
        refused: Refused,
        caller: Principal | None,
    ) -> None:
        status, headers, body = self._answer(request.target, refused.fault, refused.message, refused.param)
        if refused.fault is faults.METHOD:
            headers += b"allow: %b\r\n" % b", ".join(METHODS.get(door, _POST))
        self._note(connection, request, door, status, request_id, refused.message, caller)
        self._count(door, status)
        connection.respond(status, headers + refused.headers + faults.ids(request_id), body)

    def _begin(
        self,
        connection: ClientConnection,
        request: Request,
        door: Door,
        name: str,
        request_id: bytes,
        caller: Principal | None,
    ) -> Responder:
        routes = self._routes()
        if routes is None:
            raise Refused(faults.UNAVAILABLE, "This worker has no routing table yet.")
        if door is Door.INVOKE:
            call = self._invoke.read(request, name)
        elif door is Door.INVOKE_STREAM:
            call = self._stream.read(request, name)
        elif door is Door.CHAT:
            if name not in routes.endpoints:
                raise Refused(faults.VALIDATION, f"Endpoint {name} of account {routes.account_id} not found.")
            call = self._chat.read(request, name)
        else:
            call = self._chat.read(request, None)
            if self._guard is not None and caller is not None:
                self._guard.check_endpoint(caller, call.endpoint_name, routes)
            if call.endpoint_name not in routes.endpoints:
                said = f"The model '{call.endpoint_name[:64]}' does not exist: no endpoint has this name."
                raise Refused(faults.MODEL_UNKNOWN, said, "model")
        if caller is not None:
            call.principal = caller.id
            if is_limited(caller):
                parts = self._parts
                refuse = partial(self._refuse, connection, request, door, request_id, caller=caller)
                limited = Limited(parts.in_flight, parts.rates, caller, connection, refuse)
                limited.begin(Exchange(parts, limited, request, call, request_id), routes)
                return limited
        exchange = Exchange(self._parts, connection, request, call, request_id)
        exchange.begin(routes)
        return exchange

    def _plain(self, door: Door, caller: Principal | None) -> Answer:
        routes = self._routes()
        if door is Door.LIVE:
            return _json(200, {"status": "live"})
        if door is Door.READY:
            return self._ready(routes)
        if door is Door.METRICS:
            return 200, _PROMETHEUS, self._parts.metrics.text().encode()
        if door is Door.MODELS:
            if routes is None:
                raise Refused(faults.UNAVAILABLE, "This worker has no routing table yet.")
            return _json(200, {"object": "list", "data": _models(routes, caller)})
        if door is Door.INVOKE_ASYNC:
            raise Refused(faults.VALIDATION, "InvokeEndpointAsync is not supported by this version.")
        if door is Door.CHAT_COMPONENT:
            raise Refused(faults.VALIDATION, "Inference components are not supported by this version.")
        raise Refused(faults.NOT_FOUND, "There is no such path.")

    def _ready(self, routes: Routes | None) -> Answer:
        if self.draining:
            return _json(503, {"status": "draining"})
        if routes is None:
            why = "no routing table yet: is a control plane running with the same WARMROUTE_REDIS_URL?"
            return _json(503, {"status": "waiting", "reason": why})
        body = {"status": "ready", "generation": routes.table.generation, "store": self._parts.in_flight.state.value}
        return _json(200, body)

    def _request_id(self, request: Request) -> bytes:
        given = request.header(b"x-request-id")
        if given and len(given) <= REQUEST_ID_BYTES_MAX and given.isascii() and given.decode().isprintable():
            return given
        return self._new_id()

    def _new_id(self) -> bytes:
        return b"%b-%d" % (self._id_prefix, next(self._ids))

    def _count(self, door: Door, status: int) -> None:
        self._parts.metrics.count("requests_total", ("", door.value, str(status)))

    def _note(
        self,
        connection: ClientConnection,
        request: Request,
        door: Door,
        status: int,
        request_id: bytes,
        why: str,
        caller: Principal | None,
    ) -> None:
        now = monotonic()
        self._parts.log.write(
            Line(
                at=now,
                request_id=request_id.decode(),
                route=door.value,
                status=status,
                principal=caller.id if caller is not None else "",
                attempts=0,
                request_bytes=len(request.body),
                total_ms=milliseconds(now - request.received_at),
                reason=why[:200],
                client=connection.peer,
            )
        )


def _models(routes: Routes, caller: Principal | None) -> list[dict[str, object]]:
    return [
        {"id": endpoint.name, "object": "model", "created": endpoint.created, "owned_by": "warmroute"}
        for endpoint in routes.endpoints.values()
        if invocable(caller, endpoint)
    ]


def _json(status: int, body: dict[str, object]) -> Answer:
    return status, b"content-type: application/json\r\n", json.dumps(body).encode()

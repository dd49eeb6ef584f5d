"""The life of one request, top to bottom: choose, count, deliver, answer, release. The only file that knows all steps.

Callbacks, no coroutine: each step is called by the one that finished before it. Whatever ends a request, it ends in
``_end``, which gives back the count and writes the log line, once.
"""

import asyncio
from functools import partial
from time import monotonic
from typing import Any

from msgspec import Struct

from contract.routing_table import Instance, Strategy
from dataplane.access_log import Line, milliseconds
from dataplane.api import faults
from dataplane.api.call import Call, Context, Head
from dataplane.api.faults import Fault, Refused
from dataplane.host import SAID, Address, Failure
from dataplane.parts import Client, Parts
from dataplane.record import word
from dataplane.routing.admission import Outcome
from dataplane.routing.candidates import candidates
from dataplane.routing.prefix_key import chat_key, native_key
from dataplane.routing.retry import Next, next_step
from dataplane.routing.routes import EndpointRoutes, Routes, VariantRoutes
from dataplane.routing.variant import choose_variant
from dataplane.wire.host_connection import HostConnection
from dataplane.wire.http import AnswerHead, Request

SECOND_CHANCE_SECONDS = 0.75
"""Beyond the connect timeout, for another instance when the first swallowed the whole of it."""
COLLECT_BYTES_MAX = 65_536
"""Of a host's error answer; ModelError quotes 2,048 characters of it."""


_BY_BEGIN: Any = None
"""Of a member that ``begin`` sets before anybody reads it."""


class Exchange(Struct, eq=False):
    """One request and its answer. ``check`` is called by the worker's sweep and enforces the time limits."""

    _parts: Parts
    _client: Client
    _request: Request
    _call: Call
    _request_id: bytes
    _routes: Routes = _BY_BEGIN
    _endpoint: EndpointRoutes = _BY_BEGIN
    _variant: VariantRoutes = _BY_BEGIN
    _credential: bytes = b""
    """A header line for the host, or nothing."""
    _key: int | None = None
    _instance: Instance | None = None
    """That the request is counted on, or was last."""
    _address: Address | None = None
    _held: bool = False
    """Counted, and not given back."""
    _tried: tuple[int, ...] = ()
    _attempts: int = 0
    _outcome: Outcome = Outcome.RANDOM
    _degraded: bool = False
    _connecting: asyncio.Task[None] | None = None
    _host: HostConnection | None = None
    _host_status: int = 0
    _head: Head | None = None
    """With the client."""
    _collected: list[bytes] | None = None
    """Of an answer that is read whole first."""
    _answer_bytes: int = 0
    _sent_at: float = 0.0
    _first_byte_at: float = 0.0
    _last_byte_at: float = 0.0
    _last_part: bytes = b""
    _paused: bool = False
    _failure: str = ""
    _reason: str = ""
    _ended: bool = False

    # --- choose ------------------------------------------------------------------------------------------------------

    def begin(self, routes: Routes) -> None:
        """Find the variant and ask for an instance; raises Refused when there is no such variant."""
        call, parts = self._call, self._parts
        endpoint = routes.endpoints.get(call.endpoint_name)
        if endpoint is None:
            raise Refused(faults.VALIDATION, f"Endpoint {call.endpoint_name} of account {routes.account_id} not found.")
        variant = choose_variant(endpoint.variants, call.target_variant, parts.dice.random())
        if variant is None:
            names = [variant.name for variant in endpoint.variants]
            raise Refused(faults.VALIDATION, faults.no_variant(endpoint.name, names, call.target_variant))
        credential = parts.host_credentials.line(variant.host_authorization)
        if credential is None:
            raise Refused(faults.UNAVAILABLE, "The credential of this endpoint's model hosts cannot be opened.")
        self._routes, self._endpoint, self._variant, self._credential = routes, endpoint, variant, credential
        if variant.strategy is Strategy.PREFIX_AWARE:
            if call.chat is not None:
                self._key = chat_key(call.chat, variant.prefix_length)
            else:
                self._key = native_key(self._request.body, variant.prefix_length, call.isolation)
        parts.exchanges[self] = None
        parts.budget.earn()
        self._choose()

    def _choose(self) -> None:
        """Ask for an instance that was not tried; set-aside ones only when there are no others."""
        variant, parts, key = self._variant, self._parts, self._key
        everything = None
        # Of a key's order the first ranks will do: no look at all of a thousand while one of them is set aside.
        able = self._available(variant.numbers if key is None else variant.order.first(key))
        if key is not None and variant.is_long:
            everything = partial(self._whole_order, key) if able else None
            able = able or self._whole_order(key)
        if not able:
            self._fail(faults.UNAVAILABLE, self._unreachable())
        elif len(able) == 1 and everything is None:
            self._count(able[0], Outcome.SINGLE)
        elif variant.strategy is Strategy.RANDOM:
            self._count(able[int(parts.dice.random() * len(able))], Outcome.RANDOM)
        elif key is None:
            parts.in_flight.admit(self._endpoint.id, able, 0, parts.dice.getrandbits(30), self._granted)
        else:
            parts.in_flight.admit(self._endpoint.id, able, variant.threshold, 0, self._granted, everything)

    def _whole_order(self, key: int) -> tuple[int, ...]:
        return self._available(self._variant.order.all(key))

    def _available(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        return candidates(self._variant, numbers, self._tried, self._parts.health.out)

    def _count(self, number: int, outcome: Outcome) -> None:
        self._parts.in_flight.count(self._endpoint.id, number)
        self._granted(number, outcome, False)

    def _granted(self, number: int, outcome: Outcome, degraded: bool) -> None:
        """The request is counted on ``number``: deliver it there, or give it back if the client has left."""
        parts, variant = self._parts, self._variant
        if self._ended:
            parts.in_flight.release(self._endpoint.id, number)
            return
        self._held = True
        if outcome is Outcome.LEAST_OUTSTANDING and variant.strategy is Strategy.PREFIX_AWARE:
            outcome = Outcome.NO_KEY
        self._outcome, self._degraded = outcome, degraded
        position = variant.positions[number]
        self._instance = variant.instances[position]
        self._address = address = variant.addresses[position]
        host = parts.pool.lease_idle(address)
        if host is not None:
            self._deliver(host)
        else:
            self._connecting = parts.pool.connect(address, self._connected, self._connect_deadline() - monotonic())

    # --- deliver -----------------------------------------------------------------------------------------------------

    def _connected(self, host: HostConnection | None, reason: str) -> None:
        self._connecting = None
        if host is not None:
            self._deliver(host)
        else:
            self.host_failed(Failure.REFUSED, f"{self._identity} refused the connection: {reason}")

    def _deliver(self, host: HostConnection) -> None:
        assert self._address is not None
        self._host = host
        self._attempts += 1
        self._sent_at = self._last_byte_at = monotonic()
        body, call, address = self._request.body, self._call, self._address
        head = b"POST %b%b HTTP/1.1\r\nHost: %b\r\n%b%bX-Request-Id: %b\r\nContent-Length: %d\r\n\r\n" % (
            address.path,
            call.api.host_path,
            address.authority,
            call.headers,
            self._credential,
            self._request_id,
            len(body),
        )
        host.send(self, head, body)

    # --- answer ------------------------------------------------------------------------------------------------------

    def host_head(self, answer: AnswerHead) -> None:
        self._first_byte_at = self._last_byte_at = monotonic()
        status = self._host_status = answer.status
        if status >= 500:
            self._parts.record.failed_answer(self._identity)
        elif status < 400:
            # A client's error says nothing about the host, good or bad.
            self._parts.health.succeeded(self._identity)
        head = self._head = self._call.api.answer_head(answer, self._variant.label, self._request_id)
        if head is None:
            self._collected = []
        else:
            self._client.start(head.status, head.headers, head.content_length)

    def host_body(self, parts: list[bytes]) -> None:
        self._last_byte_at = monotonic()
        self._answer_bytes += sum(map(len, parts))
        if self._collected is None:
            self._last_part = parts[-1]
            self._client.send(self._call.api.answer_parts(parts))
        elif self._answer_bytes <= COLLECT_BYTES_MAX:
            self._collected += parts
        elif self._host is not None:
            # An error answer without end: what it says is not worth reading on.
            host, self._host = self._host, None
            host.cancel()
            self._answer_whole(whole=False)

    def host_pause(self) -> None:
        self._client.flush()

    def host_done(self) -> None:
        self._host = None
        if self._head is None:
            self._answer_whole(whole=True)
        else:
            self._end(self._head.status)
            self._client.finish()

    def host_failed(self, failure: Failure, reason: str) -> None:
        """The delivery failed: try another instance where that is safe, else say so."""
        self._host = None
        self._failure, self._reason = failure.value, reason
        parts, name = self._parts, self._endpoint.name
        before_answer = self._head is None and self._collected is None
        parts.record.failure(name, self._identity, failure, before_answer=before_answer)
        if self._head is not None:
            self._break_off(failure, reason)
            return
        if self._collected is not None:
            self._answer_whole(whole=False)
            return
        left = len(self._variant.numbers) - len(self._tried) - 1
        step = next_step(failure, left, parts.budget.left, self._connect_deadline() - monotonic())
        if step is Next.OTHER:
            parts.budget.spend()
            parts.metrics.count("retries_total", (name,))
            assert self._instance is not None
            self._tried = (*self._tried, self._instance.number)
            self._release()
            self._choose()
        elif failure is Failure.REFUSED:
            self._fail(faults.UNAVAILABLE, self._unreachable())
        elif failure is Failure.SILENT:
            self._fail(faults.MODEL_TIMEOUT, faults.TIMED_OUT)
        else:
            self._fail(faults.MODEL, SAID[failure])

    def _connect_deadline(self) -> float:
        """Until when connections may be tried: time for one instance that does not answer at all, and one more."""
        return self._request.received_at + self._parts.settings.connect_timeout_seconds + SECOND_CHANCE_SECONDS

    def _unreachable(self) -> str:
        return f"No instance of variant {self._variant.name} of endpoint {self._endpoint.name} can be reached."

    def _answer_whole(self, *, whole: bool) -> None:
        body = b"".join(self._collected or ())
        status, headers, answer = self._call.api.answer_whole(self._host_status, body, whole, self._context())
        self._end(status)
        self._client.respond(status, headers + faults.ids(self._request_id), answer)

    def _break_off(self, failure: Failure, reason: str) -> None:
        """The answer's head is with the client: let it see that the rest is missing, in its API's own form."""
        assert self._head is not None
        ends = False
        # Words of ours would fill up a promised length, and the answer would look whole.
        if self._head.is_stream and self._head.content_length is None:
            timed_out = failure is Failure.SILENT
            said = faults.TIMED_OUT if timed_out else SAID[failure]
            words, ends = self._call.api.broken_part(said, timed_out, self._last_part)
            if words:
                self._client.send(words)
        self._end(self._head.status)
        if ends:
            self._client.finish()
        else:
            self._client.abort()

    def _fail(self, fault: Fault, message: str, param: str | None = None) -> None:
        status, headers, body = self._call.api.failure(fault, message, param, self._context())
        self._end(status)
        self._client.respond(status, headers + faults.ids(self._request_id), body)

    def _context(self) -> Context:
        return Context(self._routes.account_id, self._routes.region, self._endpoint.name, self._variant.name)

    # --- the client's side -------------------------------------------------------------------------------------------

    def client_gone(self) -> None:
        """The client has left: the host is told by the end of its connection."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._host is not None:
            self._host.cancel()
            self._host = None
        self._end(499)

    def pause(self) -> None:
        self._paused = True
        if self._host is not None:
            self._host.pause()

    def resume(self) -> None:
        self._paused = False
        self._last_byte_at = monotonic()
        if self._host is not None:
            self._host.resume()

    # --- limits ------------------------------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """End the exchange when one of its time limits has passed."""
        if self._host is None:
            return
        settings = self._parts.settings
        if not self._first_byte_at:
            first = settings.first_byte_timeout_seconds if self._call.is_stream else settings.invoke_timeout_seconds
            late = now - self._sent_at > first
        elif self._call.is_stream or (self._head is not None and self._head.is_stream):
            late = now - self._sent_at > settings.stream_timeout_seconds or (
                not self._paused and now - self._last_byte_at > settings.idle_timeout_seconds
            )
        else:
            late = now - self._sent_at > settings.invoke_timeout_seconds
        if late:
            self.cut("no answer in time")

    def cut(self, reason: str) -> None:
        """End the exchange as timed out: the host's connection is closed, the client told."""
        if self._host is not None:
            host, self._host = self._host, None
            host.cancel()
            self.host_failed(Failure.SILENT, f"{self._identity}: {reason}")
        elif not self._ended:
            if self._connecting is not None:
                self._connecting.cancel()
                self._connecting = None
            self._fail(faults.UNAVAILABLE, "The worker is stopping.")

    # --- the end -----------------------------------------------------------------------------------------------------

    @property
    def _identity(self) -> str:
        return self._instance.identity if self._instance is not None else ""

    def _release(self) -> None:
        if self._held:
            self._held = False
            assert self._instance is not None
            self._parts.in_flight.release(self._endpoint.id, self._instance.number)

    def _end(self, status: int) -> None:
        if self._ended:
            return
        self._ended = True
        self._release()
        self._parts.exchanges.pop(self, None)
        self._note(status, monotonic())

    def _note(self, status: int, now: float) -> None:
        request, sent_at, first_byte_at = self._request, self._sent_at, self._first_byte_at
        began = request.received_at
        line = Line(
            at=now,
            request_id=self._request_id.decode("ascii"),
            route=self._call.api.label,
            status=status,
            principal=self._call.principal,
            endpoint=self._endpoint.name,
            variant=self._variant.name,
            instance=self._identity,
            outcome=word(self._outcome, self._degraded),
            attempts=self._attempts,
            request_bytes=len(request.body),
            answer_bytes=self._answer_bytes,
            first_byte_ms=milliseconds(first_byte_at - began) if first_byte_at else 0.0,
            total_ms=milliseconds(now - began),
            failure=self._failure,
            reason=self._reason,
            client=self._client.peer,
        )
        self._parts.record.finished(line, self._variant.strategy_name, sent_at - began if sent_at else None)

"""One exchange whose bytes both ends know: drawn from dice, cut anywhere by both, and digested at both.

The request's id is how a host finds the run it serves; a worker hands it on with every request.
"""

import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from random import Random

from botocore.eventstream import EventStreamMessage

from tests.dataplane_e2e.stage import frames, payload
from tests.endurance.client import Client, Head
from tests.fakes.answers import Answer, Exchange, Step
from tests.fakes.raw_client import ConnectionEnded, request_bytes

HALF_MS = 0.0005
_SMALL_BYTES = 50_000
_BLOCK_BYTES = 12 * 2**20


class Route(StrEnum):
    """Every way to a model host."""

    INVOKE = "invocations"
    STREAM = "invocations-response-stream"
    CHAT = "endpoint's chat"
    CHAT_SSE = "endpoint's chat, streamed"
    MODEL_CHAT = "chat by model"
    MODEL_CHAT_SSE = "chat by model, streamed"

    @property
    def is_chat(self) -> bool:
        return self not in (Route.INVOKE, Route.STREAM)

    @property
    def is_sse(self) -> bool:
        return self in (Route.CHAT_SSE, Route.MODEL_CHAT_SSE)

    def target(self, endpoint: str) -> str:
        if self in (Route.MODEL_CHAT, Route.MODEL_CHAT_SSE):
            return "/v1/chat/completions"
        tail = "openai/v1/chat/completions" if self.is_chat else self.value
        return f"/endpoints/{endpoint}/{tail}"


@dataclass
class Run:
    """One exchange, and what each end saw of it."""

    id: str
    route: Route
    target: str
    request: bytes = field(repr=False)
    answer: bytes = field(repr=False)
    steps: Sequence[Step] = field(repr=False)
    """The answer as its host sends it."""
    framing: str = "chunked"
    """Of the answer, as in ``Answer``."""
    ending: str = "whole"
    keep_alive: bool = True
    is_reset: bool = False
    """The host throws the connection away instead of an answer."""
    request_chunks: Sequence[int] = field(default=(), repr=False)
    """Sizes of the request's chunks; empty: it has a length."""
    arrived: str = ""
    """Digest of the request that reached the host."""
    deliveries: int = 0

    def request_bytes(self) -> bytes:
        headers = [("X-Request-Id", self.id), ("Content-Type", "application/json")]
        if not self.request_chunks:
            return request_bytes(self.target, self.request, headers)
        body, at = b"", 0
        for size in self.request_chunks:
            body += b"%x\r\n%b\r\n" % (size, self.request[at : at + size])
            at += size
        return request_bytes(self.target, body + b"0\r\n\r\n", [*headers, ("Transfer-Encoding", "chunked")])

    async def serve(self, exchange: Exchange) -> None:
        """Answer as its host."""
        self.deliveries += 1
        self.arrived = digest(exchange.delivery.body)
        if self.is_reset:
            exchange.reset()
            return
        kind = "text/event-stream" if self.route.is_sse else "application/octet-stream"
        await Answer(
            self.steps,
            headers=(("Content-Type", kind),),
            framing=self.framing,
            ending=self.ending,
            keep_alive=self.keep_alive,
        )(exchange)

    async def read(self, client: Client) -> tuple[Head, bytes]:
        """Read an answer to its end and return (head, what the host said). Raises ConnectionEnded."""
        head = await client.head()
        body = b"".join([piece async for piece in client.parts(head)])
        return head, payload(_frames(body)) if head.status == 200 and self.route is Route.STREAM else body

    async def read_failure(self, client: Client) -> bool:
        """Read an answer that cannot be whole; return whether the client can tell that it is not."""
        body = bytearray()
        try:
            head = await client.head()
            async for piece in client.parts(head):
                body += piece
        except ConnectionEnded:
            return True
        if head.status >= 400:
            return True
        if self.route is Route.STREAM:
            return any(frame.headers[":message-type"] == "exception" for frame in _frames(bytes(body)))
        return self.route.is_sse and b'data: {"error":' in body

    def differences(self, status: int, body: bytes) -> list[str]:
        """Return what is not as it was sent."""
        found = []
        if status != 200:
            found.append(f"status {status}: {body[:200]!r}")
        elif digest(body) != digest(self.answer):
            found.append(f"{len(body)} bytes came of the {len(self.answer)} that the host sent, or others")
        if self.deliveries != 1:
            found.append(f"delivered {self.deliveries} times")
        elif self.arrived != digest(self.request):
            found.append("another request reached the host")
        return [f"{self.route}, {self.framing}, {len(self.request_chunks)} chunks: {word}" for word in found]


class Runs:
    """The runs that hosts may be asked for, by id."""

    def __init__(self) -> None:
        self.open: dict[str, Run] = {}

    async def serve(self, exchange: Exchange) -> None:
        """The script of every host. A run that is over is one whose client has left."""
        id = exchange.delivery.header("x-request-id") or b""
        run = self.open.get(id.decode())
        await (run.serve if run is not None else Answer())(exchange)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def draw(dice: Random, id: str, route: Route, endpoint: str, sizes: Sequence[tuple[int, int]]) -> Run:
    """Return a run of bytes, cuts and framings drawn from ``dice``.

    ``sizes``: of request and answer, each a (least, most) in bytes of which one is taken at random.
    """
    request = _request(dice, route, endpoint, dice.randint(*dice.choice(sizes)))
    answer = _some_bytes(dice, dice.randint(*dice.choice(sizes)))
    steps: list[Step] = []
    for piece in cut(dice, answer, 24):
        steps.append(piece)
        if dice.random() < 0.1:
            steps.append(HALF_MS)
    chunked = dice.random() < 0.5
    return Run(
        id,
        route,
        route.target(endpoint),
        request,
        answer,
        steps,
        framing=dice.choice(("length", "chunked", "chunked", "close")),
        request_chunks=[len(piece) for piece in cut(dice, request, 12)] if chunked and request else (),
    )


def _frames(data: bytes) -> Iterator[EventStreamMessage]:
    """Yield the event-stream frames in ``data``, each decoded alone: botocore copies all that is left for each."""
    at = 0
    while at < len(data):
        end = at + int.from_bytes(data[at : at + 4], "big")
        yield from frames(data[at:end])
        at = end


def cut(dice: Random, data: bytes, most: int) -> list[bytes]:
    """Return ``data`` in up to ``most`` pieces, none of them empty."""
    count = min(dice.randint(0, most - 1), max(len(data) - 1, 0))
    edges = [0, *sorted(dice.sample(range(1, len(data)), count)), len(data)] if data else [0]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def _request(dice: Random, route: Route, endpoint: str, size: int) -> bytes:
    if not route.is_chat:
        return _some_bytes(dice, size)
    text = _some_bytes(dice, size)
    if size > _SMALL_BYTES:
        # Hexadecimal digits need no escapes: a body of megabytes is made in no time.
        quoted = b'"%b"' % text[: size // 2].hex().encode()
    else:
        quoted = json.dumps(text.decode("latin-1"), ensure_ascii=dice.random() < 0.5).encode()
    stream = b"true" if route.is_sse else b"false"
    return b'{"model":"%b","stream":%b,"messages":[{"role":"user","content":%b}]}' % (endpoint.encode(), stream, quoted)


@cache
def _block() -> bytes:
    return Random(0).randbytes(_BLOCK_BYTES)


def _some_bytes(dice: Random, size: int) -> bytes:
    """Return so many random bytes: drawn anew, or a piece of a block when that would take long."""
    if size <= _SMALL_BYTES:
        return dice.randbytes(size)
    start = dice.randrange(_BLOCK_BYTES - size)
    return _block()[start : start + size]

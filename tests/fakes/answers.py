"""What a fake model host does with a request: scripts, and the gates with which a test holds them open.

A script is an async function of one Exchange. Most tests need only Answer; Raw writes any bytes at all.
"""

import asyncio
import concurrent.futures
import gzip
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.fakes.delivery import Delivery

JSON = (("Content-Type", "application/json"),)
SSE = (("Content-Type", "text/event-stream"),)


class Gate:
    """Holds scripts until a test opens it, from any thread."""

    def __init__(self) -> None:
        self._future: concurrent.futures.Future[None] = concurrent.futures.Future()

    def open(self) -> None:
        """Let everything that waits, and everything that comes later, pass."""
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        """Wait until the gate is open; a script that is cancelled meanwhile leaves the gate as it is."""
        await asyncio.shield(asyncio.wrap_future(self._future))


Step = bytes | float | int | Gate
"""Bytes are sent, numbers are seconds to pause, a gate is waited for."""


class Exchange(Protocol):
    """One request on its connection, as a script sees it."""

    delivery: Delivery
    keep_alive: bool
    """Whether the connection stays open after the script."""

    async def send(self, data: bytes) -> None:
        """Write bytes and wait until at most 64 KiB of them are in front of the kernel."""

    async def finish(self, data: bytes) -> None:
        """Send the last bytes of the answer; the request is no longer in flight before anybody can read them."""

    def close(self) -> None:
        """Close after what was sent (FIN)."""

    def reset(self) -> None:
        """Throw the connection away (RST)."""


Script = Callable[[Exchange], Awaitable[None]]


@dataclass(frozen=True)
class Answer:
    """A script for well-formed answers that may stop short. ``body`` as bytes has a length, as steps it is chunked.

    ``ending``: "whole", or where it stops short: "cut" (FIN before the last chunk or byte), "reset" (RST there), or
    "drop" (whole, then FIN although keep-alive was promised).
    """

    body: bytes | Sequence[Step] = b"{}"
    status: int = 200
    reason: str = "OK"
    headers: Sequence[tuple[str, str | bytes]] = JSON
    before: Step | None = None
    """Waited for before the head."""
    ending: str = "whole"
    keep_alive: bool = True
    framing: str = ""
    """"length", "chunked" or "close" (HTTP/1.0 style, ended by FIN); empty: by the type of ``body``."""
    trailers: Sequence[tuple[str, str]] = ()

    async def __call__(self, exchange: Exchange) -> None:
        if self.before is not None:
            await _pause(exchange, self.before)
        framing = self.framing or ("length" if isinstance(self.body, bytes) else "chunked")
        steps: Sequence[Step] = [self.body] if isinstance(self.body, bytes) else self.body
        head = self._head(framing, steps)
        bodiless = self.status in (204, 304) or exchange.delivery.method == "HEAD"
        if isinstance(self.body, bytes) and self.ending in ("whole", "drop"):
            await exchange.finish(head if bodiless else head + self.body)
            exchange.keep_alive = self.keep_alive and framing != "close" and self.ending != "drop"
            return
        await exchange.send(head)
        for step in () if bodiless else steps:
            if not isinstance(step, bytes):
                await _pause(exchange, step)
            elif step and framing == "chunked":
                await exchange.send(b"%x\r\n%b\r\n" % (len(step), step))
            elif step:
                await exchange.send(step)
        if self.ending == "reset":
            exchange.reset()
        elif self.ending == "cut":
            exchange.close()
        else:
            if framing == "chunked" and not bodiless:
                lines = [f"{name}: {value}\r\n".encode("latin-1") for name, value in self.trailers]
                await exchange.finish(b"0\r\n" + b"".join(lines) + b"\r\n")
            exchange.keep_alive = self.keep_alive and framing != "close" and self.ending != "drop"

    def _head(self, framing: str, steps: Sequence[Step]) -> bytes:
        lines = [f"HTTP/1.1 {self.status} {self.reason}".encode("latin-1")]
        for name, value in self.headers:
            lines.append(name.encode() + b": " + (value if isinstance(value, bytes) else value.encode("latin-1")))
        if framing == "chunked" and self.status not in (204, 304):
            lines.append(b"Transfer-Encoding: chunked")
        elif framing == "length" and self.status not in (204, 304):
            # A cut answer promises one byte more than it will have.
            promised = sum(len(step) for step in steps if isinstance(step, bytes)) + (self.ending in ("cut", "reset"))
            lines.append(b"Content-Length: %d" % promised)
        if not self.keep_alive or framing == "close":
            lines.append(b"Connection: close")
        return b"\r\n".join(lines) + b"\r\n\r\n"


@dataclass(frozen=True)
class Raw:
    """A script that writes exactly these steps. ``ending``: "close" (FIN), "reset" (RST) or "keep"."""

    steps: Sequence[Step] = ()
    ending: str = "close"

    async def __call__(self, exchange: Exchange) -> None:
        for step in self.steps:
            if isinstance(step, bytes):
                await exchange.send(step)
            else:
                await _pause(exchange, step)
        if self.ending == "reset":
            exchange.reset()
        exchange.keep_alive = self.ending == "keep"


@dataclass(frozen=True)
class Flood:
    """Writes ``total`` bytes as one chunked answer, as fast as the other side takes them."""

    total: int
    block: bytes = field(default=bytes(range(256)) * 256, repr=False)
    headers: Sequence[tuple[str, str | bytes]] = (("Content-Type", "application/octet-stream"),)

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.send(Answer(body=[], headers=self.headers)._head("chunked", ()))
        whole, rest = divmod(self.total, len(self.block))
        frame = b"%x\r\n%b\r\n" % (len(self.block), self.block)
        for _ in range(whole):
            await exchange.send(frame)
        if rest:
            await exchange.send(b"%x\r\n%b\r\n" % (rest, self.block[:rest]))
        await exchange.finish(b"0\r\n\r\n")


async def _pause(exchange: Exchange, step: Step) -> None:
    if isinstance(step, Gate):
        await step.wait()
    elif not isinstance(step, bytes):
        await asyncio.sleep(step)


def json_answer(content: Any, **given: Any) -> Answer:
    """Return an Answer with a JSON body."""
    return Answer(body=json.dumps(content).encode(), **given)


def gzip_answer(body: bytes, **given: Any) -> Answer:
    """Return an Answer whose body is gzip and says so."""
    headers = (("Content-Type", "application/json"), ("Content-Encoding", "gzip"))
    return Answer(body=gzip.compress(body, mtime=0), headers=headers, **given)


def sse(*events: bytes | float | int | Gate, **given: Any) -> Answer:
    """Return an Answer that streams these events, each a chunk of its own."""
    return Answer(body=list(events), **{"headers": SSE, **given})


def redirect(location: str, status: int = 307) -> Answer:
    """Return an Answer that points elsewhere."""
    return Answer(body=b"", status=status, reason="Redirect", headers=(("Location", location),))


async def echo(exchange: Exchange) -> None:
    """Answer as a model would: chat completions in OpenAI's shape, anything else with what arrived."""
    delivery = exchange.delivery
    if delivery.target.partition("?")[0].endswith("/chat/completions"):
        await _chat(delivery)(exchange)
        return
    content = {
        "host": delivery.host,
        "path": delivery.target,
        "bytes": len(delivery.body),
        "sha256": hashlib.sha256(delivery.body).hexdigest(),
    }
    await json_answer(content)(exchange)


def _chat(delivery: Delivery) -> Answer:
    try:
        asked = json.loads(delivery.body)
    except ValueError:
        asked = {}
    common = {"id": "chatcmpl-1", "created": 1_790_000_000, "model": asked.get("model", ""), "host": delivery.host}
    if asked.get("stream") is not True:
        message = {"role": "assistant", "content": "Hello from " + delivery.host}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
        return json_answer({**common, "object": "chat.completion", "choices": [choice], "usage": usage})
    words = [
        {"role": "assistant", "content": ""},
        {"content": "Hello"},
        {"content": " from "},
        {"content": delivery.host},
    ]
    events = [
        chunk_event({**common, "choices": [{"index": 0, "delta": word, "finish_reason": None}]}) for word in words
    ]
    events.append(chunk_event({**common, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
    return sse(*events, b"data: [DONE]\n\n")


def chunk_event(content: dict[str, Any]) -> bytes:
    """Return one server-sent event of a streamed chat completion."""
    return b"data: " + json.dumps({"object": "chat.completion.chunk", **content}).encode() + b"\n\n"

"""Answers over HTTP that take as long as the engine takes, and end when the client leaves."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from simulator.generation import Generation
from simulator.live import Answer, HostStopping, LiveEngine
from simulator.openai_api import error_body

STOPPING = error_body("This simulated host is stopping.", kind="service_unavailable_error")


class _LiveReply(Response):
    """Generates while the client is there. A client that leaves aborts its sequence."""

    def __init__(self, live: LiveEngine, generation: Generation, headers: Mapping[str, str]) -> None:
        self.background = None
        self._live = live
        self._generation = generation
        self._extra_headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writing = asyncio.create_task(self._write(scope, receive, send))
        leaving = asyncio.create_task(_client_leaves(receive))
        try:
            await asyncio.wait((writing, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (writing, leaving):
                task.cancel()
            await asyncio.gather(writing, leaving, return_exceptions=True)
        if not writing.cancelled():
            writing.result()

    @abstractmethod
    def _write(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]: ...


class WholeReply(_LiveReply):
    """One JSON object, once everything is generated."""

    def __init__(
        self,
        live: LiveEngine,
        generation: Generation,
        headers: Mapping[str, str],
        to_object: Callable[[Answer], dict[str, Any]],
    ) -> None:
        super().__init__(live, generation, headers)
        self._to_object = to_object

    async def _write(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._live.generate(self._generation) as answer:
                await answer.finish()
            content, status = self._to_object(answer), 200
        except HostStopping:
            content, status = STOPPING, 503
        response = Response(msgspec.json.encode(content), status, self._extra_headers, "application/json")
        await response(scope, receive, send)


class StreamReply(_LiveReply):
    """Server-sent events as the tokens come. Headers go out at once, as vLLM's do."""

    def __init__(
        self,
        live: LiveEngine,
        generation: Generation,
        headers: Mapping[str, str],
        to_events: Callable[[Answer], AsyncIterator[bytes]],
    ) -> None:
        super().__init__(live, generation, headers)
        self._to_events = to_events

    async def _write(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {
            **self._extra_headers,
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
        }
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        try:
            with self._live.generate(self._generation) as answer:
                async for event in self._to_events(answer):
                    await _send_event(send, event)
        except HostStopping:
            await _send_event(send, msgspec.json.encode(STOPPING))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_event(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": b"data: " + data + b"\n\n", "more_body": True})


async def _client_leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

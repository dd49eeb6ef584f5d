"""The closed loop of a case over real sockets: the same conversations, sent by asyncio to the data plane."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
from botocore.eventstream import EventStreamBuffer

from benchmarks.fleet.closed_loop import Conversations, Plan
from benchmarks.fleet.conversations import MODEL, Api


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer as its client saw it. Times in real seconds."""

    finished_at: float
    ttft: float
    prompt_tokens: int
    cached_tokens: int
    host: str


async def load(plan: Plan, seed: int, data_url: str, real_seconds: float) -> list[Seen]:
    """Return what was answered within ``real_seconds``. Raises httpx.HTTPStatusError for any answer that is an error:
    nothing here may fail."""
    conversations = Conversations(plan.start, plan.clients, seed)
    seen: list[Seen] = []
    began = time.monotonic()

    async def ask(number: int) -> None:
        async with httpx.AsyncClient(base_url=data_url, trust_env=False, timeout=60) as client:
            await asyncio.sleep(number * plan.clients.ramp_seconds / plan.clients.number)
            while time.monotonic() - began < real_seconds:
                conversation, turn = conversations.take()
                body = plan.api.body(turn.messages, turn.output_tokens, stream=True)
                one = await _ask(client, plan.api, body, began)
                conversations.give(conversation)
                if one.finished_at <= real_seconds:
                    seen.append(one)

    async with asyncio.TaskGroup() as group:
        for number in range(plan.clients.number):
            group.create_task(ask(number))
    return seen


async def _ask(client: httpx.AsyncClient, api: Api, body: bytes, began: float) -> Seen:
    sent = time.monotonic()
    first: float | None = None
    events: list[dict[str, Any]] = []
    path, headers = _PATHS[api]
    async with client.stream("POST", path, content=body, headers=headers) as answer:
        answer.raise_for_status()
        async for event in _events(api, answer):
            if first is None:
                first = time.monotonic()
            events.append(event)
    assert first is not None, "an answer has a first token"
    # The native API's last event and the OpenAI API's usage chunk.
    last = events[-1]
    usage = last["usage"]
    return Seen(
        finished_at=time.monotonic() - began,
        ttft=first - sent,
        prompt_tokens=usage["prompt_tokens"],
        cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
        host=last["host"] if api is Api.NATIVE else last["system_fingerprint"],
    )


_JSON = {"Content-Type": "application/json"}
_PATHS = {
    Api.NATIVE: (f"/endpoints/{MODEL}/invocations-response-stream",
                 _JSON | {"X-Amzn-SageMaker-Accept": "text/event-stream"}),
    Api.OPENAI: ("/v1/chat/completions", _JSON),
}  # fmt: skip


async def _events(api: Api, answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Yield the host's server-sent events as they come, out of the native API's frames."""
    frames = EventStreamBuffer()
    text = b""
    async for data in answer.aiter_raw():
        if api is Api.NATIVE:
            frames.add_data(data)
            text += b"".join(frame.payload for frame in frames)
        else:
            text += data
        *events, text = text.split(b"\n\n")
        for event in events:
            said = event.removeprefix(b"data: ")
            if said != b"[DONE]":
                yield json.loads(said)

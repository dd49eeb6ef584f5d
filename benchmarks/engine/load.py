"""The load: tenants with a long system prompt each, short questions behind it. Pure, but for serve."""

import asyncio
import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx
import msgspec

MODEL = "engine"
"""The name of the endpoint, and of the hosts' model for routers that ask them."""
TENANT_WORDS, QUESTION_WORDS, ANSWER_TOKENS = 4_000, 20, 16
"""A word is a token of the model (model.py, words)."""
_WORDS = [head + tail for head, tail in itertools.product(
    ("ba", "ce", "di", "fo", "gu", "la", "me", "no"), ("ka", "le", "mi", "po", "ru", "ta", "ve", "zo"))]  # fmt: skip
_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent, but for its seed."""

    tenants: int
    requests: int
    in_flight: int
    skew: float
    """Of a tenant's popularity: the k-th is asked in proportion to 1 / k ** skew; 0 is all alike."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer, as its caller and its engine saw it."""

    tenant: int
    ttft_seconds: float
    """From the call to the first token of the answer."""
    prompt_tokens: int
    cached_tokens: int


def bodies(load: Load, seed: int, text: int = 0) -> list[tuple[int, bytes]]:
    """Return (tenant, body of a streamed chat call) in the order they are sent.

    ``seed`` decides the order of tenants, and with ``text`` the words: another text is the same load in other words.
    """
    weights = [1 / (rank + 1) ** load.skew for rank in range(load.tenants)]
    asked = random.Random(seed).choices(range(load.tenants), weights, k=load.requests)  # noqa: S311
    dice = random.Random(f"{seed} {text}")  # noqa: S311
    prompts = [_text(dice, TENANT_WORDS) for _ in range(load.tenants)]
    return [(tenant, _body(prompts[tenant], _text(dice, QUESTION_WORDS))) for tenant in asked]


def _text(dice: random.Random, words: int) -> str:
    return " ".join(dice.choices(_WORDS, k=words))


def _body(prompt: str, question: str) -> bytes:
    return msgspec.json.encode(
        {
            "model": MODEL,
            "messages": [{"role": "system", "content": prompt}, {"role": "user", "content": question}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": ANSWER_TOKENS,
            "temperature": 0,
        }
    )


async def serve(base_url: str, calls: Sequence[tuple[int, bytes]], in_flight: int) -> list[Sample]:
    """Send the calls, so many at a time; return one sample each. Raises RuntimeError for any that fails or is cut."""
    waiting = iter(calls)
    samples: list[Sample] = []

    async def caller(client: httpx.AsyncClient) -> None:
        for tenant, body in waiting:
            samples.append(await _call(client, tenant, body))

    limits = httpx.Limits(max_connections=in_flight)
    async with (
        httpx.AsyncClient(base_url=base_url, timeout=_TIMEOUT_SECONDS, limits=limits, trust_env=False) as client,
        asyncio.TaskGroup() as tasks,
    ):
        for _ in range(in_flight):
            tasks.create_task(caller(client))
    return samples


async def _call(client: httpx.AsyncClient, tenant: int, body: bytes) -> Sample:
    began = time.perf_counter()
    first, usage, done = 0.0, None, False
    headers = {"content-type": "application/json"}
    async with client.stream("POST", "/v1/chat/completions", content=body, headers=headers) as answer:
        if answer.status_code != 200:
            raise RuntimeError(f"status {answer.status_code}: {(await answer.aread())[:200]!r}")
        async for line in answer.aiter_lines():
            if not line.startswith("data: "):
                continue
            if line == "data: [DONE]":
                done = True
                continue
            event = msgspec.json.decode(line[6:])
            if not first and any(choice.get("delta", {}).get("content") for choice in event.get("choices", ())):
                first = time.perf_counter()
            usage = event.get("usage") or usage
    if not (done and first and usage):
        raise RuntimeError(f"the stream was cut: done {done}, first token {bool(first)}, usage {usage}")
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Sample(tenant, first - began, usage["prompt_tokens"], cached)

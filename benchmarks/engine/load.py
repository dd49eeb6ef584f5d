"""The load: tenants with a long system prompt each, short questions behind it. Pure, but for serve."""

import asyncio
import itertools
import random
import time
from collections.abc import Iterator, Sequence
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
    """What is sent, but for its seed: by so many callers in all, each with one request in flight."""

    tenants: int
    requests: int
    in_flight: int
    skew: float = 0.0
    """Of a tenant's popularity: the k-th is asked in proportion to 1 / k ** skew; 0 is all alike."""
    own_caller: bool = False
    """Each tenant has one caller, which asks as often as any other; else every caller asks for any tenant."""
    pause_seconds: float = 0.0
    """The mean of what a caller waits before it asks; exponentially distributed."""

    def __post_init__(self) -> None:
        if self.own_caller and (self.in_flight != self.tenants or self.requests % self.tenants or self.skew):
            raise ValueError(f"with a caller a tenant, all ask alike and none twice at a time: {self}")


@dataclass(frozen=True, slots=True)
class Call:
    """One request, and what its caller waits before it."""

    tenant: int
    body: bytes
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer, as its caller and its engine saw it."""

    tenant: int
    ttft_seconds: float
    """From the call to the first token of the answer."""
    prompt_tokens: int
    cached_tokens: int


def calls(load: Load, seed: int, text: int = 0) -> list[Call]:
    """Return the streamed chat calls, those of any caller in the order they are sent.

    ``seed`` decides the order of tenants, and with ``text`` the words: another text is the same load in other words.
    """
    dice = random.Random(f"{seed} {text}")  # noqa: S311
    prompts = [_text(dice, TENANT_WORDS) for _ in range(load.tenants)]
    bodies = [(tenant, _body(prompts[tenant], _text(dice, QUESTION_WORDS))) for tenant in _asked(load, seed)]
    pauses = random.Random(seed)  # noqa: S311
    return [Call(tenant, body, load.pause_seconds * pauses.expovariate(1.0)) for tenant, body in bodies]


def _asked(load: Load, seed: int) -> list[int]:
    if load.own_caller:
        return [*range(load.tenants)] * (load.requests // load.tenants)
    weights = [1 / (rank + 1) ** load.skew for rank in range(load.tenants)]
    return random.Random(seed).choices(range(load.tenants), weights, k=load.requests)  # noqa: S311


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


async def serve(base_url: str, load: Load, asked: Sequence[Call]) -> list[Sample]:
    """Send the calls of a load; return one sample each. Raises RuntimeError for any that fails or is cut."""
    samples: list[Sample] = []

    async def caller(client: httpx.AsyncClient, mine: Iterator[Call]) -> None:
        for call in mine:
            await asyncio.sleep(call.pause_seconds)
            samples.append(await _send(client, call))

    limits = httpx.Limits(max_connections=load.in_flight)
    async with (
        httpx.AsyncClient(base_url=base_url, timeout=_TIMEOUT_SECONDS, limits=limits, trust_env=False) as client,
        asyncio.TaskGroup() as tasks,
    ):
        for mine in _by_caller(load, asked):
            tasks.create_task(caller(client, mine))
    return samples


def _by_caller(load: Load, asked: Sequence[Call]) -> list[Iterator[Call]]:
    if load.own_caller:
        return [iter([call for call in asked if call.tenant == tenant]) for tenant in range(load.tenants)]
    return [iter(asked)] * load.in_flight


async def _send(client: httpx.AsyncClient, call: Call) -> Sample:
    began = time.perf_counter()
    first, usage, done = 0.0, None, False
    headers = {"content-type": "application/json"}
    async with client.stream("POST", "/v1/chat/completions", content=call.body, headers=headers) as answer:
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
    return Sample(call.tenant, first - began, usage["prompt_tokens"], cached)

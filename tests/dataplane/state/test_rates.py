"""The bucket against a real Redis; who waits, who asks and who decides alone with answers that the test gives."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ConnectionError as RedisConnectionError

from contract import redis_keys
from dataplane.state import rates as module
from dataplane.state.rates import LEASE, Rates, burst
from dataplane.state.redis_client import RedisClient
from tests.waiting import wait_until_async

KEY = redis_keys.rate_key("AKWR")
BUDGET_SECONDS = 0.03


# --- the bucket -------------------------------------------------------------------------------------------------------


@pytest.fixture
def bucket(redis_url: str) -> Callable[..., list[int]]:
    client = redis.Redis.from_url(redis_url)
    client.delete(KEY)

    def lease(rate: float, wanted: int = 1) -> list[int]:
        found: Any = client.eval(LEASE, 1, KEY, rate, burst(rate), wanted)
        return list(found)

    yield lease  # type: ignore[misc]
    client.close()


def test_a_new_bucket_is_full_and_gives_what_it_has(bucket: Callable[..., list[int]]) -> None:
    began = time.monotonic()
    assert bucket(2, 1) == [1, 0]
    granted, wait_ms = bucket(2, 3)
    passed_ms = 1_000 * (time.monotonic() - began)
    assert granted == 1
    assert 500 - passed_ms - 1 <= wait_ms <= 500
    assert bucket(2, 1)[0] == 0


def test_tokens_come_with_time_and_no_faster(bucket: Callable[..., list[int]]) -> None:
    began = time.monotonic()
    total = 0
    while (passed := time.monotonic() - began) < 0.5:
        total += bucket(100, 7)[0]
        assert total <= 100 + 100 * (time.monotonic() - began) + 1
    assert total >= 100 + 100 * passed - 10


def test_a_rate_below_one_has_one_token_to_begin_with(bucket: Callable[..., list[int]]) -> None:
    began = time.monotonic()
    assert bucket(0.5) == [1, 0]
    granted, wait_ms = bucket(0.5)
    passed_ms = 1_000 * (time.monotonic() - began)
    assert granted == 0
    assert 2_000 - passed_ms - 1 <= wait_ms <= 2_000


def test_a_bucket_is_forgotten_when_it_is_full_again(bucket: Callable[..., list[int]], redis_url: str) -> None:
    bucket(2, 2)
    with redis.Redis.from_url(redis_url) as client:
        assert 1000 < client.pttl(KEY) <= 2000


@given(st.floats(0.001, 1e6))
def test_a_burst_is_a_second_of_the_rate_and_at_least_a_request(rate: float) -> None:
    assert 1 <= burst(rate) <= max(1, rate)
    assert burst(rate) > rate - 1


# --- a worker ---------------------------------------------------------------------------------------------------------


class Client:
    """Answers when the test says."""

    def __init__(self) -> None:
        self.wanted: list[int] = []
        self.answers: asyncio.Queue[list[int] | Exception] = asyncio.Queue()

    async def eval(self, script: str, keys_count: int, /, *given: Any) -> Any:
        assert (script, keys_count, given[0]) == (LEASE, 1, KEY)
        self.wanted.append(given[3])
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Stage:
    def __init__(self) -> None:
        self.client = Client()
        self.is_up = True
        self.workers = 2
        self.rates = Rates(self.client, BUDGET_SECONDS, lambda: self.is_up, lambda: self.workers)
        self.decided: list[float] = []

    def take(self, count: int = 1, rate: float = 10.0) -> None:
        for _ in range(count):
            self.rates.take("AKWR", rate, self.decided.append)

    async def answered(self, *answers: list[int] | Exception) -> list[float]:
        """Give these answers; return what was decided since the last time."""
        for answer in answers:
            self.client.answers.put_nowait(answer)
        await asyncio.sleep(0)
        await wait_until_async(lambda: not self.rates._buckets["AKWR"].is_asking, 2.0)
        found, self.decided[:] = list(self.decided), []
        return found


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    await stage.rates.stop()


async def test_all_that_came_in_one_turn_ask_together(stage: Stage) -> None:
    stage.take(3)
    assert stage.decided == []
    assert await stage.answered([3, 0]) == [0.0, 0.0, 0.0]
    assert stage.client.wanted == [3]


async def test_who_comes_while_a_call_is_on_its_way_is_in_the_next(stage: Stage) -> None:
    stage.take(1)
    await asyncio.sleep(0)
    stage.take(2)
    assert await stage.answered([1, 0], [2, 0]) == [0.0, 0.0, 0.0]
    assert stage.client.wanted == [1, 2]


async def test_one_that_fails_when_it_is_told_leaves_nobody_waiting(stage: Stage) -> None:
    def fails(seconds: float) -> None:
        raise ZeroDivisionError("a fault of its own")

    ended: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: ended.append(context["exception"]))
    stage.rates.take("AKWR", 10.0, fails)
    stage.take(2)
    assert len(await stage.answered([3, 0])) == 2
    stage.rates._down_until = 0.0
    stage.take()
    assert await stage.answered([1, 0]) == [0.0]
    await wait_until_async(lambda: ended and isinstance(ended[0], ZeroDivisionError))


async def test_when_the_bucket_is_empty_redis_is_not_asked_until_there_may_be_a_token(stage: Stage) -> None:
    stage.take(3)
    assert await stage.answered([1, 60_000]) == [0.0, 60.0, 60.0]
    stage.take(50)
    assert len(stage.decided) == 50
    assert all(30 < wait <= 60 for wait in stage.decided)
    assert stage.client.wanted == [3]


async def test_when_there_may_be_a_token_redis_is_asked_again(stage: Stage) -> None:
    stage.take(2)
    assert await stage.answered([1, 20]) == [0.0, 0.02]
    await asyncio.sleep(0.03)
    stage.take()
    assert await stage.answered([1, 0]) == [0.0]
    assert stage.client.wanted == [2, 1]


async def test_a_busy_caller_has_tokens_leased_ahead(stage: Stage) -> None:
    stage.take(100, 1000.0)
    await stage.answered([150, 0])
    assert stage.client.wanted[0] == 100 + 1000 * module.LEASE_SECONDS
    stage.take(50, 1000.0)
    assert stage.decided == [0.0] * 50
    assert len(stage.client.wanted) == 1


async def test_tokens_that_were_not_used_are_given_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.take(100, 1000.0)
    await stage.answered([150, 0])
    monkeypatch.setattr(module, "STALE_SECONDS", 0.0)
    stage.take(1, 1000.0)
    assert stage.decided == []
    assert await stage.answered([1, 0]) == [0.0]


async def test_nobody_waits_longer_than_the_budget(stage: Stage) -> None:
    """Six at ten a second over two workers: the share is five."""
    stage.take(6)
    await wait_until_async(lambda: len(stage.decided) == 6, 5.0)
    assert stage.decided[:5] == [0.0] * 5
    assert 0 < stage.decided[5] <= 0.2
    stage.take(3)
    assert len(stage.decided) == 9, "the call is still on its way, and nobody waits for it"
    await stage.answered([6, 0])
    assert len(stage.client.wanted) == 1


@pytest.mark.parametrize("error", [RedisConnectionError("away"), OSError("away"), TimeoutError()])
async def test_an_error_is_decided_by_the_share_and_not_asked_again_at_once(stage: Stage, error: Exception) -> None:
    began = time.monotonic()
    stage.take(1)
    assert await stage.answered(error) == [0.0]
    stage.take(10)
    assert len(stage.client.wanted) == 1
    assert 4 <= stage.decided.count(0.0) <= 4 + 5 * (time.monotonic() - began)
    assert len(stage.decided) == 10


async def test_while_redis_is_down_each_worker_gives_out_its_share(stage: Stage) -> None:
    stage.is_up = False
    began = time.monotonic()
    while time.monotonic() - began < 0.5 or len(stage.decided) < 150:
        stage.take(1, 100.0)
        await asyncio.sleep(0.002)
    passed = time.monotonic() - began
    assert stage.decided.count(0.0) <= 50 + 50 * passed + 1
    assert stage.decided.count(0.0) >= 50 + 10
    assert stage.client.wanted == []


async def test_callers_that_left_are_forgotten(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.take()
    await stage.answered([1, 0])
    monkeypatch.setattr(module, "IDLE_SECONDS", -1.0)
    stage.is_up = False
    stage.rates.take("other", 1.0, stage.decided.append)
    assert list(stage.rates._buckets) == ["other"]


async def test_two_workers_share_one_bucket(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.delete(KEY)
    clients = [RedisClient(redis_url) for _ in range(2)]
    workers = [Rates(client, 1.0, lambda: True, lambda: 2) for client in clients]
    decided: list[float] = []
    for worker in workers:
        for _ in range(8):
            worker.take("AKWR", 6.0, decided.append)
    await wait_until_async(lambda: len(decided) == 16, 3.0)
    assert decided.count(0.0) == 6
    for worker, client_ in zip(workers, clients, strict=True):
        await worker.stop()
        await client_.aclose()

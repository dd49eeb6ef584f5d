"""Requests a second, over the whole fleet: each worker leases tokens of a bucket in Redis, a few at a time.

A worker that has tokens left decides by itself; one that was told when the next token comes refuses until then by
itself. So a flood costs Redis some calls a second, however many requests it has. While Redis is slow or away, each
worker gives out its share of the rate.

What changes here: the buckets; only callbacks and tasks of the event loop change them.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from redis.exceptions import RedisError

from contract import redis_keys

LEASE_SECONDS = 0.05
"""Tokens are leased for so long ahead, of what the worker has seen."""
STALE_SECONDS = 1.0
"""Tokens that were not used by then are given up: others may have gone without them."""
BURST_SECONDS = 1.0
"""What a caller that was quiet may send at once, in seconds of its rate; at least one request."""
IDLE_SECONDS = 60.0
_TRY_AGAIN_SECONDS = 1.0

LEASE = """
local rate, burst, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local known = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = burst
if known[1] then
  tokens = math.min(burst, tonumber(known[1]) + math.max(0, now - tonumber(known[2])) * rate / 1000)
end
local granted = math.min(wanted, math.floor(tokens))
tokens = tokens - granted
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens), 'at', string.format('%.3f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000) + 1000)
if granted == wanted then return {granted, 0} end
return {granted, math.ceil((1 - tokens) * 1000 / rate)}
"""
"""KEYS 1 the bucket; ARGV rate a second, burst, tokens wanted. Returns tokens granted and ms until the next one."""

Decided = Callable[[float], None]
"""Called once with 0 (go), or with the seconds after which there may be a token."""


class Client(Protocol):
    """What is asked of the client of Redis (state.redis_client)."""

    async def eval(self, script: str, keys_count: int, /, *keys_and_arguments: Any) -> Any: ...


class _Bucket:
    """One principal's, as this worker knows it."""

    __slots__ = ("alone", "alone_at", "asked_at", "empty_until", "is_asking", "is_late", "leased_at", "seen",
                 "tokens", "used_at", "waiting")  # fmt: skip

    def __init__(self, now: float) -> None:
        self.tokens = 0
        self.leased_at = now
        self.empty_until = 0.0
        self.waiting: deque[Decided] = deque()
        self.is_asking = False
        self.is_late = False
        """The call on the way has taken longer than the budget."""
        self.seen = 0
        """Requests since ``asked_at``."""
        self.asked_at = self.used_at = now
        self.alone = -1.0
        """Tokens of the local bucket; below 0: not in use."""
        self.alone_at = now


class Rates:
    """``is_up`` and ``workers`` say how Redis does and among how many a rate is shared while it is away."""

    def __init__(
        self, client: Client, budget_seconds: float, is_up: Callable[[], bool], workers: Callable[[], int]
    ) -> None:
        self._client = client
        self._budget_seconds = budget_seconds
        self._is_up = is_up
        self._workers = workers
        self._buckets: dict[str, _Bucket] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._down_until = 0.0
        self._loop = asyncio.get_running_loop()

    def take(self, principal: str, rate: float, decided: Decided) -> None:
        """Take one token of the principal, whose rate is above 0; ``decided`` is called now or within the budget."""
        now = self._loop.time()
        bucket = self._buckets.get(principal)
        if bucket is None:
            self._forget_idle(now)
            bucket = self._buckets[principal] = _Bucket(now)
        bucket.used_at = now
        bucket.seen += 1
        if bucket.tokens and now - bucket.leased_at < STALE_SECONDS:
            bucket.tokens -= 1
            decided(0.0)
        elif now < bucket.empty_until:
            decided(bucket.empty_until - now)
        elif bucket.is_late or now < self._down_until or not self._is_up():
            decided(self._alone(bucket, rate, now))
        else:
            bucket.waiting.append(decided)
            if not bucket.is_asking:
                bucket.is_asking = True
                task = self._loop.create_task(self._ask(principal, bucket, rate))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, principal: str, bucket: _Bucket, rate: float) -> None:
        """Ask until nobody waits: more may come while a call is on its way."""
        try:
            while bucket.waiting:
                if not await self._ask_once(principal, bucket, rate):
                    self._late(bucket, rate)
                    break
        except Exception:
            # One of those who were told went wrong; nobody else would tell the others.
            self._late(bucket, rate)
            raise
        finally:
            bucket.is_asking = False

    async def _ask_once(self, principal: str, bucket: _Bucket, rate: float) -> bool:
        """Decide for those who wait; return whether Redis gave an answer to do so."""
        now = self._loop.time()
        passed = max(now - bucket.asked_at, LEASE_SECONDS)
        ahead = int(min(bucket.seen / passed, rate) * LEASE_SECONDS)
        bucket.seen, bucket.asked_at, bucket.tokens = 0, now, 0
        reply = await self._lease(principal, bucket, rate, len(bucket.waiting) + ahead)
        if reply is None:
            return False
        self._down_until, bucket.alone = 0.0, -1.0
        bucket.tokens, wait_ms = reply
        bucket.leased_at = self._loop.time()
        while bucket.waiting and bucket.tokens:
            bucket.tokens -= 1
            bucket.waiting.popleft()(0.0)
        if wait_ms:
            bucket.empty_until = bucket.leased_at + wait_ms / 1000
            while bucket.waiting:
                bucket.waiting.popleft()(wait_ms / 1000)
        return True

    async def _lease(self, principal: str, bucket: _Bucket, rate: float, wanted: int) -> list[int] | None:
        """Return what Redis says, None when it says nothing; who waits for longer than the budget is decided here."""
        timer = self._loop.call_later(self._budget_seconds, self._overdue, bucket, rate)
        try:
            reply: list[int] = await self._client.eval(
                LEASE, 1, redis_keys.rate_key(principal), rate, burst(rate), wanted
            )
        except (RedisError, OSError, TimeoutError):
            return None
        finally:
            timer.cancel()
            bucket.is_late = False
        return reply

    def _overdue(self, bucket: _Bucket, rate: float) -> None:
        bucket.is_late = True
        self._late(bucket, rate)

    def _late(self, bucket: _Bucket, rate: float) -> None:
        """Redis is slow or away: whoever waits is decided here, and for a moment whoever comes."""
        self._down_until = self._loop.time() + _TRY_AGAIN_SECONDS
        while bucket.waiting:
            bucket.waiting.popleft()(self._alone(bucket, rate, self._loop.time()))

    def _alone(self, bucket: _Bucket, rate: float, now: float) -> float:
        """Decide by this worker's share: 0, or the seconds until its next token."""
        share = rate / max(1, self._workers())
        most = burst(share)
        full = bucket.alone < 0
        bucket.alone = most if full else min(most, bucket.alone + (now - bucket.alone_at) * share)
        bucket.alone_at = now
        if bucket.alone >= 1:
            bucket.alone -= 1
            return 0.0
        return (1 - bucket.alone) / share

    def _forget_idle(self, now: float) -> None:
        """A new principal comes: those that have left need not be remembered."""
        for known, bucket in list(self._buckets.items()):
            if now - bucket.used_at > IDLE_SECONDS and not bucket.is_asking:
                del self._buckets[known]


def burst(rate: float) -> float:
    """Return how many requests may come at once after a quiet time."""
    return max(1.0, math.floor(rate * BURST_SECONDS))

"""The rules of the cache and the engine written down naively: block by block, step by step. The oracle of the tests."""

from collections import OrderedDict
from dataclasses import dataclass, field

from simulator.calibration import BLOCK_TOKENS, Profile


def blocks_for(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)


class NaiveCache:
    """Every block on its own: how many hold it, and the queue in which idle ones wait for eviction."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.private = 0
        self.holders: dict[int, int] = {}
        self.idle: OrderedDict[int, None] = OrderedDict()

    @property
    def available(self) -> int:
        return self.capacity - self.private - (len(self.holders) - len(self.idle))

    def known(self, blocks: list[int], limit: int) -> int:
        depth = 0
        while depth < limit and blocks[depth] in self.holders:
            depth += 1
        return depth

    def hold(self, block: int) -> None:
        self.holders[block] = self.holders.get(block, 0) + 1
        self.idle.pop(block, None)

    def reserve(self, count: int) -> None:
        assert count <= self.available
        self.private += count
        while self.private + len(self.holders) > self.capacity:
            block, _ = self.idle.popitem(last=False)
            del self.holders[block]

    def publish(self, block: int) -> None:
        """Make a reserved block findable, or share the copy that somebody else made findable."""
        self.private -= 1
        self.hold(block)

    def release(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self.holders[block] -= 1
            if not self.holders[block]:
                self.idle[block] = None


@dataclass(eq=False)
class NaiveRequest:
    id: int
    blocks: list[int]
    prompt: int
    output: int
    submitted: float
    aborted: float = float("inf")
    stored: int = 0
    generated: int = 0
    generating: bool = False
    admitted: bool = False
    private: int = 0
    held: list[int] = field(default_factory=list)


class NaiveEngine:
    """Takes all requests beforehand (with when they are aborted) and runs them one step at a time."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.cache = NaiveCache(profile.kv_blocks)
        self.waiting: list[NaiveRequest] = []
        self.running: list[NaiveRequest] = []
        self.events: list[tuple[float, str, int]] = []
        self.queries = 0
        self.hits = 0
        self.steps: list[int] = []
        """Tokens computed in each step."""

    def run(self, requests: list[NaiveRequest]) -> None:
        arriving = sorted(requests, key=lambda request: request.submitted)
        leaving = sorted(requests, key=lambda request: request.aborted)
        now = 0.0
        while arriving or self.waiting or self.running:
            if not self.waiting and not self.running:
                now = max(now, arriving[0].submitted)
            self._arrive(arriving, leaving, now)
            work = self._schedule(now)
            if not work:
                continue
            end = now + self._seconds(work)
            # An abort takes effect at once; the step goes on without it.
            while leaving and leaving[0].aborted < end:
                gone = leaving.pop(0)
                self._arrive(arriving, [], gone.aborted)
                self._abort(gone)
            now = end
            self._finish_step([(request, tokens) for request, tokens in work if request in self.running], now)

    def _arrive(self, arriving: list[NaiveRequest], leaving: list[NaiveRequest], now: float) -> None:
        while arriving and arriving[0].submitted <= now:
            self.waiting.append(arriving.pop(0))
        while leaving and leaving[0].aborted <= now:
            self._abort(leaving.pop(0))

    def _abort(self, request: NaiveRequest) -> None:
        if request in self.waiting:
            self.waiting.remove(request)
        elif request in self.running:
            self._leave(request)

    def _leave(self, request: NaiveRequest) -> None:
        self.running.remove(request)
        self._publish(request, request.stored)
        self.cache.private -= request.private
        request.private = 0
        self.cache.release(request.held)
        request.held = []
        request.generating = False

    def _preempt(self, request: NaiveRequest, now: float) -> None:
        self._leave(request)
        self.waiting.insert(0, request)
        self.events.append((now, "preempted", request.id))

    def _take(self, request: NaiveRequest, tokens: int) -> bool:
        lacking = blocks_for(tokens) - len(request.held) - request.private
        if lacking > self.cache.available:
            return False
        self.cache.reserve(lacking)
        request.private += lacking
        return True

    def _publish(self, request: NaiveRequest, tokens: int) -> None:
        for block in request.blocks[len(request.held) : tokens // BLOCK_TOKENS]:
            request.private -= 1
            self.cache.publish(block)
            request.held.append(block)

    def _schedule(self, now: float) -> list[tuple[NaiveRequest, int]]:
        work: list[tuple[NaiveRequest, int]] = []
        preempted = False
        while sum(r.generating and r.stored % BLOCK_TOKENS == 0 for r in self.running) > self.cache.available:
            self._preempt(self.running[-1], now)
            preempted = True
        for request in self.running:
            if request.generating:
                assert self._take(request, request.stored + 1)
                work.append((request, 1))
        budget = self.profile.token_budget - len(work)
        for request in [request for request in self.running if not request.generating]:
            tokens = min(request.prompt + request.generated - request.stored, budget)
            if self._take(request, request.stored + tokens):
                self._publish(request, request.stored + tokens)
                work.append((request, tokens))
                budget -= tokens
            else:
                self._preempt(request, now)
                preempted = True
        if not preempted:
            self._admit(budget, work)
        return work

    def _admit(self, budget: int, work: list[tuple[NaiveRequest, int]]) -> None:
        while self.waiting and budget and len(self.running) < self.profile.max_sequences:
            request = self.waiting[0]
            target = request.prompt + request.generated
            depth = self.cache.known(request.blocks, (target - 1) // BLOCK_TOKENS)
            cached = depth * BLOCK_TOKENS
            tokens = min(target - cached, budget)
            idle = sum(block in self.cache.idle for block in request.blocks[:depth])
            if blocks_for(cached + tokens) - depth > self.cache.available - idle:
                return
            self.running.append(self.waiting.pop(0))
            for block in request.blocks[:depth]:
                self.cache.hold(block)
            request.held = request.blocks[:depth]
            request.stored = cached
            assert self._take(request, cached + tokens)
            self._publish(request, cached + tokens)
            work.append((request, tokens))
            budget -= tokens
            if not request.admitted:
                request.admitted = True
                self.queries += request.prompt
                self.hits += cached

    def _seconds(self, work: list[tuple[NaiveRequest, int]]) -> float:
        profile = self.profile
        return (
            profile.step_seconds
            + profile.prefill_token_seconds * sum(tokens for request, tokens in work if not request.generating)
            + profile.sequence_seconds * len(work)
            + profile.context_token_seconds * sum(request.stored for request, _ in work if request.generating)
        )

    def _finish_step(self, work: list[tuple[NaiveRequest, int]], now: float) -> None:
        self.steps.append(sum(tokens for _, tokens in work))
        for request, tokens in work:
            request.stored += tokens
            if request.stored < request.prompt + request.generated:
                continue
            if not request.generated:
                self.events.append((now, "first_token", request.id))
            request.generated += 1
            request.generating = True
        for request in [request for request, _ in work if request.generated == request.output]:
            self._leave(request)
            self.events.append((now, "finished", request.id))

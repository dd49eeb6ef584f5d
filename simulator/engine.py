"""The engine of one simulated model host, in virtual time: continuous batching over a prefix cache.

One implementation for both worlds: a socket server advances it by the wall clock, a simulation by its event queue.
Pure: no clock, no I/O, no randomness; the same calls give the same events to the last digit.

Scheduling follows vLLM's V1 scheduler. Each step first gives every generating sequence one token, then a chunk to the
prompt in progress, then admits waiting sequences first come first served, while the token budget, the sequence limit
and the KV cache allow it. A step that lacks blocks preempts the youngest sequence, which then waits at the front and is
recomputed. Steps in which only generation happens are alike, so they are advanced in one go until something changes:
the cost is per change and per sequence, not per token.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence

from simulator.batch import Batch
from simulator.calibration import BLOCK_TOKENS, Profile
from simulator.kv_cache import KvCache
from simulator.lockstep import Lockstep
from simulator.request import Counters, Event, Kind, PromptTooLong, Request, Stage


class Engine:
    """One engine. Times are seconds of the caller's clock and must not run backwards."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.cache = KvCache(profile.kv_blocks)
        self.counters = Counters()
        self._requests: dict[Hashable, Request] = {}
        self._waiting: OrderedDict[Hashable, Request] = OrderedDict()
        self._running: dict[Hashable, Request] = {}
        """In order of admission; the last is the youngest."""
        self._partial: Request | None = None
        """The one running sequence whose prompt is not computed yet. Chunks end only where the budget does, so there
        is never a second one."""
        self._batch: Batch | None = None
        self._boundary = 0.0
        """When the next batch may start."""
        self._now = 0.0
        self._events: list[Event] = []
        self._lockstep = Lockstep()
        self._ahead = 0
        """1 while a step is under way, whose new blocks are reserved already."""
        self._serial = 0

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences not admitted yet, or preempted."""
        return len(self._waiting)

    def submit(
        self, request_id: Hashable, blocks: Sequence[int], prompt_tokens: int, output_tokens: int, now: float
    ) -> Request:
        """Queue a request that will generate ``output_tokens`` (>= 1).

        ``blocks`` are the chained hashes of the full 16-token blocks of the prompt and, as far as known, of the answer
        after it. Blocks beyond those given are taken as met by no other request. Raises PromptTooLong if prompt and
        answer exceed the host's context, ValueError for a repeated id or no tokens.
        """
        if request_id in self._requests:
            raise ValueError(f"request {request_id!r} is in the engine already")
        if prompt_tokens < 1 or output_tokens < 1:
            raise ValueError("a request needs at least one prompt token and one output token")
        limit = self.profile.context_tokens
        if prompt_tokens + output_tokens > limit:
            raise PromptTooLong(prompt_tokens, output_tokens, limit)
        self._run_to(now)
        self._serial += 1
        lacking = (prompt_tokens + output_tokens) // BLOCK_TOKENS - len(blocks)
        if lacking > 0:
            # Hashes are not negative, so these meet nothing.
            first = -(self._serial << 24)
            blocks = [*blocks, *range(first, first + lacking)]
        request = Request(request_id, blocks, prompt_tokens, output_tokens, now, self.cache.root)
        if self._batch is None and not self._waiting and not self._running:
            self._boundary = max(self._boundary, now)
        if self._batch is not None and not self._waiting:
            self._batch.cut()
        self._requests[request_id] = self._waiting[request_id] = request
        return request

    def abort(self, request_id: Hashable, now: float) -> bool:
        """Drop a request and free its blocks; the step under way still takes its time. False if it is not here."""
        self._run_to(now)
        request = self._requests.pop(request_id, None)
        if request is None:
            return False
        if self._batch is not None:
            self._batch.cut()
        if self._waiting.pop(request_id, None) is None:
            self._leave(request)
        request.stage = Stage.DONE
        self.counters.aborted += 1
        return True

    def advance(self, now: float) -> list[Event]:
        """Let time pass until ``now``; return what happened since the last call, in order of time.

        A batch that may start exactly at ``now`` is not formed yet, so that requests submitted at ``now`` join it.
        """
        self._run_to(now)
        events, self._events = self._events, []
        return events

    def next_change_at(self) -> float | None:
        """When to call advance() next: a prompt done, an answer finished, a new batch; at once if there is something to
        tell already. None: idle."""
        if self._events:
            return self._now
        batch = self._next_batch()
        return None if batch is None else batch.time(batch.steps)

    def next_step_at(self) -> float | None:
        """When the step under way, or the next one, ends. None: idle."""
        batch = self._next_batch()
        return None if batch is None else batch.time(batch.done + 1)

    def generated(self, request_id: Hashable) -> int:
        """Tokens generated for a request up to the last advance. Raises KeyError if it is not in the engine."""
        return self._generated(self._requests[request_id])

    def _run_to(self, now: float) -> None:
        if now < self._now:
            raise ValueError(f"time runs backwards, from {self._now} to {now}")
        self._now = now
        while True:
            batch = self._batch
            if batch is None:
                if self._boundary >= now or not (self._waiting or self._running):
                    return
                batch = self._plan()
            done = batch.steps_by(now)
            if done == batch.done:
                return
            self._commit(batch, done)

    def _next_batch(self) -> Batch | None:
        if self._batch is None and (self._waiting or self._running):
            return self._plan()
        return self._batch

    def _plan(self) -> Batch:
        """Form the batch that starts at the boundary. Blocks of its first step are reserved here."""
        start = self._boundary
        preempted = self._reserve_generation(start)
        budget = self.profile.token_budget - self._lockstep.size
        chunks: list[tuple[Request, int]] = []
        partial = self._partial
        if partial is not None:
            tokens = min(partial.target - partial.computed, budget)
            if self._grow(partial, partial.computed + tokens):
                chunks.append((partial, tokens))
                budget -= tokens
            else:
                self._preempt(partial, start)
                preempted = True
        if not preempted:
            self._admit(start, budget, chunks)
        alone = not chunks and not preempted
        seconds = self._step_seconds(chunks)
        growth = self.profile.context_token_seconds * self._lockstep.size
        steps = self._steps_until_change() if alone else 1
        self._batch = Batch(start, seconds, growth, steps, chunks)
        return self._batch

    def _step_seconds(self, chunks: list[tuple[Request, int]]) -> float:
        profile = self.profile
        return (
            profile.step_seconds
            + profile.prefill_token_seconds * sum(tokens for _, tokens in chunks)
            + profile.sequence_seconds * (self._lockstep.size + len(chunks))
            + profile.context_token_seconds * self._lockstep.context
        )

    def _reserve_generation(self, now: float) -> bool:
        """Reserve the blocks of one token for each generating sequence. True if somebody was preempted for it."""
        preempted = False
        while self._lockstep.demand() > self.cache.available:
            self._preempt(next(reversed(self._running.values())), now)
            preempted = True
        self.cache.reserve(self._lockstep.demand())
        self._ahead = 1
        return preempted

    def _admit(self, now: float, budget: int, chunks: list[tuple[Request, int]]) -> None:
        cache = self.cache
        while self._waiting and budget > 0 and len(self._running) < self.profile.max_sequences:
            request = next(iter(self._waiting.values()))
            # As in vLLM the last token is always computed: its output is the first token of the answer.
            limit = (request.target - 1) // BLOCK_TOKENS
            depth, idle = cache.probe(request.blocks, limit)
            cached = depth * BLOCK_TOKENS
            tokens = min(request.target - cached, budget)
            if -(-(cached + tokens) // BLOCK_TOKENS) - depth > cache.available - idle:
                return
            self._waiting.popitem(last=False)
            self._running[request.id] = request
            request.stage = Stage.PREFILL
            request.segment = cache.acquire(request.blocks, limit)
            request.held = depth
            request.computed = cached
            self._grow(request, cached + tokens)
            chunks.append((request, tokens))
            budget -= tokens
            if request.admitted_at is None:
                request.admitted_at = now
                request.cached_tokens = cached
                self.counters.prefix_cache_queries += request.prompt_tokens
                self.counters.prefix_cache_hits += cached

    def _grow(self, request: Request, upto: int) -> bool:
        """Give a prompt the blocks for its first ``upto`` tokens and make the full ones findable. False: too few."""
        lacking = -(-upto // BLOCK_TOKENS) - request.held
        if lacking > self.cache.available:
            return False
        self.cache.reserve(lacking)
        request.held += lacking
        request.segment = self.cache.extend(request.segment, request.blocks, upto // BLOCK_TOKENS)
        return True

    def _commit(self, batch: Batch, upto: int) -> None:
        """Make the steps of ``batch`` up to number ``upto`` happen."""
        count = upto - batch.done
        complete = upto == batch.steps
        self.cache.reserve(self._lockstep.demand_of(1, count - 1 if complete else count))
        self.counters.busy_seconds += batch.time(upto) - batch.time(batch.done)
        self.counters.steps += count
        self.counters.generation_tokens += count * self._lockstep.size
        self._lockstep.run(count)
        batch.done = upto
        if not complete:
            return
        self._batch = None
        self._ahead = 0
        self._boundary = batch.time(upto)
        for request, tokens in batch.chunks:
            if request.stage is Stage.PREFILL:
                self._computed(request, tokens)
        for request in self._lockstep.finished():
            self._finish(request)

    def _computed(self, request: Request, tokens: int) -> None:
        """A chunk is done; with the last one comes a token and the sequence starts to generate."""
        request.computed += tokens
        if request.computed < request.target:
            self._partial = request
            return
        if request is self._partial:
            self._partial = None
        if request.first_token_at is None:
            request.first_token_at = self._boundary
            self.counters.prompt_tokens += request.prompt_tokens
            self._events.append(Event(self._boundary, Kind.FIRST_TOKEN, request))
        self.counters.generation_tokens += 1
        request.stage = Stage.GENERATE
        request.generated += 1
        self._lockstep.join(request)

    def _finish(self, request: Request) -> None:
        self._leave(request)
        del self._requests[request.id]
        request.stage = Stage.DONE
        request.finished_at = self._boundary
        self.counters.finished += 1
        self._events.append(Event(self._boundary, Kind.FINISHED, request))

    def _preempt(self, request: Request, now: float) -> None:
        """Take a running sequence's blocks; what it has generated is recomputed with its prompt later."""
        generated = self._generated(request)
        self._leave(request)
        request.stage = Stage.WAITING
        request.generated = generated
        request.target = request.prompt_tokens + generated
        request.preemptions += 1
        self._waiting[request.id] = request
        self._waiting.move_to_end(request.id, last=False)
        self.counters.preemptions += 1
        self._events.append(Event(now, Kind.PREEMPTED, request))

    def _leave(self, request: Request) -> None:
        """Take a sequence out of the batch. Its full blocks stay findable, the rest is free again."""
        del self._running[request.id]
        if request is self._partial:
            self._partial = None
        if request.stage is Stage.GENERATE:
            stored = self._lockstep.leave(request)
            request.held = -(-(stored + self._ahead) // BLOCK_TOKENS)
            request.segment = self.cache.extend(request.segment, request.blocks, stored // BLOCK_TOKENS)
        self.cache.unreserve(request.held - request.segment.end)
        self.cache.release(request.segment)
        request.segment = self.cache.root

    def _generated(self, request: Request) -> int:
        if request.stage is Stage.GENERATE:
            return self._lockstep.generated(request)
        return request.generated

    def _steps_until_change(self) -> int:
        """Steps of pure generation until an answer is complete or blocks run out. At least 1."""
        steps = self._lockstep.steps_to_finish()
        available = self.cache.available
        if self._lockstep.demand_of(1, steps - 1) <= available:
            return steps
        for step in range(1, steps):
            available -= self._lockstep.demand(step)
            if available < 0:
                return step
        return steps

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.calibration import BLOCK_TOKENS, LAPTOP, Profile
from simulator.engine import Engine
from simulator.request import Event, Kind, PromptTooLong
from simulator.tokens import block_hashes
from tests.simulator.reference import NaiveEngine, NaiveRequest

# Odd figures, so that the end of a step never coincides with an arrival.
SMALL = Profile(
    name="small",
    step_seconds=0.0101003,
    prefill_token_seconds=0.000317,
    sequence_seconds=0.0007019,
    context_token_seconds=0.0000131,
    token_budget=48,
    max_sequences=5,
    kv_blocks=16,
    model_tokens=10_000,
)


@dataclass(frozen=True)
class Load:
    """One request of a generated load: ``tenant`` decides the shared beginning of the prompt."""

    gap: float
    tenant: int
    prompt: int
    output: int
    abort_after: float | None

    def blocks(self, number: int, shared: int) -> list[int]:
        total = (self.prompt + self.output) // BLOCK_TOKENS
        return [
            self.tenant * 1000 + depth if depth < shared else 10**6 * (number + 1) + depth for depth in range(total)
        ]


loads = st.lists(
    st.builds(
        Load,
        gap=st.integers(0, 40).map(lambda n: n * 0.00737),
        tenant=st.integers(0, 2),
        prompt=st.integers(1, 150),
        output=st.integers(1, 90),
        abort_after=st.none() | st.integers(0, 60).map(lambda n: n * 0.01391 + 0.0003),
    ),
    min_size=1,
    max_size=14,
)


def drain(engine: Engine) -> list[Event]:
    events = []
    while (at := engine.next_change_at()) is not None:
        events += engine.advance(at)
    return events


def play(engine: Engine, load: list[Load], shared: int, polls: tuple[float, ...] = ()) -> list[Event]:
    """Submit and abort in order of time, looking in at ``polls``, and run to the end."""
    calls: list[tuple[float, int, int]] = [(at, 2, 0) for at in polls]
    now = 0.0
    for number, request in enumerate(load):
        now += request.gap
        calls.append((now, 0, number))
        if request.abort_after is not None:
            calls.append((now + request.abort_after, 1, number))
    events = []
    for at, what, number in sorted(calls):
        request = load[number]
        if what == 0:
            engine.submit(number, request.blocks(number, shared), request.prompt, request.output, at)
        elif what == 1:
            engine.abort(number, at)
        else:
            events += engine.advance(at)
    return events + drain(engine)


def expected(profile: Profile, load: list[Load], shared: int) -> NaiveEngine:
    oracle = NaiveEngine(profile)
    now = 0.0
    requests = []
    for number, request in enumerate(load):
        now += request.gap
        naive = NaiveRequest(number, request.blocks(number, shared), request.prompt, request.output, now)
        if request.abort_after is not None:
            naive.aborted = now + request.abort_after
        requests.append(naive)
    oracle.run(requests)
    return oracle


def told(events: list[Event]) -> list[tuple[str, object]]:
    return [(event.kind.value, event.request.id) for event in events]


def ordered(events: list[tuple[float, str, int]]) -> list[tuple[float, str, int]]:
    return sorted((round(at, 9), kind, number) for at, kind, number in events)


@settings(max_examples=300, deadline=None)
@given(load=loads, shared=st.integers(0, 8), blocks=st.integers(15, 40), budget=st.integers(5, 200))
def test_agrees_with_the_naive_engine(load: list[Load], shared: int, blocks: int, budget: int) -> None:
    profile = replace(SMALL, kv_blocks=blocks, token_budget=budget)
    engine = Engine(profile)
    events = play(engine, load, shared)
    oracle = expected(profile, load, shared)
    found = ordered([(event.at, event.kind.value, event.request.id) for event in events])  # type: ignore[misc]
    wanted = ordered(oracle.events)
    assert [event[1:] for event in found] == [event[1:] for event in wanted]
    assert [event[0] for event in found] == pytest.approx([event[0] for event in wanted], abs=2e-9)
    assert engine.counters.steps == len(oracle.steps)
    assert engine.counters.prefix_cache_queries == oracle.queries
    assert engine.counters.prefix_cache_hits == oracle.hits
    assert max(oracle.steps) <= budget


@settings(max_examples=150, deadline=None)
@given(load=loads, shared=st.integers(0, 8))
def test_everything_is_given_back_and_nobody_is_lost(load: list[Load], shared: int) -> None:
    engine = Engine(SMALL)
    events = play(engine, load, shared)
    assert engine.running == engine.waiting == 0
    assert engine.cache.private == engine.cache.active == 0
    assert engine.cache.usage == 0
    assert engine.cache.findable <= SMALL.kv_blocks
    finished = [event.request for event in events if event.kind is Kind.FINISHED]
    assert engine.counters.finished == len(finished)
    assert engine.counters.finished + engine.counters.aborted == len(load)
    times = [event.at for event in events]
    assert times == sorted(times)
    for request in finished:
        assert request.admitted_at is not None
        assert request.first_token_at is not None
        assert request.finished_at is not None
        assert request.submitted_at <= request.admitted_at < request.first_token_at <= request.finished_at


@settings(max_examples=150, deadline=None)
@given(load=loads, shared=st.integers(0, 8), polls=st.lists(st.floats(0, 3).map(lambda x: x + 1e-5), max_size=30))
def test_looking_changes_nothing(load: list[Load], shared: int, polls: list[float]) -> None:
    alone = play(Engine(SMALL), load, shared)
    watched = play(Engine(SMALL), load, shared, tuple(polls))
    assert told(watched) == told(alone)
    assert [event.at for event in watched] == [event.at for event in alone]


@settings(max_examples=100, deadline=None)
@given(load=loads)
def test_the_engine_never_idles_while_there_is_work(load: list[Load]) -> None:
    load = [replace(request, gap=0.0, abort_after=None) for request in load]
    engine = Engine(SMALL)
    events = play(engine, load, shared=3)
    assert engine.counters.busy_seconds == pytest.approx(events[-1].at)


def test_the_same_calls_give_the_same_events() -> None:
    load = [Load(0.01 * number, number % 3, 40 + number, 20, None) for number in range(12)]
    assert [event[:2] for event in play(Engine(SMALL), load, 2)] == [
        event[:2] for event in play(Engine(SMALL), load, 2)
    ]


def ttft(engine: Engine, request_id: str, text: bytes, now: float) -> float:
    request = engine.submit(request_id, block_hashes(text), len(text) // 4, 2, now)
    drain(engine)
    assert request.first_token_at is not None
    return request.first_token_at - now


def test_a_warm_prompt_is_answered_sooner_than_a_cold_one() -> None:
    engine = Engine(LAPTOP)
    text = b"policy " * 572
    cold = ttft(engine, "cold", text[:4000], 0.0)
    warm = ttft(engine, "warm", text[:4000], 1.0)
    assert cold == pytest.approx(0.150, abs=0.002)
    assert warm == pytest.approx(0.0113, abs=0.001)


def test_a_whole_cached_prompt_still_computes_its_last_token() -> None:
    engine = Engine(SMALL)
    for request_id in ("a", "b"):
        request = engine.submit(request_id, [1, 2], 32, 1, 1.0 if request_id == "b" else 0.0)
        drain(engine)
    assert request.cached_tokens == 16


def test_an_answer_sent_back_is_found() -> None:
    engine = Engine(SMALL)
    engine.submit("turn 1", [1, 2, 3, 4], 32, 33, 0.0)
    drain(engine)
    turn = engine.submit("turn 2", [1, 2, 3, 4, 5], 80, 1, 5.0)
    drain(engine)
    assert turn.cached_tokens == 64


def test_preempted_work_is_recomputed_and_its_tokens_are_not_repeated() -> None:
    engine = Engine(replace(SMALL, kv_blocks=8, token_budget=200))
    requests = [engine.submit(name, [], 48, 60, 0.0) for name in ("elder", "younger")]
    events = drain(engine)
    assert engine.counters.preemptions >= 1
    assert requests[0].preemptions == 0
    assert requests[1].preemptions >= 1
    assert told(events).count(("first_token", "younger")) == 1
    assert engine.counters.generation_tokens == 120
    assert engine.counters.prefix_cache_queries == 96


def test_abort_frees_blocks_at_once_and_the_next_in_line_runs() -> None:
    engine = Engine(replace(SMALL, max_sequences=1))
    engine.submit("first", [], 100, 50, 0.0)
    engine.submit("second", [], 30, 1, 0.0)
    engine.advance(0.2)
    assert (engine.running, engine.waiting) == (1, 1)
    step_ends = engine.next_step_at()
    assert engine.abort("first", 0.2)
    assert engine.cache.usage == 0
    assert not engine.abort("first", 0.2)
    events = drain(engine)
    assert told(events) == [("first_token", "second"), ("finished", "second")]
    assert events[0].request.admitted_at == step_ends


def test_the_count_of_generated_tokens_follows_the_steps() -> None:
    engine = Engine(SMALL)
    engine.submit("a", [], 20, 30, 0.0)
    seen = [engine.generated("a")]
    while (at := engine.next_step_at()) is not None:
        if Kind.FINISHED in [event.kind for event in engine.advance(at)]:
            break
        seen.append(engine.generated("a"))
    assert seen == list(range(30))
    with pytest.raises(KeyError):
        engine.generated("a")


def test_bad_requests_are_refused_with_a_reason() -> None:
    engine = Engine(SMALL)
    with pytest.raises(PromptTooLong, match=r"at most 256 tokens; 250 of the prompt and 7 of the answer are 257"):
        engine.submit("long", [], 250, 7, 0.0)
    with pytest.raises(ValueError, match="at least one prompt token"):
        engine.submit("empty", [], 0, 1, 0.0)
    engine.submit("twice", [], 1, 1, 0.0)
    with pytest.raises(ValueError, match="in the engine already"):
        engine.submit("twice", [], 1, 1, 0.0)
    engine.advance(1.0)
    with pytest.raises(ValueError, match="runs backwards"):
        engine.advance(0.5)

"""Loads and tables of the parts engine and rivals. The engines and routers themselves are only in full runs."""

import asyncio
import json
from collections.abc import Iterator

import msgspec
import pytest

from benchmarks.engine import fleet, load, study, tables
from benchmarks.engine.load import Call, Load, Sample
from benchmarks.engine.runs import Run, record
from benchmarks.engine.tables import LEAST, PREFIX_AWARE, RANDOM
from benchmarks.rivals import study as rivals
from tests.fakes.answers import chunk_event, sse
from tests.fakes.model_host import HostThread, ModelHost
from tests.waiting import wait_until_async

LOAD = Load(tenants=3, requests=30, in_flight=4, skew=1.0)
OWN = Load(tenants=3, requests=30, in_flight=3, own_caller=True, pause_seconds=0.001)


@pytest.fixture
def host() -> Iterator[ModelHost]:
    thread = HostThread()
    host = ModelHost(thread)
    yield host
    host.close()
    thread.stop()


def events(*, content: str = " bale", usage: bool = True) -> list[bytes]:
    said = [chunk_event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})]
    said.append(chunk_event({"choices": [{"index": 0, "delta": {"content": content}}]}))
    if usage:
        counts = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 75}}
        said.append(chunk_event({"choices": [], "usage": counts}))
    return said


@pytest.mark.parametrize("asked", [LOAD, OWN])
def test_a_load_is_the_same_for_the_same_seed_and_other_words_for_another_text(asked: Load) -> None:
    first, again, other = load.calls(asked, 1), load.calls(asked, 1), load.calls(asked, 1, text=1)
    assert first == again
    assert [call.tenant for call in first] == [call.tenant for call in other]
    assert [call.pause_seconds for call in first] == [call.pause_seconds for call in other]
    assert not {call.body for call in first} & {call.body for call in other}


def asked_of(calls: list[Call], tenant: int) -> int:
    return sum(call.tenant == tenant for call in calls)


def test_tenants_keep_their_prompt_and_skew_makes_the_first_the_busiest() -> None:
    calls = load.calls(Load(3, 300, 4, 1.0), 1)
    prompts: dict[int, set[str]] = {}
    for call in calls:
        system, user = json.loads(call.body)["messages"]
        assert len(system["content"].split()) == load.TENANT_WORDS
        assert len(user["content"].split()) == load.QUESTION_WORDS
        prompts.setdefault(call.tenant, set()).add(system["content"])
    assert all(len(of) == 1 for of in prompts.values())
    assert asked_of(calls, 0) > asked_of(calls, 1) > asked_of(calls, 2)
    assert {call.pause_seconds for call in calls} == {0.0}


def test_callers_of_a_tenant_each_ask_alike_and_pause() -> None:
    calls = load.calls(Load(3, 300, 3, own_caller=True, pause_seconds=0.5), 1)
    assert {asked_of(calls, tenant) for tenant in range(3)} == {100}
    assert sum(call.pause_seconds for call in calls) / 300 == pytest.approx(0.5, rel=0.25)


@pytest.mark.parametrize(
    ("tenants", "requests", "in_flight", "skew"), [(3, 30, 4, 0.0), (3, 31, 3, 0.0), (3, 30, 3, 1.0)]
)
def test_a_caller_a_tenant_leaves_no_choice(tenants: int, requests: int, in_flight: int, skew: float) -> None:
    with pytest.raises(ValueError, match="caller a tenant"):
        Load(tenants, requests, in_flight, skew, own_caller=True)


@pytest.mark.parametrize("asked", [LOAD, OWN])
async def test_a_sample_holds_what_the_engine_counted(host: ModelHost, asked: Load) -> None:
    host.answer = sse(*events(), b"data: [DONE]\n\n")
    calls = load.calls(asked, 1)
    samples = await load.serve(host.url, asked, calls)
    assert sorted(sample.tenant for sample in samples) == sorted(call.tenant for call in calls)
    assert host.peak <= asked.in_flight
    assert {(sample.prompt_tokens, sample.cached_tokens) for sample in samples} == {(100, 75)}
    assert all(sample.ttft_seconds > 0 for sample in samples)


async def test_a_tenant_with_a_caller_of_its_own_never_meets_itself(host: ModelHost) -> None:
    gate = host.hold(answer=sse(*events(), b"data: [DONE]\n\n"))
    serving = asyncio.create_task(load.serve(host.url, OWN, load.calls(OWN, 1)))
    await wait_until_async(lambda: host.in_flight == OWN.in_flight)
    systems = [json.loads(body)["messages"][0]["content"] for body in host.bodies]
    assert len(set(systems)) == OWN.tenants
    gate.open()
    assert len(await serving) == OWN.requests


@pytest.mark.parametrize(
    "said",
    [events(), [*events(usage=False), b"data: [DONE]\n\n"], [*events(content=""), b"data: [DONE]\n\n"]],
    ids=["no end", "no usage", "no token"],
)
async def test_a_stream_that_is_not_whole_ends_the_run(host: ModelHost, said: list[bytes]) -> None:
    host.answer = sse(*said)
    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="cut"), allow_unwrapped=True):
        await load.serve(host.url, LOAD, load.calls(LOAD, 1)[:1])


def ran(way: str, seed: int, ttft: float, cached: int, asked: Load = LOAD, slots: int = 2) -> Run:
    return Run(way, asked, slots, seed, 10.0, [Sample(0, ttft, 100, cached), Sample(1, ttft, 100, cached)])


def test_findings_count_the_runs_that_reach_what_is_expected_and_those_that_do_not() -> None:
    runs = [ran(RANDOM, 1, 1.0, 30), ran(LEAST, 1, 0.9, 30), ran(PREFIX_AWARE, 1, 0.1, 90)]
    runs += [ran(RANDOM, 2, 1.0, 50), ran(LEAST, 2, 0.9, 30), ran(PREFIX_AWARE, 2, 0.5, 90)]
    runs += [ran(way, 1, 1.0, 30, OWN) for way in (RANDOM, LEAST, PREFIX_AWARE)]
    runs += [ran(way, 1, 1.0, 30, slots=4) for way in (RANDOM, LEAST, PREFIX_AWARE)]
    anyone, own = "4 callers, any tenant", "3 callers, each its tenant, pausing 0.001 s"
    assert tables.pairs_table(runs).rows == [
        ["2", anyone, "1", "90.0%", "3.00 x"],
        ["2", anyone, "2", "50.0%", "1.80 x"],
        ["2", own, "1", "0.0%", "1.00 x"],
        ["4", anyone, "1", "0.0%", "1.00 x"],
    ]
    first, second, third = tables.findings(runs)
    assert first.startswith(f"2 slots a host, {anyone}: P50")
    assert "in 1 of 2 runs" in first
    assert "RANDOM's in 1 of 2." in first
    assert second.startswith(f"2 slots a host, {own}: P50")
    assert third.startswith(f"4 slots a host, {anyone}: P50")
    assert "RANDOM's in 0 of 1." in third
    rows = {tuple(row[:3]): row[3:] for row in tables.strategies_table(runs).rows}
    assert rows["2", anyone, PREFIX_AWARE][0] == "0.30 [0.10, 0.50]"
    assert rows["2", own, PREFIX_AWARE][0] == "1.00 [1.00, 1.00]"
    assert rows["4", anyone, PREFIX_AWARE][0] == "1.00 [1.00, 1.00]"
    assert len(tables.plot(runs, study.HOSTS).panels) == 3


@pytest.mark.parametrize("asked", [*study.LOADS, *study.QUICK_LOADS])
@pytest.mark.parametrize("slots", study.SLOTS)
def test_the_threshold_is_what_a_host_serves_at_once_and_can_be_reached(asked: Load, slots: int) -> None:
    threshold = study.threshold(asked, slots)
    assert 1 <= threshold <= slots
    assert threshold < asked.in_flight
    pair = {"PrefixLength": study.PREFIX_LENGTH, "ConcurrencyThreshold": threshold}
    assert study.routing(PREFIX_AWARE, asked, slots)["PrefixAwareRoutingConfig"] == pair
    assert study.routing(LEAST, asked, slots) == {"RoutingStrategy": LEAST}


def test_rivals_say_where_the_product_stands_for_each_load() -> None:
    even, skewed = Load(8, 80, 4, 0.0), Load(8, 80, 4, 1.0)
    runs = [ran(rivals.OURS, 1, 0.2, 90, even), ran("smg cache_aware", 1, 0.4, 60, even)]
    runs += [ran(rivals.OURS, 1, 0.5, 90, skewed), ran("smg cache_aware", 1, 0.4, 60, skewed)]
    first, second = rivals.findings(runs)
    assert first.startswith("8 even; 4 callers, any tenant: warmroute PREFIX_AWARE is number 1 of 2")
    assert second.startswith("8 skewed; 4 callers, any tenant: warmroute PREFIX_AWARE is number 2 of 2")
    assert "smg cache_aware with 0.40 s" in second
    assert len(rivals.table(runs).rows) == 4


def test_the_engines_environment_is_pinned() -> None:
    assert fleet.requirement("xllamacpp").count(".") == 2
    assert msgspec.json.encode(record(ran(RANDOM, 1, 1.0, 30)))

"""Loads and tables of the parts engine and rivals. The engines and routers themselves are only in full runs."""

import json
from collections.abc import Iterator

import msgspec
import pytest

from benchmarks.engine import fleet, load, study
from benchmarks.engine.load import Load, Sample
from benchmarks.engine.study import LEAST, PREFIX_AWARE, RANDOM, Run
from benchmarks.rivals import study as rivals
from tests.fakes.answers import chunk_event, sse
from tests.fakes.model_host import HostThread, ModelHost

LOAD = Load(tenants=3, requests=30, in_flight=4, skew=1.0)


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


def test_a_load_is_the_same_for_the_same_seed_and_other_words_for_another_text() -> None:
    first, again, other = load.bodies(LOAD, 1), load.bodies(LOAD, 1), load.bodies(LOAD, 1, text=1)
    assert first == again
    assert [tenant for tenant, _ in first] == [tenant for tenant, _ in other]
    assert not {body for _, body in first} & {body for _, body in other}


def test_tenants_keep_their_prompt_and_skew_makes_the_first_the_busiest() -> None:
    calls = load.bodies(Load(3, 300, 4, 1.0), 1)
    prompts: dict[int, set[str]] = {}
    for tenant, body in calls:
        system, user = json.loads(body)["messages"]
        assert len(system["content"].split()) == load.TENANT_WORDS
        assert len(user["content"].split()) == load.QUESTION_WORDS
        prompts.setdefault(tenant, set()).add(system["content"])
    assert all(len(of) == 1 for of in prompts.values())
    asked = [sum(tenant == rank for tenant, _ in calls) for rank in range(3)]
    assert asked[0] > asked[1] > asked[2]


async def test_a_sample_holds_what_the_engine_counted(host: ModelHost) -> None:
    host.answer = sse(*events(), b"data: [DONE]\n\n")
    samples = await load.serve(host.url, load.bodies(LOAD, 1), 4)
    assert len(samples) == LOAD.requests
    assert host.peak <= 4
    assert {(sample.prompt_tokens, sample.cached_tokens) for sample in samples} == {(100, 75)}
    assert all(sample.ttft_seconds > 0 for sample in samples)


@pytest.mark.parametrize(
    "said",
    [events(), [*events(usage=False), b"data: [DONE]\n\n"], [*events(content=""), b"data: [DONE]\n\n"]],
    ids=["no end", "no usage", "no token"],
)
async def test_a_stream_that_is_not_whole_ends_the_run(host: ModelHost, said: list[bytes]) -> None:
    host.answer = sse(*said)
    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="cut"), allow_unwrapped=True):
        await load.serve(host.url, load.bodies(LOAD, 1)[:1], 1)


def ran(way: str, seed: int, ttft: float, cached: int, asked: Load = LOAD, slots: int = 2) -> Run:
    return Run(way, asked, slots, seed, 10.0, [Sample(0, ttft, 100, cached), Sample(1, ttft, 100, cached)])


def test_findings_count_the_runs_that_reach_what_is_expected_and_those_that_do_not() -> None:
    runs = [ran(RANDOM, 1, 1.0, 30), ran(LEAST, 1, 0.9, 30), ran(PREFIX_AWARE, 1, 0.1, 90)]
    runs += [ran(RANDOM, 2, 1.0, 50), ran(LEAST, 2, 0.9, 30), ran(PREFIX_AWARE, 2, 0.5, 90)]
    runs += [ran(way, 1, 1.0, 30, slots=4) for way in (RANDOM, LEAST, PREFIX_AWARE)]
    assert study.pairs_table(runs).rows == [
        ["2", "1", "90.0%", "3.00 x"], ["2", "2", "50.0%", "1.80 x"], ["4", "1", "0.0%", "1.00 x"]
    ]  # fmt: skip
    two, four = study.findings(runs)
    assert two.startswith("2 slots a host: P50")
    assert "in 1 of 2 runs" in two
    assert "RANDOM's in 1 of 2." in two
    assert four.startswith("4 slots a host: P50")
    assert "RANDOM's in 0 of 1." in four
    rows = {(row[0], row[1]): row[2:] for row in study.strategies_table(runs).rows}
    assert rows["2", PREFIX_AWARE][0] == "0.30 [0.10, 0.50]"
    assert rows["4", PREFIX_AWARE][0] == "1.00 [1.00, 1.00]"


def test_rivals_say_where_the_product_stands_for_each_load() -> None:
    even, skewed = Load(8, 80, 4, 0.0), Load(8, 80, 4, 1.0)
    runs = [ran(rivals.OURS, 1, 0.2, 90, even), ran("smg cache_aware", 1, 0.4, 60, even)]
    runs += [ran(rivals.OURS, 1, 0.5, 90, skewed), ran("smg cache_aware", 1, 0.4, 60, skewed)]
    first, second = rivals.findings(runs)
    assert first.startswith("8, even: warmroute PREFIX_AWARE is number 1 of 2")
    assert second.startswith("8, skewed: warmroute PREFIX_AWARE is number 2 of 2")
    assert "smg cache_aware with 0.40 s" in second
    assert len(rivals.table(runs).rows) == 4


def test_the_engines_environment_is_pinned() -> None:
    assert fleet.requirement("xllamacpp").count(".") == 2
    assert msgspec.json.encode(study.record(ran(RANDOM, 1, 1.0, 30)))

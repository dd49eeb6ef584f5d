"""The whole run on this machine with contenders of all sorts: the model hosts themselves stand in for a proxy."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.proxy import measure, study
from benchmarks.proxy.contenders import NGINX_PROXY, WARMROUTE, WITH_AUTH, Contender, LeftOut
from benchmarks.proxy.load import JSON_2K, LOADS, Door
from benchmarks.proxy.measure import QUICK, Size
from benchmarks.proxy.processes import Server
from benchmarks.proxy.routers import ROUTERS
from benchmarks.proxy.stage import Stage, stage

TINY = Size(2, 0.1, 0.05)


@pytest.fixture(scope="module")
def around() -> Iterator[Stage]:
    with stage() as found:
        yield found


def hosts_as_a_proxy(stage: Stage) -> tuple[Server, Door]:
    """A proxy that costs nothing: requests go straight to a host; beside it, a process to be accounted for."""
    return stage.launch(
        "idle", [sys.executable, "-c", "import time; time.sleep(60)"], stage.directory / "idle.log"
    ), Door(stage.host_ports[0])


def wrong(stage: Stage) -> tuple[Server, Door]:
    server, door = hosts_as_a_proxy(stage)
    return server, Door(door.port, model='","stream":true,"x":"')


def missing(stage: Stage) -> tuple[Server, Door]:
    raise LeftOut("not on PATH (apt-get install it)")


def bring_up(around: Stage, *contenders: Contender) -> tuple[list[measure.Runner], list[str]]:
    said: list[str] = []
    around.left_out.clear()
    with ExitStack() as ends:
        return measure.start(around, contenders, ends, said.append), said


def test_what_is_missing_and_what_answers_wrongly_is_left_out_by_name(around: Stage) -> None:
    contenders = [Contender("right", "", hosts_as_a_proxy), Contender("none", "", missing),
                  Contender("false", "", wrong, is_router=True)]  # fmt: skip
    runners, said = bring_up(around, *contenders)
    assert [runner.contender.name for runner in runners] == ["right"]
    assert around.left_out["none"] == "not on PATH (apt-get install it)"
    assert "bytes that are not the host's 300" in around.left_out["false"]
    assert said == [f"left out: {name}: {reason}" for name, reason in around.left_out.items()]


def test_the_product_is_never_left_out_for_answering_wrongly(around: Stage) -> None:
    with pytest.raises(BenchmarkError, match="ours, JSON 2 KB"):
        bring_up(around, Contender("ours", "", wrong))


def test_rounds_measure_each_in_turn(around: Stage) -> None:
    with ExitStack() as ends:
        runners = measure.start(around, [Contender("right", "", hosts_as_a_proxy)], ends, lambda _: None)
        measured = measure.measure(around, runners, [JSON_2K], TINY, lambda _: None)
    assert set(measured.samples) == {(name, JSON_2K, count) for name in ("direct", "right") for count in (1, 32)}
    for samples in measured.samples.values():
        assert len(samples) == TINY.rounds
        assert all(sample.rate > 0 and sample.cpu_us < 50 for sample in samples)
    assert measured.memory_bytes["right"] > 1e6
    assert 0 <= measured.idle_share < 0.2
    assert 0 <= measured.others_share < 1


def test_a_router_that_begins_to_fail_is_taken_out_and_the_rest_goes_on(
    around: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    believed = measure.believe
    seen: dict[str, int] = {}

    def believe(name: str, *rest: object) -> None:
        seen[name] = seen.get(name, 0) + 1
        if name == "router" and seen[name] > 2:
            raise BenchmarkError("3 of 9 requests failed")
        believed(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(measure, "believe", believe)
    around.left_out.clear()
    contenders = [Contender("router", "", hosts_as_a_proxy, is_router=True), Contender("ours", "", hosts_as_a_proxy)]
    with ExitStack() as ends:
        runners = measure.start(around, contenders, ends, lambda _: None)
        measured = measure.measure(around, runners, [JSON_2K], TINY, lambda _: None)
    assert [runner.contender.name for runner in runners] == ["ours"]
    assert around.left_out == {"router": "3 of 9 requests failed"}
    assert len(measured.samples["ours", JSON_2K, 32]) == TINY.rounds


@pytest.mark.parametrize("contender", [*WARMROUTE, *WITH_AUTH], ids=lambda one: one.name)
def test_the_product_serves_each_strategy_and_proof(contender: Contender, around: Stage) -> None:
    with ExitStack() as ends:
        (runner,) = measure.start(around, [contender], ends, lambda _: None)
        assert len(runner.server.family()) == 2
        assert runner.contender is contender


def test_a_quick_run_installs_nothing_and_a_whole_one_has_all() -> None:
    quick, whole = study.choose((), quick=True), study.choose((), quick=False)
    assert not set(quick.contenders) & set(ROUTERS)
    assert quick.loads == LOADS
    assert not quick.has_instructions
    assert set(ROUTERS) < set(whole.contenders)
    assert whole.has_instructions
    assert QUICK.seconds < 1


def test_only_takes_programs_contenders_and_loads() -> None:
    chosen = study.choose(["nginx", "warmroute PREFIX_AWARE", "SSE", "instructions"], quick=False)
    assert chosen.contenders == (NGINX_PROXY, WARMROUTE[0])
    assert [load.name for load in chosen.loads] == ["SSE"]
    assert chosen.has_instructions
    assert not study.choose(["warmroute"], quick=False).has_instructions
    with pytest.raises(BenchmarkError, match="there is no envoy; there are JSON 2 KB"):
        study.choose(["envoy", "nginx"], quick=False)


@pytest.mark.parametrize("find", [lambda name: None, lambda name: f"/usr/bin/{name}" if name == "wrk" else None])
def test_missing_tools_are_named_with_how_to_get_them(
    find: Callable[[str], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: find(name))
    with stage() as bare:
        said = bare.left_out
        assert "apt-get install gcc" in said["hosts in C"]
        assert ("wrk" in said) == (find("wrk") is None)
        assert bare.host_kind == "Python"
        runners, _ = bring_up(bare, NGINX_PROXY)
        assert runners == []
        assert "apt-get install nginx" in bare.left_out["nginx"]


def test_nothing_is_left_behind() -> None:
    with stage() as found:
        directory: Path = found.directory
        assert found.redis_cpu_seconds() > 0
    assert not directory.exists()

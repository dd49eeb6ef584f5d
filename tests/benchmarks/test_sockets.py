"""What the two worlds are compared by; that they run is shown with all parts (test_main.py)."""

from dataclasses import replace

import pytest

from benchmarks.fleet.closed_loop import run
from benchmarks.result import DIRECTORY, read
from benchmarks.sockets.case import HOSTS, QUICK, WHOLE, Case
from benchmarks.sockets.load import Seen
from benchmarks.sockets.study import HIT_POINTS, TTFT_SHARE, Both, World, compare

SIZE = replace(QUICK, real_seconds=20, speed=2.0)


def seen_as(case: Case, slower: float = 1.0) -> list[Seen]:
    """Return what clients would see of a virtual run, in real time."""
    return [
        Seen(one.finished_at / SIZE.speed, slower * (one.first_token_at - one.submitted_at) / SIZE.speed,
             one.prompt_tokens, one.cached_tokens, one.host)
        for one in run(case.plan(SIZE.real_seconds * SIZE.speed), case.seed)
    ]  # fmt: skip


@pytest.mark.parametrize("case", WHOLE.cases, ids=lambda case: f"{case.strategy} {case.api.value}")
def test_a_world_agrees_with_itself_in_the_engines_time(case: Case) -> None:
    both = compare(case, SIZE, seen_as(case))
    assert both.agree
    assert abs(both.hit_points) < HIT_POINTS
    assert both.sockets.requests_per_s == pytest.approx(both.virtual.requests_per_s, rel=0.1)
    assert 1 / len(HOSTS) <= both.sockets.share_most < 1


def test_a_slower_world_does_not_agree() -> None:
    both = compare(WHOLE.cases[0], SIZE, seen_as(WHOLE.cases[0], slower=1.3))
    assert both.ttft_share > TTFT_SHARE
    assert not both.agree


def test_other_hit_rates_do_not_agree() -> None:
    virtual = World(100, 0.5, 100, 200, 5, 0.3)
    for hit_rate, agree in ((0.46, True), (0.54, True), (0.44, False), (0.56, False)):
        both = Both(WHOLE.cases[0], replace(virtual, hit_rate=hit_rate), virtual, {})
        assert both.agree == agree


def test_seeds_differ_from_case_to_case() -> None:
    assert len({case.seed for case in WHOLE.cases}) == len(WHOLE.cases)


def test_the_kept_results_agree() -> None:
    result = read(DIRECTORY / "sockets.json")
    assert len(result.figures) == len(WHOLE.cases)
    for record in result.figures:
        hits, ttfts = ([record[f"{world} {figure}"] for world in ("sockets", "virtual")]
                       for figure in ("hit_rate", "ttft_p50_ms"))  # fmt: skip
        assert isinstance(hits[0], float)
        assert hits[0] == pytest.approx(hits[1], abs=HIT_POINTS / 100)
        assert ttfts[0] == pytest.approx(ttfts[1], rel=TTFT_SHARE)

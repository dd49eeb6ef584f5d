"""The part ``trace``: what it counts is checked on made-up traces; its results on what it is to reach."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.errors import BenchmarkError, InputMissing
from benchmarks.result import DIRECTORY, Value, read
from benchmarks.trace.cells import LARGE, QUICK, WHOLE, Advised, Found, best, first_cells, second_half
from benchmarks.trace.data import VARIABLE, Arrival, bound, found_blocks, load, location, made_up
from benchmarks.trace.replay import HOSTS, PREFIX_AWARE, Cell, Run, profile, replay, run, spread
from benchmarks.trace.tables import findings
from simulator.calibration import LLAMA_3_1_70B_8XH100
from warmroute.advise.entry import blocks_of

LENGTHS = (2048, 3072)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return made_up(tmp_path / "trace.jsonl", 240)


def arrival(at: float, ids: list[int], tokens: int, key: int = 1) -> Arrival:
    return Arrival(at, tokens, 5, blocks_of(ids, 512, tokens), (key, key), tuple(ids))


# --- the trace --------------------------------------------------------------------------------------------------------


def test_the_trace_is_where_the_environment_says(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(path))
    assert location() == path
    monkeypatch.setenv(VARIABLE, str(path.parent))
    with pytest.raises(InputMissing, match="which is not at"):
        location()


def test_without_the_trace_its_part_says_how_to_get_it_and_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nothing"))
    kept = (DIRECTORY / "trace.json").read_bytes()
    refreshed: list[bool] = []
    monkeypatch.setattr("benchmarks.documents.refresh", lambda: refreshed.append(True))
    assert main(["trace", "docs"]) == 2
    said = capsys.readouterr().err
    assert "kvcache-ai/Mooncake" in said
    assert "FAST25-release/traces" in said
    assert f"make bench PART=trace {VARIABLE}=" in said
    assert (DIRECTORY / "trace.json").read_bytes() == kept
    assert refreshed == [True]


def test_all_requests_share_block_0_and_part_at_the_second(path: Path) -> None:
    arrivals = load(path, LENGTHS)
    assert len(arrivals) == 240
    assert len({one.keys[0] for one in arrivals}) == 1
    assert len({one.keys[1] for one in arrivals}) == len({one.ids[1] for one in arrivals}) > 10


def test_the_bound_counts_leading_blocks_that_were_there_before() -> None:
    arrivals = [arrival(0, [0, 1, 2], 1536), arrival(1, [0, 1, 3], 1536), arrival(2, [0, 4, 2], 1536),
                arrival(3, [0, 1, 2], 1536)]  # fmt: skip
    blocks, tokens = bound(arrivals)
    # Of twelve: two, one (2 was behind 1) and all three. An engine computes the last 16 tokens of a prompt itself.
    assert blocks == 6 / 12
    assert tokens == (2 * 512 + 512 + 1536 - 16) / (4 * 1536)


@pytest.mark.parametrize(
    ("tokens", "cached", "blocks"),
    [(1536, 0, 0), (1536, 511, 0), (1536, 512, 1), (1536, 1520, 3), (1536, 1504, 2), (1100, 1024, 2), (1100, 1088, 3),
     (1024 + 16, 1024, 2), (1024 + 17, 1040, 3)],
)  # fmt: skip
def test_a_block_is_found_when_all_is_found_that_can_be(tokens: int, cached: int, blocks: int) -> None:
    assert found_blocks(arrival(0, [0, 1, 2], tokens), cached) == blocks


def test_among_all_parts_a_missing_trace_is_told_and_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broken part is one."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nothing"))
    monkeypatch.setattr("benchmarks.__main__.PARTS", {"trace": ""})
    monkeypatch.setattr("benchmarks.documents.refresh", lambda: None)
    assert main([]) == 0
    assert "trace: not measured: " in capsys.readouterr().err

    def broken(path: Path | None = None) -> Path:
        raise BenchmarkError("no clock")

    monkeypatch.setattr("benchmarks.trace.study.location", broken)
    assert main([]) == 2
    assert capsys.readouterr().err == "trace: not measured: no clock\n"


# --- runs -------------------------------------------------------------------------------------------------------------


def test_the_same_run_gives_the_same_figures_and_another_seed_others(path: Path) -> None:
    job = Run(path, LENGTHS, Cell(PREFIX_AWARE, 3072, 4, LARGE), 1)
    assert run(job) == run(job)
    assert run(job) != run(replace(job, seed=2))


def test_strategies_find_what_they_should(path: Path) -> None:
    arrivals = load(path, LENGTHS)
    most = bound(arrivals)
    at_home, chance, idle = (
        run(Run(path, LENGTHS, Cell(strategy, length, 1024, LARGE), 1))
        for strategy, length in ((PREFIX_AWARE, 3072), ("RANDOM", 0), ("LEAST_OUTSTANDING_REQUESTS", 0))
    )
    # Each chat is at home on one host and nothing is evicted, so only block 0 is computed on each host anew.
    lost = (HOSTS - 1) / sum(len(one.ids) for one in arrivals)
    assert at_home.block_hit_rate == pytest.approx(most[0] - lost, abs=0.002)
    assert at_home.token_hit_rate <= most[1]
    assert chance.block_hit_rate < at_home.block_hit_rate - 0.1
    assert idle.in_flight_most <= chance.in_flight_most
    assert (at_home.overflow, at_home.saturated) == (0, 0)


def test_a_length_within_the_shared_block_has_one_home_until_the_threshold(path: Path) -> None:
    funnel = Cell(PREFIX_AWARE, 2048, 1024, LARGE)
    assert run(Run(path, LENGTHS, funnel, 1)).share_most == 1
    assert run(Run(path, LENGTHS, replace(funnel, threshold=1), 1)).overflow > 0


def test_caches_have_the_size_asked_for() -> None:
    assert profile(2_600).kv_blocks * 16 == 2_600 * 512
    assert profile(2_674).kv_blocks <= LLAMA_3_1_70B_8XH100.kv_blocks < profile(2_675).kv_blocks
    # Four chats of 20 blocks on one host that holds 50.
    turns = [arrival(10.0 * number, [0, *range(100 * (number % 4) + 1, 100 * (number % 4) + 20)], 20 * 512)
             for number in range(40)]  # fmt: skip
    cell = Cell(PREFIX_AWARE, 2048, 9, 50)
    small, large = (replay(turns, cell, 1, profile(blocks), 0) for blocks in (50, 500))
    assert small.token_hit_rate < 0.1 < 0.85 < large.token_hit_rate


def test_the_second_half_is_replayed_alone_and_cold(path: Path) -> None:
    cell = Cell(PREFIX_AWARE, 3072, 1024, LARGE, second_half=True)
    arrivals = load(path, LENGTHS)
    assert run(Run(path, LENGTHS, cell, 1)) == replay(arrivals[120:], cell, 1, profile(LARGE), 1)


def test_cells_are_each_run_once() -> None:
    cells = [*first_cells(WHOLE), *second_half(WHOLE, 8)]
    assert len(cells) == len(set(cells))
    assert {cell.prefix_length for cell in cells if cell.second_half} == set(WHOLE.lengths)
    assert (min(WHOLE.lengths), max(WHOLE.lengths)) == (1024, 65_536)
    assert len(WHOLE.seeds) >= 5


# --- what is said -----------------------------------------------------------------------------------------------------


def found(path: Path, better: float) -> Found:
    cells = [*first_cells(QUICK), *second_half(QUICK, 4)]
    figures = {cell: spread([run(Run(path, LENGTHS, cell, 1))]) for cell in cells}
    for cell, of in figures.items():
        if cell.second_half and cell.prefix_length == 2048:
            of["token_hit_rate"] = (better, better, better)
    return Found(
        QUICK, 240, 24.0, 0.9, 0.9, 0.9, {2048: (1, 1.0), 3072: (40, 0.1)}, figures, Advised(3072, 4, 0.8, 9.0)
    )


def test_what_is_missed_is_said(path: Path) -> None:
    said = list(findings(found(path, better=0.99)))
    assert any("is not within one point" in one for one in said)
    low = found(path, better=0.1)
    assert any("is within one point" in one for one in findings(low))
    assert any("it does not reach the 75% asked for" in one for one in findings(replace(low, block_bound=9.0)))


def test_the_best_is_the_one_with_the_most_blocks_found(path: Path) -> None:
    pairs = list(found(path, better=0.5).cells.items())
    assert best(pairs)[1]["block_hit_rate"][0] == max(of["block_hit_rate"][0] for _, of in pairs)


# --- the results that are kept ----------------------------------------------------------------------------------------


def mean(value: Value) -> float:
    assert isinstance(value, list)
    return value[0]


def test_the_kept_results_reach_what_was_asked_for() -> None:
    result = read(DIRECTORY / "trace.json")
    rates = {
        (record["PrefixLength"], record["requests"]): mean(record["token_hit_rate"])
        for record in result.figures if record["strategy"] == PREFIX_AWARE and record["cache blocks"] == LARGE
    }  # fmt: skip
    second = {length: rate for (length, half), rate in rates.items() if half == "second half"}
    advised = result.settings["advised PrefixLength"]
    assert second[advised] >= max(second.values()) - 0.01
    blocks = max(mean(record["block_hit_rate"]) for record in result.figures
                 if record["cache blocks"] == LARGE and record["requests"] == "all")  # fmt: skip
    assert blocks >= 0.75 * 0.3664
    assert result.tables[0].rows[0][1] == "36.6%"

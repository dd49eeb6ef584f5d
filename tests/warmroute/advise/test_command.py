"""The whole command on made-up logs, one of each form."""

import argparse
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.warmroute.advise.logs import SECRET, chat_body, templated, trace_lines, write
from warmroute import cli
from warmroute.advise import command

SMALL = ("--prefix-lengths", "1024,2048,4096,8192", "--thresholds", "2,8,1024")


def advise(capsys: pytest.CaptureFixture[str], log: Path, *options: str) -> tuple[int, str, str]:
    code = cli.main(["advise", "--log", str(log), *SMALL, *options])
    captured = capsys.readouterr()
    assert SECRET not in captured.out + captured.err
    return code, captured.out, captured.err


def advised(capsys: pytest.CaptureFixture[str], log: Path, *options: str) -> dict[str, Any]:
    code, out, err = advise(capsys, log, "--json", *options)
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def groups(found: dict[str, Any]) -> dict[int, int]:
    return {length: one["groups"] for one in found["groups"] for length in one["prefix_lengths"]}


@pytest.mark.parametrize("form", ["chat", "text", "native"])
def test_a_template_that_all_share_is_passed_over(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1,500 characters are everybody's, 6,000 are a tenant's, the rest is a question's."""
    make = {"chat": chat_body, "text": str, "native": lambda text: {"inputs": text}}[form]
    log = write(tmp_path / "log.jsonl", [json.dumps(make(text)) for text in templated()])  # type: ignore[operator]
    found = advised(capsys, log)
    assert found["log"]["form"] == form
    assert groups(found) == {1024: 1, 2048: 12, 4096: 12, 8192: 300}
    assert found["recommendation"]["routing_strategy"] == "PREFIX_AWARE"
    assert found["recommendation"]["prefix_length"] in (2048, 4096)
    best = max(trial["hit_rate"] for trial in found["trials"] if 2048 in trial["prefix_lengths"])
    assert best > found["random"]["hit_rate"]
    assert best <= found["pooled_hit_rate"] + 1e-9
    assert found["log"]["times_assumed"] is True
    assert (found["serialisation"] is None) == (form == "text")


def test_a_trace_is_replayed_with_its_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write(tmp_path / "trace.jsonl", trace_lines())
    found = advised(capsys, log, "--hosts", "7", "--cache-tokens", "200000")
    assert found["log"] == {
        "form": "mooncake", "requests": 400, "skipped_lines": 0, "requests_without_key": 0, "replayed": 400,
        "replayed_seconds": 399 * 0.25, "times_assumed": False}  # fmt: skip
    assert groups(found)[2048] == 1
    assert groups(found)[4096] == 40
    assert found["recommendation"]["prefix_length"] == 4096
    assert found["model"]["cache_tokens_of_a_host"] == 200_000
    twice = advised(capsys, log, "--hosts", "7", "--rate", "8", "--last", "100")
    assert twice["log"]["replayed"] == 100
    assert twice["log"]["replayed_seconds"] == pytest.approx(100 / 8)
    assert groups(twice) == groups(found)


def test_what_was_advised_on_one_half_is_near_the_best_on_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = trace_lines(1_600, 200)
    first = advised(capsys, write(tmp_path / "1", lines[:800]), "--hosts", "7", "--cache-tokens", "100000")
    second = advised(capsys, write(tmp_path / "2", lines[800:]), "--hosts", "7", "--cache-tokens", "100000")
    rates = {length: max(trial["hit_rate"] for trial in second["trials"] if length in trial["prefix_lengths"])
             for length in (1024, 2048, 4096, 8192)}  # fmt: skip
    assert rates[first["recommendation"]["prefix_length"]] >= max(rates.values()) - 0.01
    assert max(rates.values()) > min(rates.values()) + 0.1


def test_the_page_has_the_table_the_bars_and_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.dumps({"inputs": text}) for text in templated(120)]
    lines += [json.dumps(json.loads(line), separators=(",", ":")) for line in lines[:3]]
    code, out, err = advise(capsys, write(tmp_path / "log", lines), "--plot", str(tmp_path / "a.png"))
    assert (code, err) == (0, "")
    assert "123 requests, read as native. PrefixLength counts bytes of the body (InvokeEndpoint)." in out
    assert "no times in the log: Poisson arrivals assumed" in out
    assert "Recommended: PREFIX_AWARE with PrefixLength" in out
    assert "3 of 3 bodies that are the same JSON as an earlier one have other bytes: white space 3" in out
    assert "█" in out
    assert (tmp_path / "a.png").stat().st_size > 1000
    header, *rows = out.split("\n\n")[1].splitlines()
    assert header.split()[:3] == ["PrefixLength", "groups", "largest"]
    assert rows[-1].startswith("RANDOM")
    assert len({len(row) for row in [header, *rows]}) == 1


def test_logs_of_other_shapes_are_taken_by_naming_members(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        json.dumps({"t": f"2026-11-30T10:00:{number % 60:02}Z", "req": {"body": json.dumps({"inputs": text})},
                    "who": f"tenant-{number % 2}"})
        for number, text in enumerate(templated(60, tenants=1))
    ]  # fmt: skip
    log = tmp_path / "log.jsonl.gz"
    log.write_bytes(gzip.compress("\n".join(lines).encode()))
    found = advised(capsys, log, "--body", "req.body", "--time", "t", "--id", "who")
    assert found["log"]["replayed_seconds"] == 59
    assert groups(found)[1024] == 2


def test_a_bad_line_is_named_and_can_be_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write(tmp_path / "log", ['"a"', '"b"', f'{{"{SECRET}": '])
    code, out, err = advise(capsys, log)
    assert (code, out) == (2, "")
    assert err == f"warmroute: line 3 of {log}: not JSON (--skip-bad goes on without it)\n"
    assert advised(capsys, log, "--skip-bad")["log"]["skipped_lines"] == 1


@pytest.mark.parametrize(
    ("lines", "options", "said"),
    [
        ([""], (), "has no requests"),
        (["{", "}"], ("--skip-bad",), "has no requests, 2 lines are none"),
        (["1"], ("--engine", "abacus"), "there is no engine abacus; there are laptop, llama-3.1-70b-8xh100"),
        (['"a"'], ("--id", "i"), "--id cannot be used with --format text"),
        (
            ['{"hash_ids": []}'],
            ("--format", "mooncake", "--body", "b", "--time", "t"),
            "--body and --time cannot be used",
        ),
        (['{"messages": []}'], ("--format", "chat", "--id", "i"), "prompt_cache_key"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    lines: list[str], options: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = advise(capsys, write(tmp_path / "log", lines), *options)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "options",
    [("--prefix-lengths", "1000"), ("--prefix-lengths", "2048,x"), ("--thresholds", "0"), ("--hosts", "0"),
     ("--rate", "0"), ("--rate", "nan"), ("--last", "0"), ("--format", "csv"), ()],
)  # fmt: skip
def test_bad_options_name_what_would_be_right(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["advise", *(("--log", "x") if options else ()), *options])
    assert "advise: error: " in capsys.readouterr().err


def test_a_full_disk_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("warmroute.advise.spool.Spool.add", full)
    code, out, err = advise(capsys, write(tmp_path / "log", ['"a"']))
    assert (code, out) == (2, "")
    assert "cannot keep the last requests: No space left on device; name another directory in TMPDIR" in err


def test_one_host_needs_no_routing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = advised(capsys, write(tmp_path / "log", ['"a"', '"b"']), "--hosts", "1")
    assert found["recommendation"]["routing_strategy"] == "LEAST_OUTSTANDING_REQUESTS"
    assert "at least two" in found["recommendation"]["reasons"][0]


def test_requests_without_a_key_are_counted_and_routed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = advised(capsys, write(tmp_path / "log", ['"a"', '""', '"b"']))
    assert found["log"]["requests_without_key"] == 1
    assert found["trials"][0]["requests"] == 3


def test_the_bar_is_drawn_on_a_terminal_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command._bar("reading", 10, "B").disable
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    bar = command._bar("reading", 10, "B")
    assert not bar.disable
    command._move(bar, 7)
    assert bar.n == 7
    command._count(bar, 4)
    assert (bar.n, bar.total) == (8, 12)
    bar.close()


def test_a_terminal_without_blocks_gets_other_signs() -> None:
    assert command._printable("a █▎ 5%", "utf-8") == "a █▎ 5%"
    assert command._printable("a █▎ 5%", "ascii") == "a # 5%"


def test_a_log_larger_than_what_is_kept_is_counted_as_a_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sketches and spool are small; what they say is of the whole log, and of its end."""
    monkeypatch.setattr("warmroute.advise.intake.Groups", lambda: __import__(
        "warmroute.advise.sketches", fromlist=["Groups"]).Groups(kept=256))  # fmt: skip
    log = write(tmp_path / "log", [json.dumps(text) for text in templated(1_500, tenants=40)])
    found = advised(capsys, log, "--last", "200")
    assert found["log"]["requests"] == 1_500
    assert found["log"]["replayed"] == 200
    assert [one["exact"] for one in found["groups"]] == [one["groups"] < 256 for one in found["groups"]]
    assert groups(found)[2048] == 40
    assert groups(found)[8192] == pytest.approx(1_500, rel=0.25)


def test_the_options_are_the_documented_ones() -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    page = Path(__file__).parents[3].joinpath("docs", "advise.md").read_text()
    for action in parser._actions:
        assert action.help
        if action.dest != "help":
            assert action.option_strings[0] in page

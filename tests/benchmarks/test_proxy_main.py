"""``--only`` at the command line."""

from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.proxy import measure


def test_a_part_without_choice_refuses_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["overflow", "--quick", "--only", "nginx"]) == 2
    assert capsys.readouterr().err == "overflow: not measured: it takes no --only\n"


def test_an_unknown_name_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["proxy", "--only", "nginx, envoy"]) == 2
    said = capsys.readouterr().err
    assert "there is no envoy" in said
    assert "warmroute PREFIX_AWARE" in said


def test_some_of_it_is_measured_and_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.__main__.DIRECTORY", tmp_path)
    monkeypatch.setattr(measure, "WHOLE", measure.QUICK)
    assert main(["proxy", "--only", "warmroute RANDOM,SSE"]) == 0
    shown = capsys.readouterr().out
    assert "warmroute RANDOM" in shown
    assert "PREFIX_AWARE" not in shown
    assert "JSON" not in shown
    assert not list(tmp_path.iterdir())

"""Short runs of every part: they end, and leave results of the documented form. No figure of them means anything."""

import importlib
from pathlib import Path

import pytest

from benchmarks import result
from benchmarks.__main__ import PARTS, main

LEFT_OUT = {"rivals"}
"""Its wheels are three times the size of all else the suite installs; what it adds to other parts is in test_engine."""


@pytest.mark.parametrize("part", sorted(PARTS.keys() - LEFT_OUT))
def test_a_part_ends_and_leaves_its_results(part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([part, "--quick", "--results", str(tmp_path)]) == 0
    found = result.read(tmp_path / f"{part}.json")
    plots = {plot.file_name(part) for plot in found.plots}
    assert {path.name for path in tmp_path.iterdir()} == {f"{part}.json", f"{part}.md", *plots}
    assert found.part == part
    assert found.quick
    assert found.figures
    assert found.command == f"python -m benchmarks {part} --quick"
    assert (tmp_path / f"{part}.md").read_text() == found.markdown()
    shown = capsys.readouterr().out
    for table in found.tables:
        assert table.rows
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert table.name == "everything" or table.caption in shown


def test_quick_figures_do_not_take_the_place_of_real_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("benchmarks.__main__.DIRECTORY", tmp_path)
    assert main(["overflow", "--quick"]) == 0
    assert not list(tmp_path.iterdir())


def test_an_unknown_part_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["overflow", "speed"]) == 2
    said = capsys.readouterr().err
    assert "speed" in said
    assert all(part in said for part in PARTS)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_says_what_it_measures(part: str) -> None:
    assert importlib.import_module(f"benchmarks.{part}").__doc__
    assert PARTS[part]

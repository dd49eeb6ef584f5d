"""Figures in documents come from results: tables are copies, numbers in sentences are found there."""

import re
from pathlib import Path

import pytest

from benchmarks.__main__ import PARTS
from benchmarks.documents import BLOCK, ROOT, documents, with_tables
from benchmarks.result import DIRECTORY, read

NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?(?![\w-])")


def _numbers(text: str) -> set[str]:
    return {match[0].replace(",", "") for match in NUMBER.finditer(text)}


def _measured() -> set[str]:
    """Every number in the results' pages, as it stands there."""
    return set().union(*(_numbers(path.read_text()) for path in DIRECTORY.glob("*.md")))


def _prose(path: Path) -> str:
    """What a person wrote of measurements: no code, tables, links or headings; of the README, what names benchmarks."""
    text = re.sub(r"```.*?```|`[^`]*`|^\|.*?$|^#.*?$|\]\([^)]*\)|<!--.*?-->", " ", path.read_text(), flags=re.S | re.M)
    if path.name == "README.md":
        text = "\n\n".join(part for part in text.split("\n\n") if "benchmark" in part.lower())
    return text


@pytest.mark.parametrize("part", PARTS)
def test_every_part_has_results_of_a_whole_run(part: str) -> None:
    result = read(DIRECTORY / f"{part}.json")
    assert result.part == part
    assert not result.quick
    assert result.command == f"python -m benchmarks {part}"
    assert (DIRECTORY / f"{part}.md").read_text() == result.markdown()


def test_there_are_no_results_of_no_part_and_no_other_plots() -> None:
    plots = {plot.file_name(part) for part in PARTS for plot in read(DIRECTORY / f"{part}.json").plots}
    assert {path.name for path in DIRECTORY.iterdir()} == plots | {
        f"{part}.{kind}" for part in PARTS for kind in ("json", "md")
    }


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_tables_are_as_in_the_results(path: Path) -> None:
    assert with_tables(path.read_text()) == path.read_text(), "run: python -m benchmarks docs"


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_every_figure_in_a_sentence_is_in_the_results(path: Path) -> None:
    assert _numbers(_prose(path)) - _measured() == set()


def test_the_documents_show_tables() -> None:
    shown = {(match["part"], match["name"]) for path in documents() for match in BLOCK.finditer(path.read_text())}
    assert {part for part, _ in shown} == set(PARTS)


def test_the_guide_names_every_part() -> None:
    guide = (ROOT / "docs" / "benchmarks.md").read_text()
    assert all(f"`{part}`" in guide for part in PARTS)


def test_a_marked_place_gets_the_table_and_nothing_else_changes() -> None:
    text = "before\n<!-- table: overflow/overflow-verdict -->\nold\n<!-- end -->\nafter 5\n"
    shown = with_tables(text)
    assert shown.startswith("before\n<!-- table: overflow/overflow-verdict -->\n| rule |")
    assert shown.endswith("\n<!-- end -->\nafter 5\n")
    assert with_tables(shown) == shown


@pytest.mark.parametrize("name", ["overflow/nothing", "nothing/overflow"])
def test_a_table_that_is_not_there_is_an_error(name: str) -> None:
    with pytest.raises((KeyError, FileNotFoundError)):
        with_tables(f"<!-- table: {name} -->\n<!-- end -->")

"""Copies tables out of results/ into the documents, so that no figure in them is typed, and draws the plots again.

A document marks the place: ``<!-- table: overflow/saturated -->`` ... ``<!-- end -->``; what is between is replaced.
"""

import re
from pathlib import Path

from benchmarks.plot import draw
from benchmarks.result import DIRECTORY, Table, read

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("docs/benchmarks.md", "docs/adr/0004-overflow-and-saturation.md", "README.md")
BLOCK = re.compile(r"(<!-- table: (?P<part>[\w-]+)/(?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.S)


def refresh() -> None:
    """Bring the tables of all documents, and all plots, up to date with the results."""
    for path in documents():
        path.write_text(with_tables(path.read_text()))
    for path in DIRECTORY.glob("*.json"):
        result = read(path)
        for plot in result.plots:
            draw(plot, DIRECTORY / plot.file_name(result.part))


def documents() -> list[Path]:
    return [ROOT / name for name in DOCUMENTS]


def with_tables(text: str, directory: Path = DIRECTORY) -> str:
    """Return ``text`` with each marked table as it is in the results. Raises FileNotFoundError or KeyError."""

    def block(match: re.Match[str]) -> str:
        table = _table(directory, match["part"], match["name"])
        return f"{match[1]}{table.markdown()}\n{match[4]}"

    return BLOCK.sub(block, text)


def _table(directory: Path, part: str, name: str) -> Table:
    tables = {table.name: table for table in read(directory / f"{part}.json").tables}
    return tables[name]

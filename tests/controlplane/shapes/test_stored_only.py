"""docs/stored-only.md says what the markers in the shapes say."""

import re
from collections.abc import Iterator
from pathlib import Path

from controlplane.shapes.base import Accepts, Marker, Refused, Shape, StoredOnly
from controlplane.shapes.parse import structure
from tests.controlplane.shapes.service_model import shapes_by_name

DOC = Path(__file__).parents[3] / "docs" / "stored-only.md"


def structures(shape: type[Shape], seen: set[type[Shape]]) -> Iterator[type[Shape]]:
    """Yield ``shape`` and every structure inside it that is served: what is inside a refused member is refused too."""
    if shape in seen:
        return
    seen.add(shape)
    yield shape
    for field in shape.model_fields.values():
        inner = structure(field.annotation)
        if inner is not None and not any(isinstance(marker, Refused) for marker in field.metadata):
            yield from structures(inner, seen)


def marked(kinds: tuple[type[Marker], ...]) -> dict[str, str]:
    seen: set[type[Shape]] = set()
    inputs = [shape for name, shape in shapes_by_name().items() if name.endswith("Input")]
    return {
        f"{shape.__name__.removesuffix('Shape').removesuffix('Input')}.{name}": marker.note()
        for top in inputs
        for shape in structures(top, seen)
        for name, field in shape.model_fields.items()
        for marker in field.metadata
        if isinstance(marker, kinds)
    }


def table(title: str) -> dict[str, str]:
    section = DOC.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `([\w.]+)` \| (.+) \|$", section, re.MULTILINE))


def test_the_table_of_stored_members() -> None:
    notes = marked((StoredOnly,))
    assert table("Stored only") == {
        name: note.removeprefix("Stored only: ").removesuffix(".") for name, note in notes.items()
    }


def test_the_table_of_refused_members() -> None:
    assert table("Refused by name") == marked((Refused, Accepts))

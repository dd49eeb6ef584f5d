"""What a part leaves behind: figures, the tables made of them, and what is needed to make them again. Files in and out.

The form is the classes below; unknown members are refused, so a file either has it or is an error.
"""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import msgspec
from msgspec import Struct, field

from benchmarks.plot import Plot, draw

DIRECTORY = Path(__file__).parent / "results"
FORM = 1
"""Of the files. A later form has another number."""

Value = str | int | float | list[float]


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    """One table, ready to show. ``name`` is how documents refer to it."""

    name: str
    caption: str
    columns: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


class Result(Struct, frozen=True, forbid_unknown_fields=True):
    """One run of one part."""

    part: str
    what: str
    """What was measured, in a sentence or two."""
    command: str
    """Run from the repository's root, it makes these figures again."""
    quick: bool
    """A short run that shows only that the part works; its figures mean nothing."""
    machine: dict[str, str | int]
    seeds: list[int]
    settings: dict[str, Value]
    cpu_seconds: float
    """User and system time of the part, on one core."""
    tables: list[Table]
    findings: list[str]
    """What the tables say, in sentences made from the figures."""
    figures: list[dict[str, Value]]
    """One record a measurement; a list is [mean, least, most] over the seeds or the repetitions."""
    plots: list[Plot] = field(default_factory=list)
    """Each is a file <part>-<name>.png beside the page."""
    form: int = field(default=FORM)

    def markdown(self) -> str:
        """Return the page that people read."""
        machine = "; ".join(f"{name} {value}" for name, value in self.machine.items())
        settings = "; ".join(f"{name} {_shown(value)}" for name, value in self.settings.items())
        parts = [
            f"# {self.part}",
            self.what,
            f"Made by `{self.command}` in {self.cpu_seconds:.0f} s of CPU. Seeds: {_shown(self.seeds) or 'none'}.",
            f"Machine: {machine}.",
            f"Settings: {settings}.",
            *(f"- {finding}" for finding in self.findings),
            *(f"![{plot.caption}]({plot.file_name(self.part)})\n\n{plot.caption}" for plot in self.plots),
            *(f"## {table.name}\n\n{table.caption}\n\n{table.markdown()}" for table in self.tables),
        ]
        return "\n\n".join(parts) + "\n"


def write(result: Result, directory: Path) -> list[Path]:
    """Write the files of a result: its data, its page and its plots. Return their paths, in that order."""
    directory.mkdir(parents=True, exist_ok=True)
    data, page = directory / f"{result.part}.json", directory / f"{result.part}.md"
    data.write_text(_lines(result))
    page.write_text(result.markdown())
    pictures = []
    for plot in result.plots:
        pictures.append(directory / plot.file_name(result.part))
        draw(plot, pictures[-1])
    return [data, page, *pictures]


def _lines(result: Result) -> str:
    """Return JSON with a line for each member, and for each item of a list of objects: small, and easy to compare."""
    members = []
    for name, value in msgspec.to_builtins(result).items():
        text = msgspec.json.encode(value).decode()
        if isinstance(value, list) and value and isinstance(value[0], dict):
            items = ",\n".join(f"  {msgspec.json.encode(item).decode()}" for item in value)
            text = f"[\n{items}\n]"
        members.append(f'"{name}": {text}')
    return "{\n" + ",\n".join(members) + "\n}\n"


def read(path: Path) -> Result:
    """Read a results file. Raises msgspec.ValidationError, or ValueError for another form."""
    result = msgspec.json.decode(path.read_bytes(), type=Result)
    if result.form != FORM:
        raise ValueError(f"{path.name} has form {result.form}, this version reads {FORM}")
    return result


def machine_facts(*packages: str) -> dict[str, str | int]:
    """Return what bears on speed, and nothing that names the machine."""
    facts: dict[str, str | int] = {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "system": platform.system(),
        "Python": platform.python_version(),
    }
    return facts | {package: version(package) for package in packages}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _shown(value: Value | list[int]) -> str:
    return ", ".join(f"{item:g}" for item in value) if isinstance(value, list) else str(value)

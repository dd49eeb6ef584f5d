"""What the documents say is checked against what the code does."""

import argparse
import ast
import re
import socket
import subprocess
from functools import cache
from pathlib import Path

import pytest

from contract.settings import PREFIX, SETTINGS, Setting
from warmroute.cli import build_parser

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.joinpath("docs").rglob("*.md"))]
ROW = re.compile(rf"^\| `({PREFIX}\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")


@cache
def read(path: Path) -> str:
    return path.read_text()


# --- settings --------------------------------------------------------------------------------------------------------

ROWS = {name: (default, unit, reason) for name, default, unit, reason in ROW.findall(read(README))}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_each_setting_is_in_the_readme(setting: Setting) -> None:
    """Rows look like ``| `WARMROUTE_LEASE_SECONDS` | 10 | s | why |``."""
    assert PREFIX + setting.name in ROWS
    default, unit, reason = ROWS[PREFIX + setting.name]
    assert default == (setting.default or "unset")
    assert unit == setting.unit
    assert len(reason.split()) >= 2


def test_the_readme_lists_settings_that_exist() -> None:
    assert list(ROWS) == [PREFIX + setting.name for setting in SETTINGS], "in the order of the code, each once"


OF_MODELS = {"WARMROUTE_HOSTS", "WARMROUTE_HOST_AUTHORIZATION", "WARMROUTE_PING_PATH"}
"""In a model's Environment, not in the process's."""


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_setting_that_is_named_exists(path: Path) -> None:
    known = {PREFIX + setting.name for setting in SETTINGS} | OF_MODELS
    assert set(re.findall(rf"{PREFIX}[A-Z][A-Z_]*[A-Z]", read(path))) <= known


# --- places in the code ----------------------------------------------------------------------------------------------

PLACE = re.compile(r"`([\w/.-]+\.(?:py|lua))(?::([\w.]+))?`")
PLACES = [
    (path, file, name)
    for path in DOCUMENTS
    for file, name in PLACE.findall(read(path))
    if "/" in file or name
]  # fmt: skip


def defined(file: Path) -> set[str]:
    """Return the names a module defines, and ``Class.member`` of its classes."""
    found = set()
    for node in ast.parse(read(file)).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if hasattr(inner, "name")}
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


@pytest.mark.parametrize(("path", "file", "name"), PLACES, ids=lambda value: getattr(value, "name", value))
def test_each_place_that_is_named_exists(path: Path, file: str, name: str) -> None:
    """The three paths of docs/architecture.md lead a newcomer from hop to hop; each hop must be there."""
    if name:
        assert name in defined(ROOT / file)
    else:
        assert any(f"/{kept}".endswith(f"/{file}") for kept in tracked())


def test_the_three_paths_name_file_and_function_at_each_hop() -> None:
    text = read(ROOT / "docs" / "architecture.md")
    for path in ("Create an endpoint", "Switch strategy live", "Invoke"):
        part = text.partition(f"**{path}.**")[2].partition("\n**")[0].partition("\n## ")[0]
        hops = re.split(r"^\d+\. ", part, flags=re.MULTILINE)[1:]
        assert len(hops) >= 5, path
        assert sum(bool(PLACE.search(hop)) for hop in hops) >= len(hops) - 1, path


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", read(path)):
        if "://" not in target:
            assert path.parent.joinpath(target).exists(), target
    for name in re.findall(r"`((?:docs/)[\w./-]+)`", read(path)):
        assert ROOT.joinpath(name).exists(), name


# --- commands --------------------------------------------------------------------------------------------------------


def commands() -> dict[str, set[str]]:
    """Return each command of the CLI with its options, those of its actions included."""
    return {name: options(parser) for name, parser in inner(build_parser()).items()}


def inner(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {name: one for group in groups for name, one in group.choices.items()}


def options(parser: argparse.ArgumentParser) -> set[str]:
    return set(parser._option_string_actions).union(*(options(one) for one in inner(parser).values()))


def said(path: Path, program: str) -> list[list[str]]:
    """Return the words after ``program`` wherever a document has it as a command."""
    lines = [line for block in BLOCK.findall(read(path)) for line in block.splitlines()]
    lines += QUOTED.findall(BLOCK.sub("", read(path)))
    pattern = re.compile(rf"^(?:\$ )?(?:\w+=\S+ )*(?:\.venv/bin/)?{program}((?: [\w./=\-\"$()]+)+)")
    return [match[1].split() for line in lines if (match := pattern.match(line.strip()))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_of_warmroute_exist_with_their_options(path: Path) -> None:
    known = commands()
    for command, *words in said(path, "warmroute"):
        if command == "ready":
            # What `warmroute up` prints.
            continue
        assert command in known
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known[command]


def test_the_readme_shows_how_to_run_each_plane() -> None:
    shown = {words[0] for words in said(README, "warmroute")}
    assert {"controlplane", "dataplane", "migrate"} <= shown


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_targets_of_make_exist(path: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", read(ROOT / "Makefile"), re.MULTILINE))
    assert {"run", "test", "setup", "bench", "lint", "format", "lock"} <= targets
    for words in said(path, "make"):
        assert words[0] in targets


# --- everything that is kept -----------------------------------------------------------------------------------------


@cache
def tracked() -> dict[str, str]:
    """Return the text of every file that is kept."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    found = {}
    for name in listed.split("\0"):
        path = ROOT / name
        if name and path.is_file():
            data = path.read_bytes()
            if b"\0" not in data:
                found[name] = data.decode()
    assert "README.md" in found
    return found


def mentions(pattern: str) -> list[str]:
    return [
        f"{name}: {match[0]}"
        for name, text in tracked().items()
        for match in re.finditer(pattern, text)
        if name not in ("LICENSE", "tests/test_docs.py")
    ]


def test_nothing_names_the_machine_it_was_written_on() -> None:
    """What works in one checkout only is of no use to anybody else."""
    here = [str(ROOT), f"{Path.home()}/"]
    if len(socket.gethostname()) > 5:
        here.append(socket.gethostname())
    assert mentions("|".join(map(re.escape, here))) == []
    assert mentions(r"/(?:home|Users)/\w+/") == []


def test_nothing_is_fetched_from_a_place_of_ones_own() -> None:
    """Locks name versions and hashes; where they come from is whoever installs them to say."""
    locks = [name for name in tracked() if name.startswith("requirements/")]
    assert locks
    for name in locks:
        assert "://" not in tracked()[name]
        assert "index-url" not in tracked()[name]


def test_no_secret_is_kept() -> None:
    assert mentions(r"AKIA[0-9A-Z]{16}|-----BEGIN [A-Z ]*PRIVATE KEY|gh[pousr]_\w{36}|sk-\w{40}") == []


def test_documents_that_are_named_are_kept() -> None:
    """A reference to a note that only its writer has explains nothing."""
    names = {Path(name).name for name in tracked()}
    found = [one for one in mentions(r"(?<![\w/.-])[\w-]+\.md\b") if Path(one.split(": ")[-1]).name not in names]
    assert found == []


def test_code_does_not_point_at_a_list_of_issues() -> None:
    """Numbers of tickets mean nothing to a reader of the code; the reason belongs where the decision is."""
    assert mentions(r"(?i)\b(?:issues?|tickets?|session|pull request) #?\d+\b") == []

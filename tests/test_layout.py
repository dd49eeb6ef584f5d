"""Tests mirror the tree, so that whoever changes a module knows what to run, and a module without tests is seen."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("access", "contract", "controlplane", "dataplane", "simulator", "warmroute", "migrations")

ELSEWHERE = {
    "controlplane/api/callers.py": ("through the gate that fills it", "tests/controlplane/api/test_guard.py"),
    "controlplane/principals.py": ("through the gate that asks for them", "tests/controlplane/api/test_guard.py"),
    "controlplane/operations/context.py": ("types only", "tests/controlplane/operations"),
    "controlplane/operations/listing.py": ("by every List operation", "tests/controlplane/operations"),
    "controlplane/operations/registry.py": ("each entry by both doors", "tests/controlplane/api/test_doors.py"),
    "controlplane/store/audit.py": ("queries, by what they are for", "tests/controlplane/operations/test_audit.py"),
    "controlplane/store/endpoints.py": ("queries, by what they are for", "tests/controlplane/operations"),
    "controlplane/store/fleet.py": ("queries, by what they are for", "tests/controlplane/background"),
    "controlplane/store/heartbeat.py": ("one statement", "tests/controlplane/background"),
    "controlplane/store/hosts.py": ("queries, by what they are for", "tests/controlplane/operations"),
    "controlplane/store/keys.py": ("queries, by what they are for", "tests/controlplane/operations/test_keys.py"),
    "controlplane/store/notices.py": ("one statement", "tests/controlplane/background"),
    "controlplane/store/publication.py": ("queries, by what they are for", "tests/controlplane/background"),
    "controlplane/store/tables.py": ("compared with the migrations", "tests/migrations"),
    "controlplane/store/sealed.py": ("by what seals anew", "tests/controlplane/test_local.py"),
    "controlplane/store/tags.py": ("queries, by what they are for", "tests/controlplane/operations/test_tags.py"),
    "dataplane/api/call.py": ("types only", "tests/dataplane/api/test_native.py"),
    "dataplane/front.py": ("over sockets", "tests/dataplane_e2e"),
    "dataplane/parts.py": ("types only", "tests/dataplane_e2e"),
    "dataplane/worker.py": ("over sockets", "tests/dataplane_e2e"),
    "simulator/batch.py": ("a part of the engine", "tests/simulator/test_engine.py"),
    "simulator/lockstep.py": ("against the engine without it", "tests/simulator/test_engine.py"),
    "simulator/reply.py": ("a part of both APIs", "tests/simulator/test_openai_api.py"),
    "simulator/request.py": ("a part of the engine", "tests/simulator/test_engine.py"),
    "warmroute/__main__.py": ("two lines", "tests/warmroute/test_cli.py"),
    "warmroute/advise/entry.py": ("by every form", "tests/warmroute/advise/test_forms.py"),
    "warmroute/advise/intake.py": ("by the command", "tests/warmroute/advise/test_command.py"),
    "warmroute/demo.py": ("by `up`, which makes it", "tests/warmroute/test_up.py"),
    "warmroute/embedded/binaries.py": ("by both servers", "tests/warmroute/embedded/test_postgres.py"),
    "warmroute/embedded/leash.py": ("with the child that it ties", "tests/warmroute/embedded/test_child.py"),
    "warmroute/faults.py": ("one class", "tests/warmroute/test_cli.py"),
    "warmroute/ready_text.py": ("the printed calls are run", "tests/warmroute/test_up.py"),
    "migrations/env.py": ("by every migration", "tests/migrations/test_runner.py"),
    "migrations/versions/0001_initial_schema.py": ("up, down and compared", "tests/migrations/test_runner.py"),
    "migrations/versions/0002_principals.py": ("up, down and compared", "tests/migrations/test_runner.py"),
}
"""Module -> (how it is tested, where)."""


def sources() -> list[Path]:
    found = [
        path.relative_to(ROOT)
        for package in PACKAGES
        for pattern in ("*.py", "*.lua")
        for path in sorted(ROOT.joinpath(package).rglob(pattern))
        if path.name != "__init__.py"
    ]
    assert len(found) > 80
    return found


def mirror(source: Path) -> Path:
    stem = f"{source.stem}_{source.suffix[1:]}" if source.suffix != ".py" else source.stem
    return Path("tests", source.parent, f"test_{stem}.py")


@pytest.mark.parametrize("source", sources(), ids=str)
def test_each_module_has_its_tests(source: Path) -> None:
    if str(source) in ELSEWHERE:
        how, where = ELSEWHERE[str(source)]
        assert how
        assert ROOT.joinpath(where).exists()
    else:
        assert ROOT.joinpath(mirror(source)).exists(), f"{mirror(source)} is missing"


def test_nothing_is_excused_that_is_gone() -> None:
    assert {str(source) for source in sources()} >= set(ELSEWHERE)


def test_each_folder_of_tests_is_a_package() -> None:
    """Two test files of one name, such as the planes' test_main.py, would otherwise hide each other."""
    folders = {path.parent for path in ROOT.joinpath("tests").rglob("test_*.py")}
    assert [str(folder) for folder in folders if not folder.joinpath("__init__.py").exists()] == []


def test_tests_are_found_and_none_is_put_off() -> None:
    """A skip is a case nobody runs any more, and an expected failure a fault nobody mends."""
    marks = ("pytest.mark." + "skip", "pytest." + "skip(", "pytest.mark." + "xfail", "pytest." + "xfail(")
    put_off = [
        f"{path.relative_to(ROOT)}: {mark}"
        for path in sorted(ROOT.joinpath("tests").rglob("*.py"))
        for mark in marks
        if mark in path.read_text()
    ]
    assert put_off == []


def test_nothing_unfinished_is_kept() -> None:
    """Work that is not done belongs on the list of issues, where somebody sees it."""
    marks = ["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]
    pattern = r"\b(" + "|".join(marks) + r")\b"
    found = subprocess.run(
        ["git", "grep", "-nIE", pattern, "--", ":!requirements", ":!LICENSE"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == ""

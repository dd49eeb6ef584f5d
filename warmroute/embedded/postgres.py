"""An embedded Postgres: its data in one directory, a Unix socket only, ready in a few dozen ms once the data exists.

The caller owns the directory (directory.hold), so a server found running in it is an orphan of ours and is ended.
"""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from warmroute.embedded import EmbeddedError, binaries, leash
from warmroute.embedded.child import Child, last_words, run
from warmroute.embedded.directory import socket_dir
from warmroute.embedded.processes import command_line

_SOCKET = ".s.PGSQL.5432"
_READY_SECONDS = 30.0
"""Recovery after a kill replays at most a few MB of WAL; a slow disk needs seconds."""
_STOP = ((signal.SIGINT, 5.0), (signal.SIGQUIT, 2.0))
"""Postgres's fast shutdown (writes a checkpoint), then its immediate one (recovers at the next start)."""


class Postgres:
    """One server. Everybody who may enter the directory connects as superuser ``postgres`` without a password."""

    def __init__(
        self, directory: Path, *, log: Path, durable: bool = True, bin_dir: Path | None = None, identity: str = ""
    ) -> None:
        """``durable`` False gives up crash safety for speed, for tests. ``identity``: see leash.py."""
        self.directory = directory.resolve()
        self.log = log
        self.durable = durable
        self.bin_dir = bin_dir or binaries.postgres_bin_dir()
        self.identity = identity or needed_identity()
        self._child: Child | None = None

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._child is not None
        return self._child.pid

    def start(self) -> str:
        """Start the server, first making its data if there is none; return the URL. Raises EmbeddedError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.create()
        sockets = socket_dir(self.directory, _SOCKET)
        self._own(self.directory / "data")
        self._own(sockets)
        _end_orphan(self.directory / "data", sockets)
        program: list[str | Path] = [self.bin_dir / "postgres", "-D", self.directory / "data", "-p", "5432"]
        for name, value in self._settings(sockets).items():
            program += ["-c", f"{name}={value}"]
        self._child = Child(
            program,
            log=self.log,
            death_signal=signal.SIGINT,
            identity=self.identity,
            environment=_environment(),
        )
        try:
            self._await_ready()
        except BaseException:
            self.stop()
            raise
        return _url(sockets)

    def create(self) -> None:
        """Make the data directory unless it exists. Raises EmbeddedError when another major version made it."""
        data = self.directory / "data"
        with contextlib.suppress(FileNotFoundError):
            theirs, ours = (data / "PG_VERSION").read_text().strip(), binaries.postgres_major(self.bin_dir)
            if theirs != str(ours):
                raise EmbeddedError(
                    f"{data} holds a database of Postgres {theirs} and {self.bin_dir} is Postgres {ours}; "
                    "give another --data-dir, or move the data with the old version's pg_dump"
                )
            return
        # Renamed when it is whole: a start that was killed half-way must not leave half a database.
        new = self.directory / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700, parents=True)
        self._own(new)
        program: list[str | Path] = [
            self.bin_dir / "initdb",
            "-D",
            new,
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
        ]
        program += ["--no-locale", "--no-instructions", *([] if self.durable else ["--no-sync"])]
        run(program, log=self.log, identity=self.identity, environment=_environment(), what="initdb")
        new.rename(data)

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._child.poll() if self._child else None

    def stop(self) -> None:
        """End the server and wait for its end. Idempotent."""
        if self._child:
            self._child.stop(*_STOP)

    def _settings(self, sockets: Path) -> dict[str, str]:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(sockets),
            "unix_socket_permissions": "0700",
            "max_connections": "200",
        }
        if not self.durable:
            # Survives a kill of the process, though not of the machine.
            settings |= {"fsync": "off", "full_page_writes": "off"}
        return settings

    def _own(self, path: Path) -> None:
        """Postgres demands that its data belongs to its user; the identity may differ from the last start's."""
        wanted = leash.NOBODY if self.identity == "nobody" else os.geteuid()
        if path.stat().st_uid == wanted or os.geteuid() != 0:
            return
        os.chown(path, wanted, -1)
        for parent, directories, files in os.walk(path):
            for name in directories + files:
                os.chown(os.path.join(parent, name), wanted, -1, follow_symlinks=False)

    def _await_ready(self) -> None:
        assert self._child is not None
        deadline = time.monotonic() + _READY_SECONDS
        while self._child.poll() is None:
            lines = _pid_file(self.directory / "data")
            # pg_ctl reads the same two lines.
            if len(lines) >= 8 and lines[0] == str(self._child.pid) and lines[7].strip() == "ready":
                return
            if time.monotonic() > deadline:
                raise EmbeddedError(f"Postgres was not ready within {_READY_SECONDS:g} s; its log is {self.log}")
            time.sleep(0.005)
        raise EmbeddedError(f"Postgres ended at its start: {last_words(self.log)}; its log is {self.log}")


def running_url(directory: Path) -> str | None:
    """Return the URL of the server that another process runs in ``directory``; None if there is none."""
    if not directory.joinpath("data").is_dir():
        return None
    sockets = socket_dir(directory.resolve(), _SOCKET)
    return _url(sockets) if sockets.joinpath(_SOCKET).exists() else None


def _url(sockets: Path) -> str:
    return f"postgresql://postgres@/postgres?host={sockets}"


def needed_identity() -> str:
    """Return how to start Postgres, which refuses root: see leash.py."""
    return "own" if os.geteuid() != 0 else _root_identity()


@functools.cache
def _root_identity() -> str:
    if sys.platform != "linux":
        return "nobody"
    probe = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {os.path.dirname(leash.__file__)!r}); "]
    probe[-1] += "import leash; leash.enter_namespace()"
    allowed = subprocess.run(probe, capture_output=True, timeout=10).returncode == 0
    return "namespace" if allowed else "nobody"


def _environment() -> dict[str, str]:
    """PGPORT, PGDATA and the like would change the server's mind; a locale would change its messages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C"}


def _pid_file(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except OSError:
        return []


def _end_orphan(data: Path, sockets: Path) -> None:
    """End a server that outlived its starter, and drop a pid file whose number now belongs to another program.

    Postgres itself copes with a dead pid, but takes any live process of its user for itself (common in containers).
    """
    lines = _pid_file(data)
    if not lines or not lines[0].isdecimal():
        return
    pid, command = int(lines[0]), command_line(int(lines[0]))
    if not command:
        return
    if str(data) not in command:
        (data / "postmaster.pid").unlink(missing_ok=True)
        (sockets / f"{_SOCKET}.lock").unlink(missing_ok=True)
        return
    if str(sockets) not in command:
        raise EmbeddedError(f"{data} is used by a Postgres that warmroute did not start (process {pid}); stop it first")
    for number, seconds in (*_STOP, (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not command_line(pid):
                return
            time.sleep(0.005)
    raise EmbeddedError(f"process {pid} still uses {data} and does not end; end it by hand")

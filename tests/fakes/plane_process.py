"""Runs one plane as a process of its own, as an operator would, and sees to it that it ends without a trace."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from tests.fakes.raw_client import ConnectionEnded, RawClient
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 20.0
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def command(plane: str, *options: str) -> list[str]:
    """Return the command line of ``warmroute <plane>`` on loopback."""
    return [sys.executable, "-m", "warmroute", plane, "--host", "127.0.0.1", *options]


def clean_environ() -> dict[str, str]:
    """Return what a plane may know of this process's environment: nothing that is a setting."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}


class PlaneProcess:
    """One plane. It takes a free port at its first start and keeps it over restarts."""

    def __init__(
        self,
        plane: str,
        directory: Path,
        settings: Mapping[str, object],
        *,
        options: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        descriptors_max: int | None = None,
    ) -> None:
        """``descriptors_max``: of each of its processes; None: as many as this one's."""
        # By a shell: between fork and exec of a process with threads nothing of Python may run.
        self._before = () if descriptors_max is None else ("sh", "-c", f'ulimit -n {descriptors_max}; exec "$@"', "sh")
        self.plane, self.directory, self.options = plane, directory, tuple(options)
        self.settings = {f"WARMROUTE_{name}": str(value) for name, value in settings.items()}
        # Found in the environment of each of its processes, however far from the parent.
        self._mark = f"PLANE_OF_TEST={uuid.uuid4().hex}"
        self.environ = dict([self._mark.split("=")]) | dict(environ or {})
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / f"{plane}.log"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, *, wait: bool = True) -> Self:
        """Start it and wait until it listens; with ``wait``, until requests can be served."""
        assert self.process is None
        before = len(self.output)
        environ = clean_environ() | {"PYTHONUNBUFFERED": "1"} | self.settings | self.environ
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._before, *command(self.plane, "--port", str(self.port), *self.options)],
                cwd=ROOT,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            said = wait_until(lambda: self._said(before), READY_SECONDS, f"the {self.plane} listens")
            self.port = int(said[1])
            if wait:
                wait_until(self.is_ready, READY_SECONDS, f"the {self.plane} is ready")
        except BaseException:
            # What is left of it would fail tests that have nothing to do with it.
            self.kill()
            raise
        return self

    def _said(self, before: int) -> re.Match[str] | None:
        assert self.process is not None
        ended = self.process.poll()
        assert ended is None, f"ended with {ended}:\n{self.output[before:]}"
        return re.search(rf"warmroute {self.plane} ready on https?://\S+:(\d+)", self.output[before:])

    def is_ready(self) -> bool:
        """Return whether requests can be served."""
        return self.status("/health/ready") == 200

    def status(self, path: str) -> int:
        """Return the status of GET ``path``; 0 when nothing answers."""
        try:
            with self.client() as client:
                return client.request(path, method="GET").status
        except (OSError, ConnectionEnded):
            return 0

    @property
    def output(self) -> str:
        """Everything printed so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def client(self, **given: Any) -> RawClient:
        """Open a plain connection."""
        return RawClient(self.port, **given)

    def metrics(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Return (name, labels) -> value of every sample at /metrics."""
        found = {}
        for line in httpx.get(f"{self.url}/metrics").raise_for_status().text.splitlines():
            if match := _SAMPLE.match(line):
                labels = frozenset((name, value) for name, value in _LABEL.findall(match[2] or ""))
                found[match[1], labels] = float(match[3])
        return found

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that have these labels."""
        wanted = set(labels.items())
        return sum(value for (found, has), value in self.metrics().items() if found == name and wanted <= has)

    def pids(self) -> list[int]:
        """Return its live processes in order of their start: the parent, then its workers."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._mark.encode() in entry.joinpath("environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return sorted(found)

    def worker_bytes(self) -> int:
        """Return the resident memory of the process that was started last."""
        pages = Path(f"/proc/{self.pids()[-1]}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the parent."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL every process of it, as the machine's end would."""
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if self.process is not None:
                self.process.wait(10)
        self.process = None

    def stop(self, limit_seconds: float = 15.0) -> int:
        """Ask it to end by SIGTERM and return the exit code. Fails when a process is left."""
        process = self.process
        assert process is not None
        process.terminate()
        try:
            code = process.wait(limit_seconds)
            wait_until(lambda: not self.pids(), 2.0, f"no process of the {self.plane} is left")
        finally:
            self.kill()
        return code

    def close(self) -> None:
        """End it if it runs, and fail when it printed a traceback."""
        if self.process is not None:
            self.stop()
        assert "Traceback" not in self.output, self.output

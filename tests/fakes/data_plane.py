"""Starts real data planes as processes of their own, as an operator would, and sees to it that they end cleanly."""

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.fakes.raw_client import RawClient
from tests.waiting import free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 15.0
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class DataPlane:
    """One ``warmroute dataplane`` with its workers."""

    def __init__(
        self,
        redis_url: str,
        data_dir: Path,
        *,
        workers: int = 1,
        settings: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.redis_url, self.data_dir, self.workers = redis_url, data_dir, workers
        self.settings = {f"WARMROUTE_{name}": str(value) for name, value in (settings or {}).items()}
        # Found in the environment of each of its processes, however far from the parent.
        self.mark = f"DATA_PLANE_OF_TEST={uuid.uuid4().hex}"
        self.environ = dict([self.mark.split("=")]) | dict(environ or {})
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = data_dir / f"dataplane-{self.port}.log"
        self.process: subprocess.Popen[bytes] | None = None
        data_dir.mkdir(parents=True, exist_ok=True)

    def start(self, *, wait: bool = True) -> "DataPlane":
        """Start the processes; with ``wait``, return when requests can be served."""
        assert self.process is None
        command = [*_command(), "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--workers", str(self.workers), "--data-dir", str(self.data_dir)]
        environ = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        environ |= {"PYTHONUNBUFFERED": "1", "WARMROUTE_REDIS_URL": self.redis_url, **self.settings, **self.environ}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self) -> None:
        """Wait until requests can be served; fail at once when the process has ended."""

        def is_ready() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.output}"
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{self.url}/health/ready").status_code == 200
            return False

        wait_until(is_ready, READY_SECONDS, "the data plane is ready")

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
            if match := SAMPLE.match(line):
                labels = frozenset((name, value) for name, value in LABEL.findall(match[2] or ""))
                found[match[1], labels] = float(match[3])
        return found

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that have these labels."""
        wanted = set(labels.items())
        return sum(value for (found, has), value in self.metrics().items() if found == name and wanted <= has)

    def pids(self) -> list[int]:
        """Return the live processes of this data plane, in order of their start: the parent, then its workers."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.mark.encode() in entry.joinpath("environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return sorted(found)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the parent."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL every process, as the machine's end would."""
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
            wait_until(lambda: not self.pids(), 2.0, "no process of the data plane is left")
        finally:
            self.kill()
        return code

    def close(self) -> None:
        """End it if it runs, and fail when it printed a traceback."""
        if self.process is not None:
            self.stop()
        assert "Traceback" not in self.output, self.output


def _command() -> list[str]:
    has_cli = importlib.util.find_spec("warmroute.cli") is not None
    return [sys.executable, "-m", *(["warmroute", "dataplane"] if has_cli else ["dataplane"])]


@contextlib.contextmanager
def data_plane(redis_url: str, data_dir: Path, **given: Any) -> Iterator[DataPlane]:
    """Run a data plane for the length of a with block."""
    plane = DataPlane(redis_url, data_dir, **given)
    try:
        yield plane.start()
    finally:
        plane.close()

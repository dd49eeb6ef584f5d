"""A control plane as a process of its own, for tests that kill it or only know its port."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3

PROGRAM = """
import asyncio, os, sys
from contract.settings import load
from controlplane import main
host, port = sys.argv[1], int(sys.argv[2])
asyncio.run(main.serve(load(os.environ), host, port, on_ready=lambda port: print(port, flush=True)))
"""
QUICK = {"PROBE_SECONDS": "0.1", "EJECT_SECONDS": "0.3", "PROVISION_TIMEOUT_SECONDS": "30"}


class PlaneProcess:
    """``log`` is the file that its output goes to."""

    def __init__(self, log: Path, database_url: str, redis_url: str, **settings: str) -> None:
        self.log = log
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WARMROUTE_")},
            "WARMROUTE_DATABASE_URL": database_url,
            "WARMROUTE_REDIS_URL": redis_url,
            **{f"WARMROUTE_{name}": value for name, value in (QUICK | settings).items() if name != "TZ"},
            **{name: value for name, value in settings.items() if name == "TZ"},
        }
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, on the port that it had before if it had one, and wait until it takes requests."""
        self.spawn()
        self.await_port()

    def await_port(self) -> None:
        """Wait until it takes requests."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.strip().isdigit(), self.log.read_text()
        self.port = int(line)

    def spawn(self) -> None:
        """Start it and wait for nothing; ``await_port`` is next."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, "127.0.0.1", str(self.port)],
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def end(self, number: signal.Signals = signal.SIGTERM, limit_seconds: float = 20) -> int:
        """Send a signal and return the exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return self.wait(limit_seconds)

    def wait(self, limit_seconds: float = 20) -> int:
        """Return the exit code."""
        assert self._process is not None
        code = self._process.wait(limit_seconds)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self.wait()

    def get(self, path: str) -> tuple[int, str]:
        """GET a path; return status and body."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def post(self, operation: str, **members: Any) -> tuple[int, dict[str, Any]]:
        """POST /<operation>; return status and document."""
        request = urllib.request.Request(
            f"{self.url}/{operation}", json.dumps(members).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                body = response.read()
                return response.status, json.loads(body) if body else {}
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    @property
    def boto3(self) -> Any:
        """An unmodified client of the service."""
        return boto3.client(
            "sagemaker",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
        )

    def tracebacks(self) -> list[str]:
        return re.findall(r".*Traceback.*", self.log.read_text())


@contextlib.contextmanager
def running(*arguments: Any, **settings: str) -> Iterator[PlaneProcess]:
    """A plane for the length of a with block; it must have ended or been ended without a traceback."""
    plane = PlaneProcess(*arguments, **settings)
    try:
        plane.start()
        yield plane
    finally:
        plane.close()
    assert plane.tracebacks() == []

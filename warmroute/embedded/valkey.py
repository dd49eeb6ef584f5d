"""An embedded Valkey (or Redis) on a free loopback port, without persistence.

Nothing in it needs to survive: the control plane publishes the routes again from Postgres, and in-flight counts are
leases of workers that end together with the server.
"""

import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from warmroute.embedded import EmbeddedError, binaries
from warmroute.embedded.child import Child, last_words

_READY_SECONDS = 10.0
_PORT_ATTEMPTS = 5


class Valkey:
    """One server. A port of 0 takes a free one at the first start and keeps it over restarts."""

    def __init__(
        self, directory: Path, *, log: Path, port: int = 0, binary: Path | None = None, arguments: Sequence[str] = ()
    ) -> None:
        self.directory = directory.resolve()
        self.log = log
        self.port = port
        self.binary = binary or binaries.valkey_server()
        self.arguments = tuple(arguments)
        self._child: Child | None = None

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._child is not None
        return self._child.pid

    def start(self) -> str:
        """Start the server; return its URL. Raises EmbeddedError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        attempts = 1 if self.port else _PORT_ATTEMPTS
        for attempt in range(1, attempts + 1):
            port = self.port or _free_port()
            self._child = self._launch(port)
            if self._ready(port):
                self.port = port
                return f"redis://127.0.0.1:{port}/0"
            self._child.stop()
            # Between our look and its bind, another program may have taken the port.
            if attempt == attempts or "in use" not in self._child.log_tail(20):
                raise EmbeddedError(f"Valkey did not start: {last_words(self.log)}; its log is {self.log}")
        raise AssertionError("unreachable")

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._child.poll() if self._child else None

    def stop(self) -> None:
        """End the server and wait for its end. Idempotent."""
        if self._child:
            self._child.stop((signal.SIGTERM, 3.0))

    def _launch(self, port: int) -> Child:
        program: list[str | Path] = [self.binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", self.directory]
        program += ["--save", "", "--appendonly", "no", "--daemonize", "no", *self.arguments]
        return Child(program, log=self.log, death_signal=signal.SIGTERM)

    def _ready(self, port: int) -> bool:
        assert self._child is not None
        deadline = time.monotonic() + _READY_SECONDS
        while self._child.poll() is None and time.monotonic() < deadline:
            # Not PING alone: another server may hold the port.
            if _process_at(port) == self._child.pid:
                return True
            time.sleep(0.005)
        return False


def _process_at(port: int) -> int | None:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"INFO server\r\n")
            answer = b""
            while b"process_id:" not in answer or not answer.partition(b"process_id:")[2].count(b"\r\n"):
                if not (more := connection.recv(4096)):
                    return None
                answer += more
    except OSError:
        return None
    digits = answer.partition(b"process_id:")[2].partition(b"\r\n")[0]
    return int(digits) if digits.isdigit() else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

"""A child process that does not outlive us: ended by stop(), and by the kernel (or a watcher) when we are killed.

Start children from the main thread: on Linux the tie is to the starting thread.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from warmroute.embedded import EmbeddedError, leash, processes


class Child:
    """One process, started at once in a session of its own, so that a Ctrl-C at the terminal reaches only us."""

    def __init__(
        self,
        program: Sequence[str | Path],
        *,
        log: Path,
        death_signal: signal.Signals,
        identity: str = "own",
        environment: Mapping[str, str] | None = None,
        watch: bool = sys.platform != "linux",
    ) -> None:
        """Start ``program`` with its output appended to ``log``. ``identity``: see leash.py. ``watch``: a watching
        process in place of the kernel's parent-death signal, where there is none."""
        self.log = log
        theirs: int | None = None
        self._pipe: int | None = None
        if watch:
            theirs, self._pipe = os.pipe()
        command = [sys.executable, "-I", "-S", leash.__file__, "--parent", str(os.getpid())]
        command += ["--signal", str(int(death_signal)), "--identity", identity]
        command += [] if theirs is None else ["--pipe", str(theirs)]
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    [*command, "--", *map(str, program)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=environment,
                    pass_fds=() if theirs is None else (theirs,),
                    start_new_session=True,
                )
        except BaseException:
            self._release_watcher()
            raise
        finally:
            if theirs is not None:
                os.close(theirs)
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while it runs."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        self._process.send_signal(number)

    def wait(self, limit_seconds: float) -> bool:
        """Wait for the end; return whether it came within the limit."""
        try:
            self._process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            return False
        self._release_watcher()
        return True

    def stop(self, *steps: tuple[signal.Signals, float]) -> None:
        """End the process: each signal is given its seconds to work, then comes SIGKILL. Idempotent."""
        for number, seconds in steps:
            self.send(number)
            if self.wait(seconds):
                return
        if self._process.poll() is None:
            # What it started must not stay behind either; workers, for example, would first finish their requests.
            family = [self.pid, *processes.descendants(self.pid)]
            for pid in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._release_watcher()

    def log_tail(self, lines: int = 5) -> str:
        """Return the last lines of its output."""
        return log_tail(self.log, lines)

    def _release_watcher(self) -> None:
        if self._pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._pipe, b"x")
            os.close(self._pipe)
            self._pipe = None


def last_words(log: Path) -> str:
    """Return the line of the log that most likely tells why a server ended, without its time stamp."""
    lines = log_tail(log, 20).splitlines()
    fatal = [line[line.index("FATAL:") :] for line in lines if "FATAL:" in line]
    return (fatal or lines or ["it said nothing"])[-1]


def log_tail(log: Path, lines: int = 5) -> str:
    """Return the last lines of a log file, or an empty text when there is none."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    return ""


def run(program: Sequence[str | Path], *, log: Path, identity: str, environment: Mapping[str, str], what: str) -> None:
    """Run a program to its end. Raises EmbeddedError with its last lines when it fails."""
    child = Child(program, log=log, death_signal=signal.SIGTERM, identity=identity, environment=environment)
    try:
        deadline = time.monotonic() + 60
        while not child.wait(0.2):
            if time.monotonic() > deadline:
                raise EmbeddedError(f"{what} did not end within 60 s; its output is in {log}")
        if child.poll() != 0:
            raise EmbeddedError(f"{what} failed: {last_words(log)}; its log is {log}")
    finally:
        child.stop()

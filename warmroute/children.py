"""The processes that ``warmroute up`` starts: how they are started, watched and ended.

What changes here: the list of running parts, by up's main thread alone.
"""

import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from warmroute.embedded.child import Child, log_tail
from warmroute.faults import Fault

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """A signal asked for the end."""


class Died(Fault):
    """A part ended by itself."""


class Signals:
    """Counts the signals that ask for the end, and wakes a wait when one comes or a child ends."""

    def __init__(self, wake: int) -> None:
        self.stops = 0
        self._wake = wake

    def wait(self, limit_seconds: float | None) -> None:
        """Return at the next signal, the end of any child, or the limit."""
        if select.select([self._wake], [], [], limit_seconds)[0]:
            os.read(self._wake, 4096)

    def count(self, number: int, _frame: FrameType | None) -> None:
        """Handle one signal."""
        self.stops += number in _STOPS


@contextmanager
def handled_signals() -> Iterator[Signals]:
    """Turn signals into wake-ups for as long as the context lasts. Main thread only."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signals = Signals(reader)
    wake_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    before = {number: signal.signal(number, signals.count) for number in (*_STOPS, signal.SIGCHLD)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wake_before)
        os.close(reader)
        os.close(writer)


@dataclass(frozen=True)
class Part:
    """One running part: its name as users know it, its end, and whether it has ended."""

    name: str
    log: Path
    poll: Callable[[], int | None]
    ask: Callable[[], None]
    """Ask it to end, in its own time."""
    force: Callable[[], None]
    """End it now, and wait for that."""
    patience_seconds: float
    stage: int
    """Higher stages end first; the parts of one stage end together."""


SERVERS, BEHIND, FRONT = 0, 1, 2
"""Stages: Postgres and Valkey; what stands behind the data plane; the data plane, whose requests need the rest."""


class Children:
    """All running parts, in the order of their start."""

    def __init__(self, logs: Path, signals: Signals) -> None:
        self.logs = logs
        self.signals = signals
        self._parts: list[Part] = []

    def log(self, name: str) -> Path:
        """Return a new log file's path; the log of the run before is kept with the suffix ``.1``."""
        path = self.logs / f"{name.replace(' ', '-')}.log"
        if path.exists():
            path.replace(path.with_suffix(".log.1"))
        return path

    def add(self, part: Part) -> None:
        """Watch a part from now on, and end it with the others."""
        self._parts.append(part)

    def start(
        self,
        name: str,
        arguments: list[str],
        environment: Mapping[str, str],
        *,
        stage: int,
        patience_seconds: float = 10.0,
    ) -> Child:
        """Start one ``warmroute`` command as a part."""
        # -P: modules in the user's current directory stay out.
        child = Child(
            [sys.executable, "-P", "-m", "warmroute", *arguments],
            log=self.log(name),
            death_signal=signal.SIGTERM,
            environment=environment,
        )
        self.add(
            Part(name, child.log, child.poll, lambda: child.send(signal.SIGTERM), child.stop, patience_seconds, stage)
        )
        return child

    def wait_until(self, condition: Callable[[], bool], limit_seconds: float, what: str) -> None:
        """Return when the condition holds. Raises Stopped, Died, or Fault at the limit."""
        deadline = time.monotonic() + limit_seconds
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                raise Fault(f"{what} within {limit_seconds:g} s; the logs are in {self.logs}")
            self.signals.wait(0.05)

    def check(self) -> None:
        """Raise Stopped after a signal, and Died when a part has ended."""
        if self.signals.stops:
            raise Stopped
        for part in self._parts:
            if part.poll() is not None:
                raise Died(_obituary(part))

    def watch(self) -> None:
        """Wait until check() raises."""
        while True:
            self.check()
            self.signals.wait(None)

    def stop(self, say: Callable[[str], None], patience_seconds: float = math.inf) -> None:
        """End all parts, stage by stage; a further signal means: at once. No part is given more than the patience."""
        enough = 1 if self.signals.stops else 0
        for stage in sorted({part.stage for part in self._parts}, reverse=True):
            leaving = [part for part in self._parts if part.stage == stage]
            for part in leaving:
                part.ask()
            begin, told = time.monotonic(), False
            while waiting := [part for part in leaving if part.poll() is None]:
                waited = time.monotonic() - begin
                limit = min(patience_seconds, max(part.patience_seconds for part in waiting))
                if self.signals.stops > enough or waited > limit:
                    break
                if waited > 1 and not told:
                    told = True
                    names = ", ".join(part.name for part in waiting)
                    say(f"{names}: up to {limit:g} s to finish what is under way; Ctrl-C again ends it now")
                self.signals.wait(0.1)
            for part in leaving:
                part.force()
        self._parts.clear()


def _obituary(part: Part) -> str:
    """Say that a part ended, in its own words where it had a plain sentence for its user."""
    code, tail = part.poll(), log_tail(part.log, 8)
    last = tail.splitlines()[-1] if tail else ""
    if code in (1, 2) and last.startswith("warmroute"):
        return last.removeprefix("warmroute: ")
    how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
    return f"the {part.name} {how}; its log {part.log} ends with:\n{tail or '(nothing)'}"

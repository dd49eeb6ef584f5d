"""One JSON line per request, written by a thread of its own. Never a prompt, a body or a credential.

A reader that stops reading must not stop the worker: past LINES_MAX waiting lines are dropped. So are lines that cannot
be written, as when the disk is full. Their number is logged.
"""

import logging
import sys
import threading
import time
from collections import deque
from typing import TextIO

import msgspec

logger = logging.getLogger(__name__)

LINES_MAX = 100_000
BATCH = 64
"""Lines encoded at once, where they are written: a thread that encoded thousands would hold up the requests."""
_FLUSH_SECONDS = 0.25


class Line(msgspec.Struct, omit_defaults=True):
    """``status`` 499: the client left before its answer ended. Times in ms."""

    at: float
    """Monotonic seconds when written; epoch seconds in the log."""
    request_id: str
    route: str
    status: int
    principal: str = ""
    endpoint: str = ""
    variant: str = ""
    instance: str = ""
    outcome: str = ""
    attempts: int = 1
    request_bytes: int = 0
    answer_bytes: int = 0
    first_byte_ms: float = 0.0
    total_ms: float = 0.0
    failure: str = ""
    reason: str = ""
    client: str = ""


def milliseconds(seconds: float) -> float:
    """Return ms to the µs. ``round`` takes several times as long."""
    return int(seconds * 1e6 + 0.5) / 1e3


class AccessLog:
    """``write`` costs an append, and an encoding of every BATCH lines; a thread writes.

    What changes here: the lines and the encoded batches. Each count is one thread's own.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._lines: deque[Line] = deque()
        self._batches: deque[tuple[int, bytes]] = deque()
        self._encoding = threading.Lock()
        self._accepted = 0
        self._taken = 0
        self._dropped = 0
        self._lost = 0
        self._told = 0
        """Of the dropped and lost lines, those whose number was logged."""
        self._is_unwritable = False
        self._epoch = time.time() - time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def write(self, line: Line) -> None:
        if self._accepted - self._taken >= LINES_MAX:
            self._dropped += 1
            return
        self._accepted += 1
        self._lines.append(line)
        if len(self._lines) >= BATCH:
            self._encode()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=2)

    def _encode(self) -> None:
        """Encode the lines that wait. By both threads: the lock keeps their order."""
        with self._encoding:
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            for line in lines:
                line.at = round(line.at + self._epoch, 3)
                if line.reason:
                    # What a host or a client said may hold half characters.
                    line.reason = line.reason.encode("utf-8", "replace").decode()
            if lines:
                self._batches.append((len(lines), _encode_lines(lines)))

    def _run(self) -> None:
        while True:
            last = self._stop.wait(_FLUSH_SECONDS)
            self._encode()
            try:
                self._write_out()
            except ValueError:
                # The stream was closed.
                return
            if last:
                return

    def _write_out(self) -> None:
        out = []
        taken = self._taken
        while self._batches:
            count, text = self._batches.popleft()
            self._taken += count
            out.append(text)
        missing = self._dropped + self._lost - self._told
        if missing:
            out.append(b'{"dropped_lines":%d}\n' % missing)
        if not out:
            return
        try:
            self._stream.write(b"".join(out).decode())
            self._stream.flush()
        except OSError as error:
            if not self._is_unwritable:
                logger.warning("The access log cannot be written, so its lines are lost: %s", error)
            self._is_unwritable = True
            self._lost += self._taken - taken
        else:
            self._is_unwritable = False
            self._told += missing


_encode_lines = msgspec.json.Encoder().encode_lines

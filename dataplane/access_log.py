"""One JSON line per request, written off the hot path by a thread. Never a prompt, a body or a credential.

A reader that stops reading must not stop the worker: past LINES_MAX waiting lines are dropped and their number is
logged.
"""

import sys
import threading
import time
from collections import deque
from typing import TextIO

import msgspec

LINES_MAX = 100_000
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


class AccessLog:
    """``write`` costs an append; a thread encodes and writes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._lines: deque[Line] = deque()
        self._dropped = 0
        self._epoch = time.time() - time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def write(self, line: Line) -> None:
        if len(self._lines) < LINES_MAX:
            self._lines.append(line)
        else:
            self._dropped += 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=2)

    def _run(self) -> None:
        encoder = msgspec.json.Encoder()
        while True:
            last = self._stop.wait(_FLUSH_SECONDS)
            out = []
            while self._lines:
                line = self._lines.popleft()
                line.at = round(line.at + self._epoch, 3)
                # What a host or a client said may hold half characters.
                line.reason = line.reason.encode("utf-8", "replace").decode()
                out.append(encoder.encode(line).decode())
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                out.append(f'{{"dropped_lines":{dropped}}}')
            if out:
                try:
                    self._stream.write("\n".join(out) + "\n")
                    self._stream.flush()
                except (OSError, ValueError):
                    return
            if last:
                return

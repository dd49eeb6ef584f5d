"""Lines of a log, one at a time and of bounded length: a file, a gzip file, or standard input. Never their content."""

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from warmroute.faults import Fault

LINE_BYTES_MAX = 64 * 2**20
"""A body has 25 MiB at most, and a JSON string of it at most a few bytes for each."""


class Log:
    """A log that is read once, from start to end. A context manager: it closes what it opened."""

    def __init__(self, path: str) -> None:
        """``path`` may be ``-``, standard input. Raises Fault when it cannot be opened."""
        self.name = "standard input" if path == "-" else path
        self.bytes: int | None = None
        """Of the file; None when nobody knows before the end."""
        self._under: IO[bytes] = sys.stdin.buffer
        if path != "-":
            try:
                self._under = open(path, "rb")  # noqa: SIM115 - closed by __exit__
                self.bytes = Path(path).stat().st_size
            except OSError as error:
                raise Fault(f"{path} cannot be read: {error.strerror}") from None
        self._lines: Any = gzip.GzipFile(fileobj=self._under) if path.endswith(".gz") else self._under
        self._read = 0

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_: object) -> None:
        if self._under is not sys.stdin.buffer:
            self._under.close()

    def position(self) -> int:
        """Bytes read so far, of the compressed file where it is one."""
        return self._read if self._lines is self._under else self._under.tell()

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number from 1, line without its end) of each line that is not blank. Raises Fault."""
        number = 0
        try:
            while line := self._lines.readline(LINE_BYTES_MAX + 1):
                number += 1
                self._read += len(line)
                if len(line) > LINE_BYTES_MAX:
                    raise Fault(f"line {number} of {self.name} is longer than {LINE_BYTES_MAX >> 20} MiB; the log must "
                                "be JSON Lines, one request a line")  # fmt: skip
                if not line.isspace():
                    yield number, line.rstrip(b"\r\n")
        except (OSError, EOFError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise Fault(f"{self.name} cannot be read after line {number}: {reason}") from None

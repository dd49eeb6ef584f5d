"""The last requests of a log, on disk and without their text: times, sizes, keys and block hashes.

Disk holds 8 bytes for each 64 bytes of their prompts; memory two numbers for each request.
"""

import struct
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO

_HEAD = struct.Struct("<III?")
_PARTS = 4
"""A part of the disk is given back as a whole, so up to half as much again as asked for is there."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One request as it is replayed."""

    prompt_tokens: int
    output_tokens: int
    keys: Sequence[int]
    """One for each PrefixLength; none for a request without anything to make a key of."""
    blocks: "array[int]"


class Spool:
    """Keeps the last ``most`` requests. A context manager: nothing stays on disk. Written first, then read."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._per_part = max(1, -(-most // _PARTS))
        self._parts: list[tuple[IO[bytes], list[tuple[float | None, int]]]] = []

    def __enter__(self) -> "Spool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file, _ in self._parts:
            file.close()

    def add(self, at: float | None, kept: Kept) -> None:
        """Append a request that arrived at ``at`` seconds."""
        if not self._parts or len(self._parts[-1][1]) >= self._per_part:
            self._parts.append((tempfile.TemporaryFile(), []))  # noqa: SIM115 - closed by __exit__
            while len(self) - len(self._parts[0][1]) >= self._most:
                self._parts.pop(0)[0].close()
        file, index = self._parts[-1]
        index.append((at, file.tell()))
        file.write(_HEAD.pack(kept.prompt_tokens, kept.output_tokens, len(kept.blocks), bool(kept.keys)))
        file.write(array("Q", kept.keys).tobytes())
        file.write(kept.blocks.tobytes())

    def __len__(self) -> int:
        return sum(len(index) for _, index in self._parts)

    def times(self) -> list[float | None]:
        """Return when the last requests arrived, in the order of the log."""
        return [at for _, index in self._parts for at, _ in index][-self._most :]

    def read(self, order: Sequence[int], keys: int) -> Iterator[Kept]:
        """Yield the requests in ``order``, numbers in the order of times(), each with ``keys`` keys or none."""
        places = [(file, start) for file, index in self._parts for _, start in index][-self._most :]
        for number in order:
            file, start = places[number]
            file.seek(start)
            prompt, output, blocks, has_keys = _HEAD.unpack(file.read(_HEAD.size))
            found, hashes = array("Q"), array("Q")
            found.frombytes(file.read(8 * keys if has_keys else 0))
            hashes.frombytes(file.read(8 * blocks))
            yield Kept(prompt, output, found, hashes)

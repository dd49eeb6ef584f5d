"""A transport and a loop that do what they are told, for protocols that are fed by hand."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any


class ManualLoop:
    """The part of an event loop that a protocol uses; callbacks run when the test says."""

    def __init__(self) -> None:
        self.now = 100.0
        self._soon: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self._soon.append((callback, arguments))

    def run(self) -> None:
        while self._soon:
            callback, arguments = self._soon.popleft()
            callback(*arguments)


class ManualTransport(asyncio.Transport):
    """Collects what is written. Its end is told to the protocol in a later turn, as by a real one."""

    def __init__(self, loop: ManualLoop, protocol: asyncio.BaseProtocol) -> None:
        super().__init__({"peername": ("203.0.113.9", 4711)})
        self._loop, self._protocol = loop, protocol
        self.written = bytearray()
        self.unsent = 0
        """What get_write_buffer_size answers."""
        self.is_paused = self.has_eof = self.is_closed = self.is_aborted = False
        self.high: int | None = None

    def write(self, data: Any) -> None:
        assert not self.has_eof, "written after the end"
        if not self.is_closed:
            self.written += data

    def write_eof(self) -> None:
        self.has_eof = True

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.is_aborted = True
        self.close()

    def lose(self, error: Exception | None = None) -> None:
        """The other side has ended the connection."""
        self.is_closed = True
        self._protocol.connection_lost(error)

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def take(self) -> bytes:
        """Return what was written since the last time."""
        data = bytes(self.written)
        self.written.clear()
        return data

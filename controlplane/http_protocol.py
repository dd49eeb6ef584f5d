"""Uvicorn's HTTP protocol with a limit on how long a head may take: without one, slow clients could hold all sockets.
And with a stricter look at heads (strict_http).

It is h11's, whatever else is installed: it is what uvicorn always brings, so what is tested is what runs.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from controlplane.strict_http import StrictConnection

HEAD_BYTES_MAX = 16_384
"""Of a head, and of a chunk's size line; uvicorn's default."""
HEAD_SECONDS = 20.0
"""From the connection, or the first byte of a further request, to the end of the head; as long as a body may take."""


class TimedProtocol(H11Protocol):
    """One connection of a client."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn = StrictConnection(h11.SERVER, HEAD_BYTES_MAX)
        self._overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Run the clock while a head is waited for. Between two requests uvicorn's own runs."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel()
        elif self._overdue is None:
            self._overdue = self.loop.call_later(HEAD_SECONDS, self._end)

    def _cancel(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _end(self) -> None:
        self._overdue = None
        if not self.transport.is_closing():
            self.transport.close()

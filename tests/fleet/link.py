"""A TCP link in front of a real server, which can be slow, or dead without being closed: all of it, or what is open."""

import asyncio
from typing import cast

from tests.fakes.model_host import HostThread


class Link:
    """Relays 127.0.0.1:port to a target port; every piece of data is delivered ``delay_seconds`` later."""

    def __init__(self, thread: HostThread, target_port: int, *, delay_seconds: float = 0.0) -> None:
        self.delay_seconds = delay_seconds
        self.thread = thread
        self.ends: set[_End] = set()
        self._is_cut = False
        self._target_port = target_port
        self._pending: set[asyncio.Task[None]] = set()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), thread.loop).result(10)
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        """Of a Redis at the other end."""
        return f"redis://127.0.0.1:{self.port}/0"

    def cut(self) -> None:
        """A cable was pulled: nothing passes, nothing is closed; new connections are taken and lead nowhere."""
        self._is_cut = True
        self.cut_existing()

    def cut_existing(self) -> None:
        """A firewall forgot the connections there are: nothing passes on them for ever. New ones work."""
        self.thread.call(self._cut_existing)

    def mend(self) -> None:
        """New connections work again; what was cut stays dead."""
        self._is_cut = False

    def close(self) -> None:
        """End the link and every connection through it."""

        async def end() -> None:
            self._server.close()
            for task in self._pending:
                task.cancel()
            for connection in list(self.ends):
                connection.transport.abort()
            while self.ends:
                await asyncio.sleep(0.001)

        asyncio.run_coroutine_threadsafe(end(), self.thread.loop).result(10)

    def _cut_existing(self) -> None:
        for end in self.ends:
            end.is_cut = True

    async def _listen(self) -> asyncio.Server:
        return await self.thread.loop.create_server(lambda: _End(self, None), "127.0.0.1", 0)

    def accepted(self, near: "_End") -> None:
        """Connect a new connection to the target."""
        near.is_cut = self._is_cut
        if near.is_cut:
            return
        near.transport.pause_reading()
        task = self.thread.loop.create_task(self._join(near))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _join(self, near: "_End") -> None:
        try:
            await self.thread.loop.create_connection(lambda: _End(self, near), "127.0.0.1", self._target_port)
        except OSError:
            near.transport.abort()
        else:
            near.transport.resume_reading()


class _End(asyncio.Protocol):
    """One end of a connection through the link; ``other`` is where its data goes."""

    transport: asyncio.Transport

    def __init__(self, link: Link, other: "_End | None") -> None:
        self._link = link
        self.other = other
        self.is_cut = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._link.ends.add(self)
        if self.other is None:
            self._link.accepted(self)
        else:
            self.other.other = self

    def data_received(self, data: bytes) -> None:
        self._later(lambda other: other.transport.write(data))

    def connection_lost(self, error: Exception | None) -> None:
        self._link.ends.discard(self)
        self._later(lambda other: other.transport.close())

    def _later(self, act) -> None:  # type: ignore[no-untyped-def]
        def then() -> None:
            if self.other is not None and not self.is_cut and not self.other.transport.is_closing():
                act(self.other)

        self._link.thread.loop.call_later(self._link.delay_seconds, then)

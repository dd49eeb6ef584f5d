"""A TCP link that can be slow or dead without being closed, to put in front of a real server."""

import asyncio
import contextlib

from tests.fakes.model_host import HostThread


class SlowLink:
    """Relays 127.0.0.1:port to a target port; every piece of data is delivered ``delay_seconds`` later."""

    def __init__(self, thread: HostThread, target_port: int, *, delay_seconds: float = 0.0) -> None:
        self.delay_seconds = delay_seconds
        self.is_cut = False
        """While true, nothing passes in either direction and nothing is closed: a cable that was pulled."""
        self._thread = thread
        self._target_port = target_port
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), thread.loop).result(10)
        self.port: int = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """End the link and every connection through it."""

        def end() -> None:
            self._server.close()
            for task in self._tasks:
                task.cancel()

        self._thread.call(end)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target_port)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.get_running_loop().create_task(self._relay(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _relay(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await source.read(65_536):
                while self.is_cut:
                    await asyncio.sleep(0.02)
                # Delay without holding up what comes behind: order is kept, as all delays are equal.
                loop.call_later(self.delay_seconds, _write, sink, data)
        except ConnectionError:
            pass
        finally:
            loop.call_later(self.delay_seconds, sink.close)


def _write(sink: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        if not sink.is_closing():
            sink.write(data)

"""TLS in front of a server that speaks plainly: of Redis at once, of Postgres after the word that its clients send."""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit, urlunsplit

_SSL_REQUEST = bytes.fromhex("0000000804d2162f")
"""PostgreSQL manual, "Message Formats": SSLRequest."""


class TlsFront:
    """Listens on loopback; ``connections`` counts those whose handshake was finished."""

    def __init__(self, url: str, tls: ssl.SSLContext) -> None:
        self._parts, self._tls = urlsplit(url), tls
        self.connections = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(5)
        self._port = self._server.sockets[0].getsockname()[1]

    def url(self, scheme: str, query: str = "") -> str:
        """Return the server's URL by way of this front."""
        user, _, _ = self._parts.netloc.rpartition("@")
        place = f"{user}@127.0.0.1:{self._port}" if user else f"127.0.0.1:{self._port}"
        return urlunsplit(self._parts._replace(scheme=scheme, netloc=place, query=query))

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ssl.SSLError):
            try:
                if self._parts.scheme == "postgresql":
                    if await reader.readexactly(len(_SSL_REQUEST)) != _SSL_REQUEST:
                        return
                    writer.write(b"S")
                    await writer.drain()
                await writer.start_tls(self._tls)
                self.connections += 1
                theirs, ours = await self._connect()
                try:
                    await _both_ways((reader, ours), (theirs, writer))
                finally:
                    ours.close()
            finally:
                writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        sockets = parse_qs(self._parts.query).get("host")
        if sockets:
            port = self._parts.port or int(parse_qs(self._parts.query).get("port", ["5432"])[0])
            return await asyncio.open_unix_connection(f"{sockets[0]}/.s.PGSQL.{port}")
        return await asyncio.open_connection(self._parts.hostname, self._parts.port)


async def _both_ways(*ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Pass bytes on until either side has ended."""
    copies = [asyncio.ensure_future(_copy(*way)) for way in ways]
    _, rest = await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    for copy in rest:
        copy.cancel()
    await asyncio.gather(*copies, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


@contextlib.contextmanager
def tls_front(url: str, tls: ssl.SSLContext) -> Iterator[TlsFront]:
    front = TlsFront(url, tls)
    try:
        yield front
    finally:
        front.close()

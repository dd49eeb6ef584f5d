"""A link to a real Postgres over which the server can say that it ends the session, at an exact point."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit, urlunsplit

_READY = b"Z"
_ENDED = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"


class PostgresLink:
    """Relays 127.0.0.1 to a Postgres; whole messages only, so that the last word stands where the server's would.

    The wire format is that of the PostgreSQL manual, "Message Formats": a type byte, a length that counts itself, and
    the body; the answer to each command, and the greeting, ends with ReadyForQuery.
    """

    def __init__(self, target: str) -> None:
        self.end_after: int | None = None
        """The session of the next connection is ended right behind this many times ReadyForQuery."""
        self.ended = 0
        """Sessions ended so far. Their connections stay open: the end of the stream comes later, or never."""
        self.url = ""
        self._target = urlsplit(target)
        self.sessions: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection until either side hangs up."""
        this = asyncio.current_task()
        assert this is not None
        self.sessions.add(this)
        end_after, self.end_after = self.end_after, None
        there, back = await self._connect()
        directions = [
            asyncio.ensure_future(_commands(reader, back)),
            asyncio.ensure_future(self._answers(there, writer, end_after)),
        ]
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        for direction in directions:
            direction.cancel()
        await asyncio.gather(*directions, return_exceptions=True)
        for end in (writer, back):
            end.close()
            with contextlib.suppress(ConnectionError):
                await end.wait_closed()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        sockets = parse_qs(self._target.query).get("host")
        if sockets:
            return await asyncio.open_unix_connection(f"{sockets[0]}/.s.PGSQL.{self._target.port or 5432}")
        return await asyncio.open_connection(self._target.hostname, self._target.port or 5432)

    async def _answers(self, server: asyncio.StreamReader, client: asyncio.StreamWriter, end_after: int | None) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await server.readexactly(5)
                client.write(head + await server.readexactly(int.from_bytes(head[1:]) - 4))
                if end_after is not None and head[:1] == _READY:
                    end_after -= 1
                    if not end_after:
                        client.write(b"E" + (len(_ENDED) + 4).to_bytes(4) + _ENDED)
                        self.ended += 1
                        await client.drain()
                        await asyncio.Event().wait()


async def _commands(client: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await client.read(65_536):
            server.write(data)
            await server.drain()


@contextlib.asynccontextmanager
async def postgres_link(url: str) -> AsyncIterator[PostgresLink]:
    link = PostgresLink(url)
    server = await asyncio.start_server(link.serve, "127.0.0.1", 0)
    where = urlsplit(url)
    login = where.netloc.rpartition("@")[0]
    port = server.sockets[0].getsockname()[1]
    link.url = urlunsplit(where._replace(netloc=f"{login}@127.0.0.1:{port}", query="sslmode=disable"))
    async with server:
        yield link
        # Whoever used the link has hung up.
        await asyncio.wait_for(asyncio.gather(*link.sessions), 10)

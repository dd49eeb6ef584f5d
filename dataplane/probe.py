"""One probe of a set-aside instance: GET its ping path, through the same pool that carries requests."""

import asyncio

from dataplane.host import Address, Failure
from dataplane.wire.host_connection import HostConnection
from dataplane.wire.http import AnswerHead
from dataplane.wire.pool import Pool

TIMEOUT_SECONDS = 2.0
"""AWS's own limit for ``/ping`` (developer guide, hosting algorithms)."""


class _Ping:
    """The exchange of one probe."""

    def __init__(self, answered: "asyncio.Future[bool]") -> None:
        self._answered = answered

    def host_head(self, head: AnswerHead) -> None:
        self._finish(head.status == 200)

    def host_body(self, parts: list[bytes]) -> None:
        pass

    def host_pause(self) -> None:
        pass

    def host_done(self) -> None:
        self._finish(False)

    def host_failed(self, failure: Failure, reason: str) -> None:
        self._finish(False)

    def _finish(self, answered: bool) -> None:
        if not self._answered.done():
            self._answered.set_result(answered)


async def ping(pool: Pool, address: Address, path: str, credential: bytes = b"") -> bool:
    """Return whether the host answers 200 within TIMEOUT_SECONDS. ``credential``: a header line, or nothing."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[bool] = loop.create_future()
    leased: list[HostConnection] = []

    def connected(connection: HostConnection | None, reason: str) -> None:
        if connection is None:
            if not answered.done():
                answered.set_result(False)
            return
        leased.append(connection)
        head = b"GET %b%b HTTP/1.1\r\nHost: %b\r\n%bConnection: close\r\n\r\n"
        connection.send(_Ping(answered), head % (address.path, path.encode(), address.authority, credential), b"")

    task = pool.connect(address, connected)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await answered
    except TimeoutError:
        return False
    finally:
        task.cancel()
        for connection in leased:
            connection.cancel()

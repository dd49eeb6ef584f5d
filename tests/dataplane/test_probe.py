import asyncio
import contextlib
from collections.abc import AsyncIterator
from unittest.mock import patch

import pytest

from dataplane import probe
from dataplane.host import Address
from dataplane.wire.pool import Pool
from tests.waiting import free_port, wait_until_async


class Host:
    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.asked: list[bytes] = []
        self.open = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self.answer)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        self.open -= 1


@contextlib.asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[Host]:
    """A host; afterwards no connection to it may be left."""
    host = Host(answer)
    server = await asyncio.start_server(host.serve, "127.0.0.1", 0)
    host.port = server.sockets[0].getsockname()[1]
    yield host
    await wait_until_async(lambda: host.open == 0)
    server.close()


def head(status: int) -> bytes:
    return b"HTTP/1.1 %d Word\r\nContent-Length: 0\r\n\r\n" % status


@pytest.mark.parametrize(("status", "is_good"), [(200, True), (204, False), (301, False), (404, False), (503, False)])
async def test_only_200_is_an_answer(status: int, is_good: bool) -> None:
    """AWS: /ping must answer 200."""
    async with answering(head(status)) as host:
        assert await probe.ping(Pool(1.0, 4.0), Address.of(f"http://127.0.0.1:{host.port}"), "/ping") is is_good


async def test_the_path_is_the_variants_below_the_hosts() -> None:
    async with answering(head(200)) as host:
        assert await probe.ping(Pool(1.0, 4.0), Address.of(f"http://127.0.0.1:{host.port}/models/a/"), "/health")
        assert host.asked[0].startswith(b"GET /models/a/health HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % host.port)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200", b"SSH-2.0\r\n\r\n"])
async def test_a_host_that_does_not_answer_is_not_waited_for(answer: bytes) -> None:
    async with answering(answer) as host:
        with patch.object(probe, "TIMEOUT_SECONDS", 0.1):
            assert await probe.ping(Pool(1.0, 4.0), Address.of(f"http://127.0.0.1:{host.port}"), "/ping") is False


async def test_a_host_that_is_down_is_no_answer() -> None:
    assert await probe.ping(Pool(1.0, 4.0), Address.of(f"http://127.0.0.1:{free_port()}"), "/ping") is False

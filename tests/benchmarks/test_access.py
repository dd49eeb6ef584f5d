import asyncio
import time
from collections import Counter

import pytest

from access.sealing import Sealing
from access.verifier import Verifier
from benchmarks.access import flood
from benchmarks.access.callers import REGION, Caller, signed_headers, token
from benchmarks.access.flood import Window, percentile, spread

HOST, TARGET = "127.0.0.1:7080", "/endpoints/e/invocations"


def test_percentiles_are_those_of_the_sorted_values() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert (percentile(values, 50), percentile(values, 95), percentile([3.0], 95)) == (51.0, 96.0, 3.0)
    assert spread([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    assert Window((1.0,), (1.2,), {}, 0.0).ratio == pytest.approx(1.2)


def test_its_callers_are_who_they_say_they_are() -> None:
    """A check that fails early would be cheap."""
    sealing, caller = Sealing([b"k" * 32]), Caller.make("a")
    verifier = Verifier(REGION, sealing)
    verifier.apply([caller.principal(sealing), caller.api_principal()])
    signed = [(name.lower().encode(), value.encode())
              for name, value in {"Host": HOST, **signed_headers(caller, HOST, TARGET, b"x", {})}.items()]  # fmt: skip
    assert verifier.verify(b"POST", TARGET.encode(), signed, b"x", time.time()).tenant == "a"
    for text in (token(caller), caller.api_key.key):
        bearing = [(b"authorization", f"Bearer {text}".encode())]
        assert verifier.verify(b"POST", b"/", bearing, b"", time.time()).tenant == "a"


async def test_a_flood_has_the_rate_it_says() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readexactly(5)
                writer.write(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\nno")
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        found: Counter[int] = await flood.flood(b"hello", server.sockets[0].getsockname()[1], 100.0, 0.5)
    assert set(found) == {429}
    assert 40 <= found[429] <= 51

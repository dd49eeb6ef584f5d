from collections.abc import AsyncIterator

import httpx
import pytest

from tests.controlplane.api.stubs import Stubs


@pytest.fixture
def stubs() -> Stubs:
    return Stubs()


@pytest.fixture
async def client(stubs: Stubs) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application made of ``stubs``; operations added during the test reach it by ``POST /``."""
    for name in ("DescribeEndpoint", "DeleteEndpoint", "CreateEndpointConfig"):
        stubs.add(name)
    transport = httpx.ASGITransport(app=stubs.app(), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client

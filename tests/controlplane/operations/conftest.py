"""A model with hosts for the tests of operations on endpoints."""

import pytest

from tests.controlplane.stage import Call, create_model
from tests.fakes.model_host import Hosts


@pytest.fixture
async def model(call: Call, hosts: Hosts) -> None:
    """Model ``m`` with four hosts."""
    await create_model(call, "m", *(host.url for host in hosts.make(4)))

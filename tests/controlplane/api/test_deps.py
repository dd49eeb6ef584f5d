from datetime import UTC, datetime

import pytest

from controlplane.api.deps import Service, utc_now
from controlplane.errors import ValidationException
from controlplane.shapes.endpoints import DeleteEndpointInput
from tests.controlplane.api.stubs import Stubs

REQUEST = DeleteEndpointInput(EndpointName="e1")


def service(stubs: Stubs) -> Service:
    return Service(
        stubs.database, "000000000000", "us-east-1", lambda: datetime(2026, 1, 1, 0, 0, 0, 999_999, UTC), record=None
    )


async def test_one_call_is_one_transaction(stubs: Stubs) -> None:
    stubs.add("DeleteEndpoint")
    assert await service(stubs).call(stubs.operations["DeleteEndpoint"], REQUEST) is None
    assert (stubs.database.commits, stubs.database.rollbacks) == (1, 0)
    assert stubs.calls[0][0].now.microsecond == 999_000


async def test_a_refused_call_is_rolled_back(stubs: Stubs) -> None:
    stubs.add("DeleteEndpoint", ValidationException("no"))
    with pytest.raises(ValidationException):
        await service(stubs).call(stubs.operations["DeleteEndpoint"], REQUEST)
    assert (stubs.database.commits, stubs.database.rollbacks) == (0, 1)


def test_the_clock_is_aware() -> None:
    assert utc_now().utcoffset() == UTC.utcoffset(None)

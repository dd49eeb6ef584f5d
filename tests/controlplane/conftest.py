"""Fixtures of the control plane's tests: a database built by the migrations, and operations called as the API does."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from controlplane.operations.context import Context
from controlplane.operations.registry import OPERATIONS
from controlplane.shapes.parse import parse
from controlplane.store.session import Database
from migrations import runner
from tests import services

ACCOUNT, REGION = "123456789012", "us-east-1"

Call = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture(scope="session")
def migrated_template(postgres_url: str) -> Iterator[str]:
    """Name of a database that the migrations built, to copy."""
    import asyncio

    with services.new_database(postgres_url) as url:
        asyncio.run(runner.upgrade(url))
        yield urlsplit(url).path.lstrip("/")


@pytest.fixture
def migrated_url(postgres_url: str, migrated_template: str) -> Iterator[str]:
    """URL of a migrated database of this test, with an epoch of its own."""
    with services.new_database(postgres_url, template=migrated_template) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE publication SET epoch = gen_random_uuid()::text")
        yield url


@pytest.fixture
async def database(migrated_url: str) -> AsyncIterator[Database]:
    database = Database(migrated_url)
    yield database
    await database.dispose()


def caller(database: Database) -> Call:
    """Return ``call(operation, **members)``: one operation as a replica of the API runs it, its answer as JSON."""

    async def call(operation: str, **members: Any) -> dict[str, Any]:
        entry = OPERATIONS[operation]
        request = parse(entry.input, members)
        async with database.transaction() as session:
            answer = await entry.run(Context(session, ACCOUNT, REGION, datetime.now(UTC)), request)
        return answer.to_wire() if answer else {}

    return call


@pytest.fixture
def call(database: Database) -> Call:
    return caller(database)

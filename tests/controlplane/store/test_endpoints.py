"""Claims of hosts by endpoints that want the same one, and health that is forgotten with its reason."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text

from controlplane.store import endpoints
from controlplane.store.session import Database
from controlplane.store.tables import EndpointVariant
from tests.controlplane.stage import Call, create_config, create_model

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
async def two_endpoints(call: Call) -> None:
    await create_model(call, "m", "http://10.0.0.1:1")
    await create_model(call, "n", "http://10.0.0.1:1", WARMROUTE_PING_PATH="/health")
    await create_config(call, "c")
    await create_config(call, "d", {"ModelName": "n"})
    await call("CreateEndpoint", EndpointName="a", EndpointConfigName="c")
    await call("CreateEndpoint", EndpointName="b", EndpointConfigName="d")


async def rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    async with database.transaction() as session:
        return [tuple(row) for row in (await session.execute(text(query))).all()]


async def variant_of(database: Database, name: str) -> EndpointVariant:
    ((endpoint_id,),) = await rows(database, f"SELECT id FROM endpoint WHERE name = '{name}'")
    async with database.transaction() as session:
        (variant,) = await endpoints.variants(session, endpoint_id, "PENDING")
        return variant


async def claim(database: Database, name: str) -> bool:
    variant = await variant_of(database, name)
    ((host_id,),) = await rows(database, "SELECT id FROM host")
    async with database.transaction() as session:
        return await endpoints.claim(session, variant.endpoint_id, host_id, variant, NOW)


async def forget(database: Database) -> list[str]:
    ((host_id,),) = await rows(database, "SELECT id FROM host")
    async with database.transaction() as session:
        await endpoints.forget_health(session, [host_id], NOW)
    return [path for (path,) in await rows(database, "SELECT path FROM host_health ORDER BY path")]


async def test_of_those_who_want_a_host_one_gets_it(database: Database) -> None:
    results = await asyncio.gather(*(claim(database, name) for name in "abababab"))
    # The winner may claim its own host again.
    assert set(results) == {True, False}
    assert results[0::2] in ([True] * 4, [False] * 4)
    assert len(await rows(database, "SELECT * FROM binding")) == 1


async def test_a_claim_begins_without_a_good_probe(database: Database) -> None:
    assert await claim(database, "b")
    assert await rows(database, "SELECT path, healthy, failures FROM host_health") == [("/health", False, 0)]


async def test_dropping_frees_what_does_not_serve(database: Database) -> None:
    await claim(database, "a")
    ((host_id,),) = await rows(database, "SELECT id FROM host")
    async with database.transaction() as session:
        await endpoints.drop(session, host_id)
    assert await rows(database, "SELECT * FROM binding") == []
    await claim(database, "a")
    async with database.transaction() as session:
        await endpoints.activate(session, host_id)
        await session.execute(text("UPDATE binding SET pending_variant = 'v'"))
        await endpoints.drop(session, host_id)
    assert await rows(database, "SELECT active_variant, pending_variant FROM binding") == [("v", None)]


async def test_health_is_forgotten_with_the_last_variant_that_asks_for_it(database: Database) -> None:
    await claim(database, "b")
    async with database.transaction() as session:
        await session.execute(
            text(
                "INSERT INTO host_health (host_id, path, healthy, failures, changed_at, next_probe_at)"
                " SELECT id, '/ping', true, 0, now(), now() FROM host"
            )
        )
    assert await forget(database) == ["/health"]
    await rows(database, "DELETE FROM binding RETURNING host_id")
    assert await forget(database) == []

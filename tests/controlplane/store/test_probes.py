"""Claims of probes, and results that come too late."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from controlplane.store import probes
from controlplane.store.probes import Target
from controlplane.store.session import Database
from tests.controlplane.stage import Call, create_model

NOW = datetime(2026, 1, 1, tzinfo=UTC)
UNTIL = NOW + timedelta(seconds=3)


@pytest.fixture(autouse=True)
async def bound(call: Call, database: Database) -> None:
    """Two hosts in the hands of an endpoint, one of them waiting to serve."""
    await create_model(call, "m", "http://10.0.0.1:1", "http://10.0.0.2:1")
    async with database.transaction() as session:
        for statement in (
            "INSERT INTO endpoint (id, name, status, config_name, sent_config, revision, created_at, modified_at)"
            " VALUES ('e', 'e', 'InService', 'c', '{}', 0, now(), now())",
            "INSERT INTO binding (host_id, endpoint_id, active_variant) SELECT min(id), 'e', 'v' FROM host",
            "INSERT INTO binding (host_id, endpoint_id, pending_variant) SELECT max(id), 'e', 'v' FROM host",
            "INSERT INTO host_health (host_id, path, healthy, failures, changed_at, next_probe_at)"
            " SELECT id, '/ping', false, 0, now(), '2026-01-01Z' FROM host",
        ):
            await session.execute(text(statement))


async def claim(database: Database, now: datetime = NOW, limit: int = 10) -> list[Target]:
    async with database.transaction() as session:
        return sorted(await probes.claim_due(session, now, UNTIL, limit), key=lambda target: target.host_id)


async def test_what_is_due_is_claimed_once(database: Database) -> None:
    assert await claim(database, NOW - timedelta(seconds=1)) == []
    claims = await asyncio.gather(*(claim(database) for _ in range(5)))
    assert sorted(target.base_url for each in claims for target in each) == ["http://10.0.0.1:1", "http://10.0.0.2:1"]
    async with database.transaction() as session:
        assert await probes.next_due(session) == UNTIL
    assert len(await claim(database, UNTIL)) == 2


async def test_no_more_is_claimed_than_was_asked_for(database: Database) -> None:
    assert len(await claim(database, limit=1)) == 1
    assert await claim(database, limit=0) == []
    assert len(await claim(database)) == 1


async def test_results_tell_which_host_waits_to_serve(database: Database) -> None:
    targets = await claim(database)
    async with database.transaction() as session:
        found = await probes.lock_probed(session, targets)
    assert [(target, waits) for _, target, waits in found] == [(targets[0], False), (targets[1], True)]


@pytest.mark.parametrize("change", ["released", "moved", "claimed again"])
async def test_a_result_counts_only_while_its_claim_stands(database: Database, call: Call, change: str) -> None:
    targets = await claim(database)
    async with database.transaction() as session:
        if change == "released":
            await session.execute(text("DELETE FROM binding"))
        elif change == "moved":
            await session.execute(text("UPDATE host_health SET next_probe_at = now()"))
        else:
            await probes.claim_due(session, UNTIL, UNTIL + timedelta(seconds=3), 10)
    async with database.transaction() as session:
        assert await probes.lock_probed(session, targets) == []


async def test_a_host_that_moves_while_its_result_is_stored_is_not_taken_for_probed(database: Database) -> None:
    targets = await claim(database)

    async def store() -> int:
        async with database.transaction() as session:
            return len(await probes.lock_probed(session, targets))

    async with database.transaction() as session:
        await session.execute(text("UPDATE host SET base_url = 'http://elsewhere:1'"))
        await session.execute(text("UPDATE host_health SET healthy = false, next_probe_at = now()"))
        # It waits for these rows, and must then see what became of them.
        storing = asyncio.create_task(store())
        await asyncio.wait([storing], timeout=0.2)
        assert not storing.done()
    assert await storing == 0

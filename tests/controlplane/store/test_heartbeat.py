"""Outages stretch registrations; nothing else does."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from controlplane.store import heartbeat
from controlplane.store.session import Database

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
async def registrations(database: Database) -> None:
    """The last beat was at NOW; one registration runs 60 s from then, one had run out, one has no end."""
    async with database.transaction() as session:
        await session.execute(text("UPDATE heartbeat SET beat_at = :now"), {"now": NOW})
        await session.execute(
            text("INSERT INTO model (name, ping_path, sent, created_at) VALUES ('m', '/ping', '{}', now())")
        )
        for number, expires in enumerate((NOW + timedelta(seconds=60), NOW - timedelta(seconds=1), None)):
            await session.execute(
                text(f"INSERT INTO host (identity, base_url, seen_at) VALUES ('h{number}', 'u{number}', now())")
            )
            await session.execute(
                text(
                    "INSERT INTO model_host (model_id, host_id, source, registered_at, expires_at)"
                    " SELECT model.id, host.id, 'Registration', now(), :at FROM model, host"
                    f" WHERE identity = 'h{number}'"
                ),
                {"at": expires},
            )


async def beat(database: Database, seconds: float) -> int | None:
    async with database.transaction() as session:
        return await heartbeat.beat(session, NOW + timedelta(seconds=seconds))


async def ends(database: Database) -> list[float | None]:
    query = "SELECT expires_at FROM model_host JOIN host ON host.id = host_id ORDER BY identity"
    async with database.transaction() as session:
        found = (await session.execute(text(query))).scalars()
        return [(each - NOW).total_seconds() if each else None for each in found]


async def test_an_outage_stretches_what_had_not_run_out_when_it_began(database: Database) -> None:
    assert await beat(database, 3600) == 1
    assert await ends(database) == [3660.0, -1.0, None]


async def test_a_living_plane_stretches_nothing(database: Database) -> None:
    assert [await beat(database, seconds) for seconds in (2.0, 4.0, 8.5)] == [0, 0, 0]
    assert await ends(database) == [60.0, -1.0, None]


async def test_beats_close_together_are_one(database: Database) -> None:
    assert await beat(database, 0.5) is None
    assert await beat(database, 1.5) == 0
    assert await beat(database, 2.0) is None


async def test_a_clock_that_was_set_back_is_followed(database: Database) -> None:
    assert await beat(database, -3600) == 0
    assert await beat(database, -3598) == 0
    assert await ends(database) == [60.0, -1.0, None]


async def test_only_one_of_two_replicas_stretches(database: Database) -> None:
    async with database.transaction() as first:
        assert await heartbeat.beat(first, NOW + timedelta(seconds=100)) == 1
        assert await beat(database, 100) is None
    assert await beat(database, 100.1) is None
    assert await ends(database) == [160.0, -1.0, None]

"""Pools: what lapses, what is forgotten, and what is kept."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import text

from controlplane.store import hosts
from controlplane.store.session import Database
from controlplane.store.tables import Model, ModelHost

NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def prepare(database: Database) -> None:
    """Model 1 with a host that lapses in 5 s and one that does not; a third host in no pool."""
    async with database.transaction() as session:
        model = Model(name="m", ping_path="/ping", sent={}, created_at=NOW)
        session.add(model)
        await session.flush()
        for number in range(3):
            host, moved = await hosts.put_host(session, f"h{number}", f"http://h{number}", NOW)
            assert not moved
            if number < 2:
                expires = NOW + timedelta(seconds=5) if number == 0 else None
                member = ModelHost(
                    model_id=model.id, host_id=host.id, source="Registration", registered_at=NOW, expires_at=expires
                )
                await hosts.put_member(session, member)


async def names(database: Database, query: str) -> list[str]:
    async with database.transaction() as session:
        return sorted((await session.execute(text(query))).scalars())


async def remove_lapsed(database: Database, after: timedelta) -> int:
    async with database.transaction() as session:
        return await hosts.remove_lapsed(session, NOW + after)


async def test_what_has_lapsed_leaves_its_pool_and_what_is_unused_is_forgotten_later(database: Database) -> None:
    await prepare(database)
    everything = "SELECT identity FROM host"
    members = "SELECT identity FROM host JOIN model_host ON host_id = host.id"
    assert await remove_lapsed(database, timedelta(seconds=4)) == 0
    assert await remove_lapsed(database, timedelta(seconds=5)) == 1
    assert await names(database, members) == ["h1"]
    assert await names(database, everything) == ["h0", "h1", "h2"]
    assert await remove_lapsed(database, hosts.FORGET_AFTER + timedelta(seconds=1)) == 0
    assert await names(database, everything) == ["h1"]


async def test_a_host_in_an_endpoints_hands_is_never_forgotten(database: Database) -> None:
    await prepare(database)
    async with database.transaction() as session:
        await session.execute(
            text(
                "INSERT INTO endpoint (id, name, status, config_name, sent_config, revision, created_at, modified_at)"
                " VALUES ('e', 'e', 'InService', 'c', '{}', 0, now(), now())"
            )
        )
        await session.execute(text("INSERT INTO binding (host_id, endpoint_id) SELECT id, 'e' FROM host"))
    await remove_lapsed(database, timedelta(days=30))
    assert await names(database, "SELECT identity FROM host") == ["h0", "h1", "h2"]


async def test_a_host_that_comes_back_in_time_keeps_its_number(database: Database) -> None:
    await prepare(database)
    async with database.transaction() as session:
        before, moved = await hosts.put_host(session, "h2", "http://h2", NOW + timedelta(hours=23))
        number = before.id
        assert not moved
    await remove_lapsed(database, timedelta(hours=25))
    async with database.transaction() as session:
        again, moved = await hosts.put_host(session, "h2", "http://moved", NOW + timedelta(hours=26))
        assert moved
        assert again.id == number
        assert again.base_url == "http://moved"

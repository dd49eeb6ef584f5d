"""Transactions under trouble: a database that stops, restarts, freezes, or changes its tables under load."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import psycopg
import pytest
from sqlalchemy import delete, select, text
from sqlalchemy.exc import IntegrityError

from controlplane.errors import ServiceUnavailable, ValidationException
from controlplane.store.session import Database, one_snapshot
from controlplane.store.tables import Host
from tests.fakes.postgres_link import postgres_link
from tests.services import PrivateServer


async def one(database: Database) -> int:
    async with database.transaction() as session:
        return int((await session.execute(text("SELECT 1"))).scalar_one())


def row() -> Host:
    return Host(identity="h", base_url="http://h", seen_at=datetime.now(UTC))


async def test_a_block_that_ends_well_is_committed_and_one_that_raises_is_not(database: Database) -> None:
    async def fail() -> None:
        async with database.transaction() as session:
            session.add(row())
            await session.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with database.transaction() as session:
        assert (await session.execute(select(Host))).first() is None
        session.add(row())
    async with database.transaction() as session:
        assert (await session.execute(select(Host))).scalar_one().identity == "h"


async def test_errors_of_our_own_are_not_taken_for_an_outage(database: Database) -> None:
    async def twice() -> None:
        async with database.transaction() as session:
            session.add(row())
            await session.flush()
            session.add(row())

    with pytest.raises(IntegrityError):
        await twice()


async def test_a_nul_character_is_the_callers_fault(database: Database) -> None:
    with pytest.raises(ValidationException, match="NUL"):
        async with database.transaction() as session:
            await session.execute(text("SELECT CAST(:value AS text)"), {"value": "a\0b"})
    with pytest.raises(ValidationException, match="NUL"):
        async with database.transaction() as session:
            await session.execute(text("SELECT CAST(:value AS jsonb)"), {"value": '"\\u0000"'})


async def test_one_snapshot_does_not_see_later_commits(database: Database) -> None:
    async with database.transaction() as reader:
        await one_snapshot(reader)
        assert (await reader.execute(select(Host))).first() is None
        async with database.transaction() as writer:
            writer.add(row())
        assert (await reader.execute(select(Host))).first() is None
    async with database.transaction() as session:
        assert (await session.execute(select(Host))).first() is not None


async def test_no_connection_answers_at_all() -> None:
    database = Database("postgresql://nobody:secret@127.0.0.1:1/none")
    started = time.monotonic()
    with pytest.raises(ServiceUnavailable) as caught:
        await one(database)
    assert time.monotonic() - started < 5
    assert "secret" not in caught.value.message + caught.value.log
    await database.dispose()


async def test_wrong_credentials_are_an_outage_for_the_caller_and_named_in_the_log(migrated_url: str) -> None:
    database = Database(migrated_url.replace("postgres@", "nobody@"))
    with pytest.raises(ServiceUnavailable) as caught:
        await one(database)
    assert 'role "nobody" does not exist' in caught.value.log
    assert "nobody" not in caught.value.message
    await database.dispose()


async def test_a_restarted_database_is_served_at_once(private_postgres: Callable[[], PrivateServer]) -> None:
    server = private_postgres()
    database = Database(server.url)
    await asyncio.gather(*(one(database) for _ in range(20)))
    server.kill()
    with pytest.raises(ServiceUnavailable):
        await one(database)
    server.start()
    assert await asyncio.gather(*(one(database) for _ in range(20))) == [1] * 20
    await database.dispose()


async def test_a_server_of_another_role_than_wanted_is_an_outage(migrated_url: str) -> None:
    database = Database(f"{migrated_url}{'&' if '?' in migrated_url else '?'}target_session_attrs=standby")
    with pytest.raises(ServiceUnavailable) as caught:
        await one(database)
    assert "standby" in caught.value.log
    await database.dispose()


async def snapshot(database: Database) -> int:
    async with database.transaction() as session:
        await one_snapshot(session)
        await session.execute(text("SELECT 2"))
        return int((await session.execute(text("SELECT 1"))).scalar_one())


async def write(database: Database) -> int:
    async with database.transaction() as session:
        await session.execute(delete(Host))
        session.add(row())
    return 1


@pytest.mark.parametrize("transact", [one, snapshot, write])
@pytest.mark.parametrize("answers", range(1, 21))
async def test_a_session_that_the_server_ends_is_an_outage_wherever_it_ends(
    migrated_url: str, answers: int, transact: Callable[[Database], Awaitable[int]]
) -> None:
    """asyncpg raises InternalClientError for what is said on a session between the server's last word and its end."""
    async with postgres_link(migrated_url) as link:
        database = Database(link.url)
        try:
            link.end_after = answers
            for _ in range(8):
                with contextlib.suppress(ServiceUnavailable):
                    assert await transact(database) == 1
            assert link.ended == 1
            assert await asyncio.gather(*(one(database) for _ in range(20))) == [1] * 20
        finally:
            await database.dispose()


async def test_a_frozen_database_is_given_up_within_five_seconds(private_postgres: Callable[[], PrivateServer]) -> None:
    server = private_postgres()
    database = Database(server.url)
    await one(database)
    server.pause()
    started = time.monotonic()
    results = await asyncio.gather(*(one(database) for _ in range(25)), return_exceptions=True)
    assert time.monotonic() - started < 5
    assert {type(result) for result in results} == {ServiceUnavailable}
    server.resume()
    assert await one(database) == 1
    await database.dispose()


async def test_tables_may_change_under_load(migrated_copy_url: str) -> None:
    database = Database(migrated_copy_url)
    stop = asyncio.Event()
    rounds = 0

    async def load(number: int) -> None:
        nonlocal rounds
        while not stop.is_set():
            async with database.transaction() as session:
                await session.execute(select(Host).where(Host.identity == f"h{number}"))  # type: ignore[arg-type]
                await session.execute(
                    text(
                        "INSERT INTO host (identity, base_url, seen_at) VALUES (:identity, 'u', now())"
                        " ON CONFLICT (identity) DO UPDATE SET base_url = excluded.base_url"
                    ),
                    {"identity": f"h{number}"},
                )
            rounds += 1

    running = [asyncio.create_task(load(number)) for number in range(4)]

    def alter() -> None:
        with psycopg.connect(migrated_copy_url, autocommit=True) as connection:
            for number in range(5):
                connection.execute(f"ALTER TABLE host ADD COLUMN extra{number} int")
                with connection.transaction():
                    connection.execute("DROP INDEX host_identity_key")
                    connection.execute("CREATE UNIQUE INDEX host_identity_key ON host (identity)")

    await asyncio.to_thread(alter)
    seen = rounds
    while rounds < seen + 20:
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in running)
    stop.set()
    await asyncio.gather(*running)
    await database.dispose()


async def test_nothing_is_left_prepared_on_the_server(database: Database) -> None:
    async with database.transaction() as session:
        await session.execute(select(Host))
        left = await session.execute(text("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''"))
        assert left.scalar_one() == 0

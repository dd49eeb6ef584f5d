"""Migrations: one way up, once; a way down; no difference to the tables; never against a newer schema."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest
from alembic import command
from psycopg.types.json import Jsonb

from controlplane.errors import ServiceUnavailable
from controlplane.store import tables
from migrations import runner

UPGRADE = (
    "import asyncio, logging, sys; from migrations import runner; logging.basicConfig(level=logging.INFO);"
    " asyncio.run(runner.upgrade(sys.argv[1]))"
)
HOLD = (
    "import sys, time, psycopg; c = psycopg.connect(sys.argv[1], autocommit=True);"
    f" c.execute('SELECT pg_advisory_lock({runner.LOCK})'); print('held', flush=True); time.sleep(600)"
)


def upgrade(url: str) -> None:
    asyncio.run(runner.upgrade(url))


def run(url: str, action: Any) -> None:
    asyncio.run(runner.run(url, action))


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()


def schema(url: str) -> list[tuple[Any, ...]]:
    """Every column, index and constraint, as Postgres describes them."""
    return [
        *rows(
            url,
            "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns"
            " WHERE table_schema = 'public' ORDER BY 1, 2",
        ),
        *rows(url, "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"),
        *rows(
            url,
            "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE connamespace = 'public'::regnamespace ORDER BY 1",
        ),
    ]


def test_the_tables_and_the_migrations_agree(database_url: str) -> None:
    upgrade(database_url)
    run(database_url, command.check)


def test_a_second_upgrade_changes_nothing(database_url: str) -> None:
    upgrade(database_url)
    before, epoch = schema(database_url), rows(database_url, "SELECT epoch, generation FROM publication")
    upgrade(database_url)
    assert schema(database_url) == before
    assert rows(database_url, "SELECT epoch, generation FROM publication") == epoch


def test_every_database_has_an_epoch_of_its_own(database_url: str) -> None:
    upgrade(database_url)
    (first,) = rows(database_url, "SELECT epoch FROM publication")
    run(database_url, lambda config: command.downgrade(config, "base"))
    upgrade(database_url)
    assert rows(database_url, "SELECT epoch FROM publication") != [first]


def test_every_migration_goes_down_and_up_again(database_url: str) -> None:
    upgrade(database_url)
    whole = schema(database_url)
    run(database_url, lambda config: command.downgrade(config, "base"))
    assert rows(database_url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == [("alembic_version",)]
    upgrade(database_url)
    assert schema(database_url) == whole


def test_other_peoples_tables_are_left_alone(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE TABLE theirs (id int)")
    upgrade(database_url)
    run(database_url, command.check)
    assert rows(database_url, "SELECT count(*) FROM theirs") == [(0,)]


@pytest.mark.parametrize("strategy", tables.STRATEGIES)
def test_enumerations_hold_the_values_of_the_api(database_url: str, strategy: str) -> None:
    upgrade(database_url)
    numbers = (4096, 8) if strategy == "PREFIX_AWARE" else (None, None)
    insert = (
        "INSERT INTO production_variant (config_id, position, name, model_name, instance_count, weight,"
        " routing_strategy, prefix_length, concurrency_threshold, sent)"
        " VALUES (%s, 0, 'v', 'm', 1, 0.8, %s, %s, %s, %s)"
    )
    with psycopg.connect(database_url) as connection:
        (config,) = (
            connection.execute(
                "INSERT INTO endpoint_config (name, sent, created_at) VALUES ('c', '{}', now()) RETURNING id"
            ).fetchone()
            or ()
        )
        connection.execute(insert, (config, strategy, *numbers, Jsonb({})))
    assert rows(database_url, "SELECT routing_strategy, weight FROM production_variant") == [(strategy, 0.8)]
    with psycopg.connect(database_url) as connection, pytest.raises(psycopg.errors.CheckViolation):
        connection.execute("UPDATE production_variant SET routing_strategy = 'KV'")
    with psycopg.connect(database_url) as connection, pytest.raises(psycopg.errors.CheckViolation):
        connection.execute("UPDATE production_variant SET prefix_length = %s", (None if numbers[0] else 4096,))


@contextmanager
def running(program: str, url: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program in a process of its own, its output and log in one pipe; gone at the end whatever happened."""
    with subprocess.Popen(
        [sys.executable, "-c", program, url], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], word: str) -> None:
    """Read what the process says up to a line with the word. Its end without one fails the test."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if word in line:
            return
    pytest.fail("".join(["the process ended and said: ", *said]))


def test_replicas_that_start_together_migrate_once(database_url: str) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(running(UPGRADE, database_url)) for _ in range(4)]
        assert [process.wait(60) for process in processes] == [0, 0, 0, 0]
    assert rows(database_url, "SELECT count(*) FROM publication") == [(1,)]


@contextmanager
def holding_the_lock(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (runner.LOCK,))
        yield connection


def test_a_migration_waits_for_another_and_a_killed_one_frees_the_way(database_url: str) -> None:
    with running(HOLD, database_url) as holder, running(UPGRADE, database_url) as waiting:
        read_until(holder, "held")
        read_until(waiting, "another process is migrating the database; waiting for it")
        assert rows(database_url, "SELECT to_regclass('endpoint')") == [(None,)]
        holder.kill()
        read_until(waiting, "the database's schema is now at its latest revision")
        assert waiting.wait(30) == 0
    assert rows(database_url, "SELECT count(*) FROM endpoint") == [(0,)]


def test_the_lock_is_given_back_and_not_needed_when_there_is_nothing_to_do(database_url: str) -> None:
    upgrade(database_url)
    assert rows(database_url, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory'") == []
    with holding_the_lock(database_url):
        upgrade(database_url)


def test_a_newer_schema_is_refused_and_left_as_it_is(database_url: str) -> None:
    upgrade(database_url)
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    before = schema(database_url)
    with pytest.raises(runner.SchemaIsNewer, match=r"revision 9999\) is newer than this build"):
        upgrade(database_url)
    assert schema(database_url) == before
    assert rows(database_url, "SELECT version_num FROM alembic_version") == [("9999",)]


def test_a_migration_that_cannot_have_its_lock_fails_and_changes_nothing(database_url: str) -> None:
    upgrade(database_url)
    before = schema(database_url)
    with psycopg.connect(database_url) as blocker:
        blocker.execute("LOCK TABLE endpoint IN ACCESS SHARE MODE")
        with pytest.raises(ServiceUnavailable):
            run(database_url, lambda config: command.downgrade(config, "base"))
    assert schema(database_url) == before


def test_a_database_that_is_away_is_told_apart(database_url: str) -> None:
    with pytest.raises(ServiceUnavailable) as caught:
        upgrade("postgresql://nobody:secret@127.0.0.1:1/none")
    assert "secret" not in caught.value.log
    assert caught.value.log

"""Applies migrations: once however many replicas start together, never to a schema that this build does not know."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from controlplane.store.session import Database, outages

log = logging.getLogger(__name__)

LOCK = 0x7761726D726F7574
"""Key of the advisory lock, "warmrout" in ASCII. Of the session: it is free again as soon as its holder dies.

That needs a connection to Postgres itself: a pooler in transaction mode keeps the session. Without a migration to apply
no lock is taken, so planes may start through such a pooler once ``warmroute migrate`` has run without it.
"""
_POLL_SECONDS = 0.1


class SchemaIsNewer(Exception):
    """The database was migrated by a later build. The message says what to do."""


async def upgrade(url: str) -> None:
    """Bring the database at ``url`` to this build's schema; do nothing if it is there.

    Raises SchemaIsNewer, having changed nothing, and ServiceUnavailable if the database is away.
    """
    async with _connected(url) as connection:
        if await connection.run_sync(_pending):
            async with _locked(connection):
                if await connection.run_sync(_pending):
                    await connection.run_sync(lambda sync: command.upgrade(_config(sync), "head"))
                    log.info("the database's schema is now at its latest revision")


async def run(url: str, action: Callable[[Config], Any]) -> None:
    """Run one of Alembic's commands on the database at ``url``, under the same lock: ``lambda c: command.check(c)``."""
    async with _connected(url) as connection, _locked(connection):
        await connection.run_sync(lambda sync: action(_config(sync)))


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[AsyncConnection]:
    database = Database(url, pool_size=1)
    try:
        with outages():
            async with database.engine.connect() as connection:
                yield connection
    finally:
        await database.dispose()


@asynccontextmanager
async def _locked(connection: AsyncConnection) -> AsyncIterator[None]:
    """Take the lock by trying: a statement that waits would hold a snapshot, which concurrent index builds wait for."""
    waiting = False
    while not await connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": LOCK}):
        await connection.commit()
        if not waiting:
            log.info("another process is migrating the database; waiting for it")
        waiting = True
        await asyncio.sleep(_POLL_SECONDS)
    await connection.commit()
    yield
    if not await connection.scalar(text("SELECT pg_advisory_unlock(:key)"), {"key": LOCK}):
        log.warning("the migration lock was lost: migrate over a direct connection, not through a connection pooler")


def _pending(connection: Connection) -> bool:
    """Tell whether migrations are to be applied. Raises SchemaIsNewer."""
    script = ScriptDirectory.from_config(_config(connection))
    current = set(MigrationContext.configure(connection).get_current_heads())
    connection.rollback()
    unknown = current - {revision.revision for revision in script.walk_revisions()}
    if unknown:
        raise SchemaIsNewer(
            f"the database schema (revision {', '.join(sorted(unknown))}) is newer than this build of warmroute; "
            "start the build that migrated it, or restore a backup from before"
        )
    return current != set(script.get_heads())


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config

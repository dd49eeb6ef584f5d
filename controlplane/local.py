"""The command line's way in: operations straight on the database, with no HTTP and no key between.

Whoever has the database's credentials may do everything anyway; this is how the first key is made.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError

from access.files import sealing_of
from access.sealing import Unsealable
from contract.settings import Settings, require
from controlplane.api.deps import Service, utc_now
from controlplane.errors import ServiceError, ServiceUnavailable
from controlplane.operations.context import Caller
from controlplane.operations.registry import OPERATIONS
from controlplane.shapes.parse import parse
from controlplane.store import audit, sealed
from controlplane.store.notices import notify
from controlplane.store.session import Database, sqlstate

Result = TypeVar("Result")

PRINCIPAL = "command line"
_NO_TABLE = ("42P01", "42703")
_BUDGET_SECONDS = 60.0


class Refused(Exception):
    """What was asked cannot be done; the message is one sentence for the operator."""


def call(settings: Settings, operation: str, **members: Any) -> dict[str, Any]:
    """Run one operation; return its answer as JSON has it. Raises Refused."""

    async def run(database: Database) -> dict[str, Any]:
        entry = OPERATIONS[operation]
        metadata_hosts = settings.allow_metadata_hosts == "on"
        service = Service(database, settings.account_id, settings.region, utc_now, sealing_of(settings), metadata_hosts)
        caller = Caller(principal=PRINCIPAL, source="local", request_id=str(uuid.uuid4()))
        try:
            answer = await service.call(entry, parse(entry.input, members), caller)
        except ServiceUnavailable:
            raise
        except ServiceError as error:
            await service.refused(operation, members, caller, error.code)
            raise
        return answer.to_wire() if answer is not None else {}

    return _on_database(settings, run)


def audit_records(
    settings: Settings, equal: dict[str, str], after: datetime | None, before: datetime | None, limit: int
) -> list[dict[str, str]]:
    """Return the latest records, the newest first. ``equal``: columns and the values they must have. Raises Refused."""

    async def run(database: Database) -> list[dict[str, str]]:
        async with database.transaction(budget_seconds=_BUDGET_SECONDS) as session:
            rows = await audit.latest(session, equal=equal, after=after, before=before, limit=limit)
        names = ("principal", "tenant", "source", "operation", "resource", "outcome", "request_id")
        return [{"at": row.at.isoformat(), **{name: getattr(row, name) for name in names}} for row in rows]

    return _on_database(settings, run)


def reseal(settings: Settings) -> int:
    """Seal every secret anew under the first secret key, so that the others can go; return how many. Raises Refused."""
    sealing = sealing_of(settings)
    if sealing is None:
        raise Refused("there is no key to seal with: set WARMROUTE_SECRET_KEY or WARMROUTE_SECRET_KEY_FILE")

    async def run(database: Database) -> int:
        async with database.transaction(budget_seconds=_BUDGET_SECONDS) as session:
            count = await sealed.renew(session, sealing.renew)
            await notify(session)
            return count

    try:
        return _on_database(settings, run)
    except Unsealable:
        raise Refused("a secret does not open under any of the given keys; nothing was changed") from None


def _on_database(settings: Settings, action: Callable[[Database], Awaitable[Result]]) -> Result:
    async def run() -> Result:
        database = Database(require(settings, "DATABASE_URL"), pool_size=1)
        try:
            return await action(database)
        finally:
            await database.dispose()

    try:
        return asyncio.run(run())
    except ServiceUnavailable as error:
        raise Refused(f"WARMROUTE_DATABASE_URL: {error.log or error.message}") from None
    except ServiceError as error:
        raise Refused(error.message) from None
    except DBAPIError as error:
        if sqlstate(error) in _NO_TABLE:
            raise Refused("the database has not the tables of this version; run `warmroute migrate`") from None
        raise

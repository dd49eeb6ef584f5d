"""What the doors need of the rest of the plane, and the one place where a transaction of a request begins and ends."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from sqlalchemy.ext.asyncio import AsyncSession

from controlplane.operations.context import Context
from controlplane.shapes.base import Shape


class Database(Protocol):
    def transaction(self) -> AbstractAsyncContextManager[AsyncSession]:
        """Commit when the block ends, roll back when it raises. Raises ServiceUnavailable when the database is away."""


class Operation(Protocol):
    """One operation of the API, as the registry holds it."""

    @property
    def name(self) -> str: ...
    @property
    def input(self) -> type[Shape]: ...
    @property
    def output(self) -> type[Shape] | None: ...
    @property
    def run(self) -> Callable[[Context, Any], Awaitable[Shape | None]]: ...


@dataclass(frozen=True)
class Service:
    """Everything that one call of an operation takes besides the request."""

    database: Database
    account_id: str
    region: str
    now: Callable[[], datetime]

    async def call(self, operation: Operation, request: Shape) -> Shape | None:
        """Run one operation in one transaction. It is committed when this returns, so before any byte of the answer."""
        async with self.database.transaction() as session:
            context = Context(session, self.account_id, self.region, _whole_milliseconds(self.now()))
            return await operation.run(context, request)


def utc_now() -> datetime:
    return datetime.now(UTC)


def _whole_milliseconds(moment: datetime) -> datetime:
    """AWS reports milliseconds. Kept finer, an item would fall out of a filter by the time that its Describe shows."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)

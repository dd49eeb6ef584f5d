"""What the doors need of the rest of the plane, and the one place where a transaction of a request begins and ends."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from sqlalchemy.ext.asyncio import AsyncSession

from access import refusals
from access.sealing import Sealing
from contract.principals import Principal
from controlplane import arn as arns
from controlplane.errors import AccessDeniedException, ServiceError
from controlplane.operations import audit, keys
from controlplane.operations.context import NOBODY, Caller, Context, Trail
from controlplane.shapes.base import Shape

log = logging.getLogger(__name__)


class Database(Protocol):
    def transaction(self) -> AbstractAsyncContextManager[AsyncSession]:
        """Commit when the block ends, roll back when it raises. Raises ServiceUnavailable when the database is away."""


class Record(Protocol):
    """controlplane.operations.audit.record."""

    def __call__(
        self,
        session: AsyncSession,
        at: datetime,
        caller: Caller,
        operation: str,
        outcome: str,
        members: Mapping[str, Any],
        trail: Trail | None = None,
    ) -> None: ...


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
    vault: Sealing | None = None
    metadata_hosts: bool = False
    record: Record | None = audit.record
    """Writes the audit; None: there is none."""

    async def call(self, operation: Operation, request: Shape, caller: Caller = NOBODY) -> Shape | None:
        """Run one operation in one transaction. It is committed when this returns, so before any byte of the answer.

        The audit of a success is in the same transaction: there is no change without it.
        """
        now, trail = _whole_milliseconds(self.now()), Trail()
        async with self.database.transaction() as session:
            context = Context(
                session, self.account_id, self.region, now, caller, self.vault, self.metadata_hosts, trail
            )
            answer = await operation.run(context, request)
            if self.record is not None and audit.is_change(operation.name):
                self.record(session, now, caller, operation.name, audit.OK, request.to_wire(), trail)
            return answer

    async def principal(self, key_id: str) -> Principal | None:
        """Return the principal of a key that is good now."""
        async with self.database.transaction() as session:
            return await keys.principal(session, key_id, self.now())

    def arn(self, endpoint: str) -> str:
        return arns.arn("endpoint", endpoint, self.region, self.account_id)

    def forbidden(self, principal: str, operation: str, resource: str) -> AccessDeniedException:
        return AccessDeniedException(refusals.forbidden(principal, operation, resource).message)

    async def refused(self, operation: str, members: Mapping[str, Any], caller: Caller, code: str) -> None:
        """Write the audit of a change that was refused; what was refused is undone, so in a transaction of its own."""
        if self.record is None or not audit.is_change(operation):
            return
        try:
            async with self.database.transaction() as session:
                self.record(session, _whole_milliseconds(self.now()), caller, operation, code, members)
        except ServiceError as error:
            log.warning("request %s: %s is not in the audit: %s", caller.request_id, code, error.log or error.message)


def utc_now() -> datetime:
    return datetime.now(UTC)


def _whole_milliseconds(moment: datetime) -> datetime:
    """AWS reports milliseconds. Kept finer, an item would fall out of a filter by the time that its Describe shows."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)

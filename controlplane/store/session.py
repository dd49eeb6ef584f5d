"""Connections and transactions: one request or one task run is one transaction, committed when its block ends.

Statements are prepared unnamed and never cached, so that a table altered under load and a pooler in transaction mode
do no harm. A database that is away or does not answer becomes ServiceUnavailable within the transaction's budget.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy import event, exc
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from controlplane.errors import ServiceError, ServiceUnavailable, ValidationException

BUDGET_SECONDS = 3.5
"""For one transaction of a request: a client of a database that is away has its 503 within 5 s."""

_CONNECT_SECONDS = 2.5
_CLOSE_SECONDS = 0.25
_POOL_SIZE = 10

# Classes and codes of SQLSTATE (PostgreSQL manual, appendix A) that the caller can do nothing about but try again:
# connection lost, login refused, no such database, transaction rolled back, resources short, operator intervened, lock
# not had in time, server is read-only (a fail-over).
_OUTAGES = ("08", "28", "3D", "40", "53", "57", "55P03", "25006")
_NUL = ("22021", "22P05")


class _Connection(asyncpg.Connection):  # type: ignore[misc]
    """Closing in good order waits for the server, which may be what does not answer."""

    async def close(self, *, timeout: float | None = None) -> None:
        await super().close(timeout=min(timeout or _CLOSE_SECONDS, _CLOSE_SECONDS))


class Database:
    """The pool of connections to one Postgres. ``url`` is plain ``postgresql://``, also with ``?host=/socket/dir``."""

    def __init__(self, url: str, *, pool_size: int = _POOL_SIZE) -> None:
        self.url = url
        self._connect = connector(url)
        self.engine: AsyncEngine = create_async_engine(
            "postgresql+asyncpg://",
            connect_args={
                "async_creator_fn": self._connect,
                "prepared_statement_cache_size": 0,
                "prepared_statement_name_func": lambda: "",
            },
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_timeout=_CONNECT_SECONDS,
            pool_pre_ping=True,
            # Bound values hold the environment of models; a traceback in the log must not.
            hide_parameters=True,
        )
        event.listen(self.engine.sync_engine, "handle_error", _give_up_connection)

    @asynccontextmanager
    async def transaction(self, *, budget_seconds: float = BUDGET_SECONDS) -> AsyncIterator[AsyncSession]:
        """Open a transaction; commit at the end of the block, roll back when it raises.

        Raises ServiceUnavailable when the database is away, does not answer within the budget, or gave up the
        transaction for another's sake.
        """
        with outages():
            async with (
                asyncio.timeout(budget_seconds),
                AsyncSession(self.engine, expire_on_commit=False) as session,
                session.begin(),
            ):
                yield session

    async def listen(self) -> "asyncpg.Connection[Any]":
        """Return a connection of its own, outside the pool, for LISTEN. The caller closes it."""
        return await self._connect()

    async def dispose(self) -> None:
        await self.engine.dispose()


async def one_snapshot(session: AsyncSession) -> None:
    """Let all reads of this transaction see the same moment. Must come before its first statement."""
    await session.connection(execution_options={"isolation_level": "REPEATABLE READ"})


def connector(url: str) -> Callable[..., Any]:
    """Return an async function that opens one asyncpg connection to ``url``."""

    async def connect(**_: Any) -> "asyncpg.Connection[Any]":
        return await asyncpg.connect(
            dsn=url, timeout=_CONNECT_SECONDS, statement_cache_size=0, connection_class=_Connection
        )

    return connect


def _give_up_connection(context: ExceptionContext) -> None:
    """Let a connection whose protocol is out of step count as lost.

    So it is between a server's last word and the end of its stream: asyncpg refuses each statement there with
    InternalClientError, which SQLAlchemy takes for a fault of the statement, on a connection that it keeps.
    """
    fault = context.original_exception
    if isinstance(fault.__cause__, asyncpg.InternalClientError):
        context.is_disconnect = True


@contextmanager
def outages() -> Iterator[None]:
    """Turn what a driver raises for a database that is away or overloaded into ServiceUnavailable."""
    try:
        yield
    except ServiceError:
        raise
    except exc.DBAPIError as error:
        translated = _translate(error)
        if translated is None:
            raise
        raise translated from error
    except (exc.TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        # TimeoutError and refused connections are OSErrors; asyncpg's own come from connecting.
        raise _unavailable(error) from error


def _translate(error: exc.DBAPIError) -> ServiceError | None:
    state = sqlstate(error)
    if state in _NUL:
        return ValidationException("Text must not contain the NUL character.")
    if error.connection_invalidated or isinstance(error, exc.OperationalError | exc.InterfaceError):
        return _unavailable(error)
    if state.startswith(_OUTAGES):
        return _unavailable(error)
    return None


def sqlstate(error: BaseException | None) -> str:
    """Return the five-character code that Postgres gave for an error, or an empty string."""
    return str(getattr(error.orig if isinstance(error, exc.DBAPIError) else error, "sqlstate", None) or "")


def _unavailable(error: Exception) -> ServiceUnavailable:
    detail = str(getattr(error, "orig", None) or error)
    if isinstance(error, TimeoutError):
        detail = "no answer in time"
    if isinstance(error, exc.InternalError) and error.connection_invalidated:
        detail = f"the connection is of no use any more ({detail})"
    return ServiceUnavailable(
        "The service's database cannot be reached just now. Try again.",
        log=f"database unavailable: {detail or type(error).__name__}",
    )

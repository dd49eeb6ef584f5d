"""What models, endpoint configurations and endpoints share: one name whatever its case, and lists with filters."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, collate, func, tuple_
from sqlalchemy import select as sql_select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from controlplane.store.tables import Endpoint, EndpointConfig, Model

Named = TypeVar("Named", Model, EndpointConfig, Endpoint)


class NameTaken(Exception):
    """Another row has the name already, committed before this one could be."""


async def find(
    session: AsyncSession, table: type[Named], name: str, *, tenant: str = "", lock: bool = False
) -> Named | None:
    """Return the row of that name; with ``lock``, wait until no other transaction holds it, and hold it.

    With ``tenant``, a row of another tenant's is not there.
    """
    query = sql_select(table).where(func.lower(col(table.name)) == name.lower())
    if tenant:
        query = query.where(of_tenant(table, tenant))
    if lock:
        query = query.with_for_update()
    return (await session.execute(query)).scalar_one_or_none()


async def insert(session: AsyncSession, row: Model | EndpointConfig | Endpoint) -> None:
    """Raises NameTaken. The transaction is of no use afterwards."""
    session.add(row)
    try:
        await session.flush()
    except IntegrityError as error:
        if constraint_of(error) == f"{row.__tablename__}_name_key":
            raise NameTaken from None
        raise


def constraint_of(error: IntegrityError) -> str | None:
    """Return the name of the constraint that was violated."""
    name = getattr(error.orig and error.orig.__cause__, "constraint_name", None)
    return str(name) if name else None


async def page(
    session: AsyncSession,
    table: type[Named],
    *,
    where: Sequence[ColumnElement[bool]],
    sort_by: str,
    descending: bool,
    after: tuple[str | datetime, str] | None,
    limit: int,
) -> list[Named]:
    """Return at most ``limit`` rows that follow ``after`` (sort value, lower-case name) in the order asked for.

    ``sort_by`` is Name, CreationTime or Status; ties are broken by name, so the order is total and pages stay whole
    while rows come and go.
    """
    columns = [*_sort_columns(table, sort_by), _key(table)]
    query: Select[Any] = sql_select(table).where(*where).limit(limit)
    query = query.order_by(*(column.desc() if descending else column.asc() for column in columns))
    if after is not None:
        values = after if len(columns) == 2 else after[1:]
        place, last = tuple_(*columns), tuple_(*values)
        query = query.where(place < last if descending else place > last)
    return list((await session.execute(query)).scalars())


def place(row: Model | EndpointConfig | Endpoint, sort_by: str) -> tuple[str | datetime, str]:
    """Return the row's place in the order of ``page``, to give as ``after``."""
    name = row.name.lower()
    match sort_by:
        case "Name":
            return name, name
        case "Status":
            return getattr(row, "status", ""), name
        case _:
            return row.created_at, name


def name_contains(table: type[Named], text: str) -> ColumnElement[bool]:
    return func.strpos(col(table.name), text) > 0


def of_tenant(table: type[Named], tenant: str) -> ColumnElement[bool]:
    return col(table.tenant) == tenant


def name_matches(table: type[Named], patterns: Sequence[str]) -> ColumnElement[bool]:
    """Whether the name matches one of the patterns, of letters, digits, hyphens, ``*`` and ``?``."""
    choices = "|".join(pattern.replace("*", ".*").replace("?", ".") for pattern in patterns)
    return col(table.name).regexp_match(f"^({choices})$")


def _key(table: type[Named]) -> ColumnElement[str]:
    return collate(func.lower(col(table.name)), "C")


def _sort_columns(table: type[Any], sort_by: str) -> list[Any]:
    if sort_by == "Name":
        return []
    if sort_by == "Status":
        return [collate(col(table.status), "C")]
    return [col(table.created_at)]

"""Names that race for their place, and pages that stay whole."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from controlplane.store import named
from controlplane.store.session import Database
from controlplane.store.tables import EndpointConfig, Model

START = datetime(2026, 1, 1, tzinfo=UTC)


def config(name: str, created_at: datetime = START) -> EndpointConfig:
    return EndpointConfig(name=name, sent={}, created_at=created_at)


async def add(database: Database, *rows: EndpointConfig) -> None:
    async with database.transaction() as session:
        for row in rows:
            await named.insert(session, row)


async def names(database: Database, after: tuple[str | datetime, str] | None = None, **order: object) -> list[str]:
    wanted = {"sort_by": "Name", "descending": False, "limit": 100} | order
    async with database.transaction() as session:
        rows = await named.page(session, EndpointConfig, where=[], after=after, **wanted)  # type: ignore[arg-type]
    return [row.name for row in rows]


async def test_one_of_many_who_want_a_name_gets_it(database: Database) -> None:
    replicas = [database, Database(str(database.url))]
    for number in range(10):
        tries = (add(replicas[index % 2], config(f"Name{number}")) for index in range(16))
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["NameTaken"] * 15 + ["NoneType"]
    assert len(await names(database)) == 10
    await replicas[1].dispose()


async def test_a_name_is_one_whatever_its_case(database: Database) -> None:
    await add(database, config("Name"))
    with pytest.raises(named.NameTaken):
        await add(database, config("nAME"))
    async with database.transaction() as session:
        found = await named.find(session, EndpointConfig, "NAME")
        assert found is not None
        assert found.name == "Name"
        assert await named.find(session, Model, "Name") is None


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort_by", ["Name", "CreationTime"])
async def test_every_row_is_on_one_page_in_order(database: Database, sort_by: str, descending: bool) -> None:
    # Three of each moment, so that ties cross the pages; upper case sorts with lower case.
    rows = [config(f"{'aBc'[number % 3]}{number:02}", START + timedelta(seconds=number // 3)) for number in range(25)]
    await add(database, *rows)
    key = (lambda row: row.name.lower()) if sort_by == "Name" else (lambda row: (row.created_at, row.name.lower()))
    wanted = [row.name for row in sorted(rows, key=key, reverse=descending)]
    by_name = {row.name: row for row in rows}
    found: list[str] = []
    after = None
    while page := await names(database, after, sort_by=sort_by, descending=descending, limit=4):
        found += page
        after = named.place(by_name[page[-1]], sort_by)
    assert found == wanted


async def test_what_comes_and_goes_between_pages_moves_nothing_else(database: Database) -> None:
    rows = [config(f"c{number:02}") for number in range(25)]
    await add(database, *rows)
    first = await names(database, sort_by="CreationTime", descending=True, limit=10)
    async with database.transaction() as session:
        seen = await named.find(session, EndpointConfig, first[3])
        await session.delete(seen)
    await add(database, config("new", START + timedelta(seconds=1)))
    last = next(row for row in rows if row.name == first[-1])
    rest = await names(database, named.place(last, "CreationTime"), sort_by="CreationTime", descending=True)
    assert sorted(first + rest) == [row.name for row in rows]

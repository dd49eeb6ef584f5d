"""Every column that holds sealed secrets, for when they are sealed anew."""

from collections.abc import Callable

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from controlplane.store.tables import AccessKey, EndpointVariant, Model


async def renew(session: AsyncSession, again: Callable[[bytes], bytes]) -> int:
    """Replace each sealed secret by what ``again`` makes of it; return how many there were."""
    count = 0
    keys = select(AccessKey).where(col(AccessKey.kind) == "access-key").with_for_update()
    for key in (await session.execute(keys)).scalars():
        key.secret = again(key.secret)
        count += 1
    holders: tuple[type[Model] | type[EndpointVariant], ...] = (Model, EndpointVariant)
    for table in holders:
        query = select(table).where(col(table.host_authorization).is_not(None)).with_for_update()
        for row in (await session.execute(query)).scalars():
            assert row.host_authorization is not None
            row.host_authorization = again(row.host_authorization)
            count += 1
    return count

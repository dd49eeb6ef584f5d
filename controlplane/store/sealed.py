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
    held = col(Model.host_authorization).is_not(None)
    for model in (await session.execute(select(Model).where(held).with_for_update())).scalars():
        model.host_authorization = again(model.host_authorization or b"")
        count += 1
    held = col(EndpointVariant.host_authorization).is_not(None)
    for variant in (await session.execute(select(EndpointVariant).where(held).with_for_update())).scalars():
        variant.host_authorization = again(variant.host_authorization or b"")
        count += 1
    return count

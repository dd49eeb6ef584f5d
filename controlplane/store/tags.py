"""Tags of models, endpoint configurations and endpoints."""

from collections.abc import Iterable, Mapping

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from controlplane.store.tables import Endpoint, EndpointConfig, Model, Tag


def resource_of(row: Model | EndpointConfig | Endpoint) -> str:
    return f"{row.__tablename__}:{row.id}"


async def put(session: AsyncSession, resource: str, tags: Mapping[str, str]) -> None:
    """Set these tags, overwriting the values of keys that are there. The caller holds the resource's row."""
    if tags:
        query = insert(Tag).values([{"resource": resource, "key": key, "value": tags[key]} for key in sorted(tags)])
        query = query.on_conflict_do_update(index_elements=["resource", "key"], set_={"value": query.excluded.value})
        await session.execute(query)


async def get(session: AsyncSession, resource: str) -> dict[str, str]:
    """Return the tags by key, in the order of their keys."""
    query = select(Tag).where(col(Tag.resource) == resource)
    tags = (await session.execute(query)).scalars()
    return {tag.key: tag.value for tag in sorted(tags, key=lambda tag: tag.key)}


async def remove(session: AsyncSession, resource: str, keys: Iterable[str] | None = None) -> None:
    """Take away tags with these keys, or all of them."""
    query = delete(Tag).where(col(Tag.resource) == resource)
    if keys is not None:
        query = query.where(col(Tag.key).in_(list(keys)))
    await session.execute(query)

"""AddTags, ListTags, DeleteTags, on models, endpoint configurations and endpoints."""

from typing import Any

from controlplane.arn import Kind, parse_arn
from controlplane.errors import ResourceLimitExceeded, not_found_resource
from controlplane.operations.context import Context
from controlplane.shapes import paging
from controlplane.shapes.common import Tag
from controlplane.shapes.paging import Position
from controlplane.shapes.tags import (
    TAGS_MAX,
    AddTagsInput,
    AddTagsOutput,
    DeleteTagsInput,
    DeleteTagsOutput,
    ListTagsInput,
    ListTagsOutput,
)
from controlplane.store import named, tags
from controlplane.store.tables import Endpoint, EndpointConfig, Model

_TABLES: dict[Kind, type[Any]] = {"model": Model, "endpoint-config": EndpointConfig, "endpoint": Endpoint}


async def add_tags(context: Context, request: AddTagsInput) -> AddTagsOutput:
    """Set tags, overwriting those of the same keys. Raises ResourceLimitExceeded beyond 50 tags, and sets none then."""
    resource = await _resource(context, request.ResourceArn, lock=True)
    new = {tag.Key: tag.Value for tag in request.Tags}
    after = {**await tags.get(context.session, resource), **new}
    if len(after) > TAGS_MAX:
        raise ResourceLimitExceeded(
            f"A resource has at most {TAGS_MAX} tags; {request.ResourceArn} would have {len(after)}. Delete some first."
        )
    await tags.put(context.session, resource, new)
    return AddTagsOutput(Tags=_shapes(after))


async def list_tags(context: Context, request: ListTagsInput) -> ListTagsOutput:
    resource = await _resource(context, request.ResourceArn, lock=False)
    after = paging.position(request, request.NextToken)
    found = await tags.get(context.session, resource)
    rest = {key: value for key, value in found.items() if after is None or key > after.name}
    page = dict(list(rest.items())[: request.MaxResults])
    token = None
    if len(page) < len(rest):
        last = max(page)
        token = paging.next_token(request, Position(last, last))
    return ListTagsOutput(Tags=_shapes(page), NextToken=token)


async def delete_tags(context: Context, request: DeleteTagsInput) -> DeleteTagsOutput:
    """Take tags away; keys that are not there are no error."""
    resource = await _resource(context, request.ResourceArn, lock=True)
    await tags.remove(context.session, resource, request.TagKeys)
    return DeleteTagsOutput()


def _shapes(found: dict[str, str]) -> tuple[Tag, ...]:
    return tuple(Tag(Key=key, Value=value) for key, value in sorted(found.items()))


async def _resource(context: Context, text: str, *, lock: bool) -> str:
    """Return what names the tagged row; ``lock`` holds it, so that the count of its tags stays true."""
    arn = parse_arn(text)
    if arn is None or (arn.region, arn.account_id) != (context.region, context.account_id):
        raise not_found_resource(text)
    row = await named.find(context.session, _TABLES[arn.kind], arn.name, tenant=context.caller.tenant, lock=lock)
    if row is None:
        raise not_found_resource(text)
    return tags.resource_of(row)

"""AddTags, ListTags, DeleteTags."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from controlplane.shapes import types as t
from controlplane.shapes.base import Failure, Items, Shape
from controlplane.shapes.common import TagList, repeated

TAGS_MAX = 50
"""Tags of one resource, old and new together."""


class AddTagsInput(Shape):
    ResourceArn: t.ResourceArn
    Tags: TagList

    @classmethod
    def rules(cls, sent: Mapping[str, Any]) -> Iterator[Failure]:
        yield from repeated("Tags", "Key", sent.get("Tags"))


class AddTagsOutput(Shape):
    Tags: TagList | None = None


class ListTagsInput(Shape):
    ResourceArn: t.ResourceArn
    NextToken: t.NextToken | None = None
    MaxResults: t.ListTagsMaxResults = TAGS_MAX


class ListTagsOutput(Shape):
    Tags: TagList | None = None
    NextToken: t.NextToken | None = None


class DeleteTagsInput(Shape):
    ResourceArn: t.ResourceArn
    TagKeys: Annotated[tuple[t.TagKey, ...], Items(1, 50)]


class DeleteTagsOutput(Shape): ...

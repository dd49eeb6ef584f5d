"""Structures that several families share."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from controlplane.shapes import types as t
from controlplane.shapes.base import Failure, Items, Shape, StoredOnly

PUBLISH_FREQUENCIES = (10, 30, 60, 120, 180, 240, 300)
"""Valid values of MetricPublishFrequencyInSeconds, from the text of botocore's service model."""
NO_CONTAINERS = StoredOnly("the model host is run by you; warmroute starts no container and no instance")
OWN_METRICS = StoredOnly("metrics are always served at /metrics; nothing is published to CloudWatch")


class Tag(Shape):
    Key: t.TagKey
    Value: t.TagValue

    @classmethod
    def rules(cls, sent: Mapping[str, Any]) -> Iterator[Failure]:
        key = sent.get("Key")
        if isinstance(key, str) and key.lower().startswith("aws:"):
            yield Failure(("Key",), "Member must not start with aws:, which is reserved", key)


TagList = Annotated[tuple[Tag, ...], Items(0, 50)]


def repeated(member: str, inner: str, items: object) -> Iterator[Failure]:
    """Yield a failure for each item of the list ``member`` whose ``inner`` member was there before."""
    if not isinstance(items, list):
        return
    values = [item.get(inner) if isinstance(item, Mapping) else None for item in items]
    seen: Counter[str] = Counter()
    for index, value in enumerate(values):
        if isinstance(value, str):
            seen[value] += 1
            if seen[value] > 1:
                yield Failure((member, index, inner), "Member must be unique within the list", value)


class VpcConfigShape(Shape):
    SecurityGroupIds: Annotated[tuple[t.SecurityGroupId, ...], Items(1, 5)]
    Subnets: Annotated[tuple[t.SubnetId, ...], Items(1, 16)]


class MetricsConfigShape(Shape):
    EnableEnhancedMetrics: bool | None = None
    EnableDetailedObservability: bool | None = None
    MetricPublishFrequencyInSeconds: t.MetricPublishFrequencyInSeconds | None = None

    @classmethod
    def rules(cls, sent: Mapping[str, Any]) -> Iterator[Failure]:
        yield from publish_frequency(sent)


def publish_frequency(sent: Mapping[str, Any]) -> Iterator[Failure]:
    """The service model leaves MetricPublishFrequencyInSeconds unbounded; its text lists the valid values."""
    seconds = sent.get("MetricPublishFrequencyInSeconds")
    if type(seconds) is int and seconds not in PUBLISH_FREQUENCIES:
        allowed = ", ".join(map(str, PUBLISH_FREQUENCIES))
        yield Failure(("MetricPublishFrequencyInSeconds",), f"Member must satisfy enum value set: [{allowed}]", seconds)


class CrossRegionTrafficConfigShape(Shape):
    MaxInvocationsPerSecondPerInstance: t.CrossRegionMaxInvocationsPerSecondPerInstance
    MaxCrossRegionPercentPerEndpoint: t.CrossRegionPercentPerEndpoint


class ListInput(Shape):
    """What every List operation of a named resource takes."""

    SortBy: t.SortKey = "CreationTime"
    SortOrder: t.OrderKey = "Descending"
    NextToken: t.NextToken | None = None
    MaxResults: t.MaxResults = 10
    NameContains: t.NameContains | None = None
    CreationTimeBefore: t.Timestamp | None = None
    CreationTimeAfter: t.Timestamp | None = None

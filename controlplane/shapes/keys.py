"""CreateAccessKey, ListAccessKeys, UpdateAccessKey, RotateAccessKey, DeleteAccessKey: operations of our own."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from controlplane.shapes import types as t
from controlplane.shapes.base import Failure, Items, Shape

Patterns = Annotated[tuple[t.EndpointPattern, ...], Items(0, 50)]


class CreateAccessKeyInput(Shape):
    Role: t.KeyRole
    Kind: t.KeyKind = "access-key"
    """access-key: an id and a secret for SigV4. api-key: one ``sk-`` text, for OpenAI clients and scrapers."""
    Tenant: t.Tenant | None = None
    """Default: the caller's own. Absent for the installation itself, whose keys see every tenant."""
    Endpoints: Patterns = ()
    Description: t.KeyDescription | None = None
    RequestsPerSecond: t.RequestsPerSecond | None = None
    ConcurrentRequests: t.ConcurrentRequests | None = None

    @classmethod
    def rules(cls, sent: Mapping[str, Any]) -> Iterator[Failure]:
        rate = sent.get("RequestsPerSecond")
        if rate == 0 and not isinstance(rate, bool):
            yield Failure(("RequestsPerSecond",), "Member must have value greater than 0", rate)


class AccessKeySummary(Shape):
    AccessKeyId: t.AccessKeyId
    Kind: t.KeyKind
    Role: t.KeyRole
    Tenant: t.Tenant | None = None
    Endpoints: Patterns
    Enabled: bool
    Description: t.KeyDescription | None = None
    RequestsPerSecond: t.RequestsPerSecond | None = None
    ConcurrentRequests: t.ConcurrentRequests | None = None
    CreationTime: t.Timestamp
    ExpiresAt: t.Timestamp | None = None
    """Set once the key was rotated."""


class CreateAccessKeyOutput(AccessKeySummary):
    """The only answer that ever holds the secret: SecretAccessKey of an access-key, ApiKey of an api-key."""

    SecretAccessKey: t.String | None = None
    ApiKey: t.String | None = None


class ListAccessKeysInput(Shape):
    Tenant: t.Tenant | None = None
    """Only this tenant's keys."""
    NextToken: t.NextToken | None = None
    MaxResults: t.MaxResults = 100


class ListAccessKeysOutput(Shape):
    AccessKeys: Annotated[tuple[AccessKeySummary, ...], Items()]
    NextToken: t.NextToken | None = None


class UpdateAccessKeyInput(Shape):
    AccessKeyId: t.AccessKeyId
    Enabled: bool


class UpdateAccessKeyOutput(AccessKeySummary): ...


class RotateAccessKeyInput(Shape):
    AccessKeyId: t.AccessKeyId
    GraceSeconds: t.GraceSeconds = 86400
    """For so long the old key is valid beside the new one; 0: not a moment."""


class RotateAccessKeyOutput(CreateAccessKeyOutput):
    PreviousAccessKeyId: t.AccessKeyId
    PreviousExpiresAt: t.Timestamp


class DeleteAccessKeyInput(Shape):
    AccessKeyId: t.AccessKeyId

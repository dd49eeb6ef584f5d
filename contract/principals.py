"""Who may call: the principals that the control plane publishes and both planes check callers against.

Immutable; part of the routing table. What a role allows is access.permissions, how a secret is sealed access.sealing.
"""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

TENANT_ALL = ""
"""Tenant of the installation itself: it sees every tenant's things."""


class Role(StrEnum):
    """What a principal is for."""

    ADMIN = "admin"
    OPERATOR = "operator"
    READER = "reader"
    INVOKE = "invoke"


class Kind(StrEnum):
    """How a principal proves who it is."""

    ACCESS_KEY = "access-key"
    """Signs with Signature Version 4, or with a bearer token made from it."""
    API_KEY = "api-key"
    """Carries its key itself, as OpenAI's clients do."""


class Principal(Struct, frozen=True):
    """One key and what it may do."""

    id: str
    """Access key id, or the public part of an API key; goes into logs."""
    kind: Kind
    role: Role
    secret: bytes
    """Of an access key its secret, sealed: verifying a signature takes the secret itself, so a hash would not do. Of an
    API key the SHA-256 of the whole key: it has 240 bits of randomness, which no guessing reaches, so a slow hash would
    cost every request and protect nothing."""
    tenant: str = TENANT_ALL
    endpoints: tuple[str, ...] = ()
    """Patterns of endpoint names (``*``, ``?``); empty: all of the tenant's."""
    enabled: bool = True
    requests_per_second: Annotated[float, Meta(gt=0)] | None = None
    """Over the whole fleet; None: no limit. So below."""
    concurrent_requests: Annotated[int, Meta(ge=1)] | None = None

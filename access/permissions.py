"""What each role may do, and whose things it may do it to: one table, one question."""

from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache

from contract.principals import TENANT_ALL, Principal, Role

NAME_CHARACTERS_MAX = 63
"""Of endpoints; what is longer names none, and is not remembered."""


class Area(StrEnum):
    """A kind of operation."""

    READ = "read"
    WRITE = "write"
    HOSTS = "hosts"
    KEYS = "keys"
    INVOKE = "invoke"
    METRICS = "metrics"


ROLES: dict[Role, frozenset[Area]] = {
    # It can make itself an invoke key, so to refuse it would be a detour and no protection.
    Role.ADMIN: frozenset(Area),
    Role.OPERATOR: frozenset((Area.READ, Area.WRITE, Area.METRICS)),
    Role.READER: frozenset((Area.READ, Area.METRICS)),
    Role.INVOKE: frozenset((Area.INVOKE,)),
}

OPERATIONS: dict[str, Area] = {
    **dict.fromkeys(
        ("DescribeModel", "ListModels", "DescribeEndpointConfig", "ListEndpointConfigs", "DescribeEndpoint",
         "ListEndpoints", "ListModelHosts", "ListTags"),
        Area.READ,
    ),
    **dict.fromkeys(
        ("CreateModel", "DeleteModel", "CreateEndpointConfig", "DeleteEndpointConfig", "CreateEndpoint",
         "UpdateEndpoint", "UpdateEndpointWeightsAndCapacities", "DeleteEndpoint", "AddTags", "DeleteTags"),
        Area.WRITE,
    ),
    **dict.fromkeys(("RegisterModelHost", "DeregisterModelHost"), Area.HOSTS),
    **dict.fromkeys(
        ("CreateAccessKey", "ListAccessKeys", "UpdateAccessKey", "RotateAccessKey", "DeleteAccessKey",
         "ListAuditRecords"),
        Area.KEYS,
    ),
    **dict.fromkeys(("InvokeEndpoint", "InvokeEndpointWithResponseStream", "CallWithBearerToken"), Area.INVOKE),
    "ReadMetrics": Area.METRICS,
}  # fmt: skip
"""AWS's names, and ours for what AWS has not. One that is not here is an administrator's alone."""


def may(principal: Principal, operation: str, endpoint: str | None = None, owner: str | None = None) -> bool:
    """Return whether the principal may do this.

    ``endpoint``: the name of the endpoint that it concerns, None when it concerns none; ``owner``: the tenant of the
    thing that is there, None when there is none yet.
    """
    area = OPERATIONS.get(operation, Area.KEYS)
    if not principal.enabled or area not in ROLES[principal.role]:
        return False
    if area is Area.METRICS:
        # One document for all endpoints: whoever may not see all of them cannot be shown it.
        return principal.tenant == TENANT_ALL and not principal.endpoints
    if owner is not None and not sees(principal, owner):
        return False
    return endpoint is None or matches(principal, endpoint)


def sees(principal: Principal, owner: str) -> bool:
    """Return whether things of this tenant are there for the principal."""
    return principal.tenant in (TENANT_ALL, owner)


def matches(principal: Principal, endpoint: str) -> bool:
    """Return whether the endpoint's name is one of those the principal is limited to."""
    if not principal.endpoints:
        return True
    return len(endpoint) <= NAME_CHARACTERS_MAX and _matches(principal.endpoints, endpoint)


@lru_cache(maxsize=4096)
def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)

"""What the audit says of a call: who, from where, what to which resource, and how it ended.

Calls that read are not in it; nor is a call that left everything as it was, such as a host renewing its registration
every few seconds. Values of members other than names are not in it either: they may be secrets.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from controlplane.operations.context import Caller, Trail
from controlplane.store import audit
from controlplane.store.tables import AuditRecord

OK = "OK"
_READS = ("Describe", "List")
_NAMES = ("EndpointName", "EndpointConfigName", "HostName", "ModelName", "AccessKeyId", "ResourceArn")
"""Members that name the resource, the most particular first: UpdateEndpoint names a configuration, too."""
_PLAIN = re.compile(r"[a-zA-Z0-9._~%+:/\[\]-]{1,1024}", re.ASCII)
"""What names and URLs without credentials are made of; a refused request may hold anything in the place of a name."""


def is_change(operation: str) -> bool:
    return not operation.startswith(_READS)


def resource_of(members: Mapping[str, Any]) -> str:
    """Return the name of what a request is about, as it was sent; empty if it names nothing that could be a name."""
    for name in _NAMES:
        value = members.get(name)
        if isinstance(value, str) and value:
            return value if _PLAIN.fullmatch(value) else ""
    return ""


def record(
    session: AsyncSession,
    at: datetime,
    caller: Caller,
    operation: str,
    outcome: str,
    members: Mapping[str, Any],
    trail: Trail | None = None,
) -> None:
    """Write what happened when the transaction commits."""
    if trail is not None and not trail.is_change:
        return
    audit.add(
        session,
        AuditRecord(
            at=at,
            request_id=caller.request_id,
            principal=caller.principal,
            tenant=caller.tenant,
            source=caller.source,
            operation=operation,
            resource=(trail.made if trail is not None and trail.made else resource_of(members)),
            outcome=outcome,
        ),
    )

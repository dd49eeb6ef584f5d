"""From rows to principals, as both planes check callers against them. Pure."""

from contract.principals import Kind, Principal, Role
from controlplane.store.tables import AccessKey


def principal_of(row: AccessKey) -> Principal:
    return Principal(
        id=row.id,
        kind=Kind(row.kind),
        role=Role(row.role),
        secret=row.secret,
        tenant=row.tenant,
        endpoints=tuple(row.endpoints),
        enabled=row.enabled,
        requests_per_second=row.requests_per_second,
        concurrent_requests=row.concurrent_requests,
    )

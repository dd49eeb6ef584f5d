"""CreateAccessKey, ListAccessKeys, UpdateAccessKey, RotateAccessKey, DeleteAccessKey.

A secret leaves once, in the answer that made it. SigV4 is computed from the secret itself, so an access key's is kept
sealed, not hashed. An API key is 240 random bits, which nobody guesses: its plain SHA-256 is kept, and that is enough.
"""

import secrets
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from access.credentials import ENTROPY_BYTES, new_access_key, new_api_key
from contract.principals import Principal
from controlplane.errors import AccessDeniedException, ValidationException, not_found_access_key
from controlplane.operations.context import Context
from controlplane.principals import principal_of
from controlplane.shapes import paging
from controlplane.shapes.base import Failure
from controlplane.shapes.keys import (
    AccessKeySummary,
    CreateAccessKeyInput,
    CreateAccessKeyOutput,
    DeleteAccessKeyInput,
    ListAccessKeysInput,
    ListAccessKeysOutput,
    RotateAccessKeyInput,
    RotateAccessKeyOutput,
    UpdateAccessKeyInput,
    UpdateAccessKeyOutput,
)
from controlplane.shapes.messages import failures_message
from controlplane.shapes.paging import Position
from controlplane.store import keys
from controlplane.store.notices import notify
from controlplane.store.tables import AccessKey


async def create_access_key(context: Context, request: CreateAccessKeyInput) -> CreateAccessKeyOutput:
    """Raises AccessDeniedException for a key that could do more than the caller's own."""
    tenant = request.Tenant or context.caller.tenant
    if context.caller.tenant not in ("", tenant):
        raise AccessDeniedException("A tenant's key can only make keys of its own tenant.")
    own = context.caller.endpoints
    if own and not (request.Endpoints and set(request.Endpoints) <= set(own)):
        raise AccessDeniedException(f"This key can only make keys for its own endpoint patterns: {', '.join(own)}.")
    row = AccessKey(
        id="",
        kind=request.Kind,
        tenant=tenant,
        role=request.Role,
        endpoints=list(request.Endpoints),
        secret=b"",
        description=request.Description,
        requests_per_second=request.RequestsPerSecond,
        concurrent_requests=request.ConcurrentRequests,
        created_at=context.now,
    )
    secret = await _add(context, row)
    return CreateAccessKeyOutput.model_validate({**_members(row), **secret})


async def list_access_keys(context: Context, request: ListAccessKeysInput) -> ListAccessKeysOutput:
    after = paging.position(request, request.NextToken)
    tenant = context.caller.tenant or request.Tenant
    if request.Tenant not in (None, tenant):
        return ListAccessKeysOutput(AccessKeys=())
    rows = await keys.page(
        context.session, tenant=tenant, after=after.name if after else None, limit=request.MaxResults + 1
    )
    page = rows[: request.MaxResults]
    token = None
    if len(rows) > len(page):
        token = paging.next_token(request, Position(page[-1].id, page[-1].id))
    summaries = tuple(AccessKeySummary.model_validate(_members(row)) for row in page)
    return ListAccessKeysOutput(AccessKeys=summaries, NextToken=token)


async def update_access_key(context: Context, request: UpdateAccessKeyInput) -> UpdateAccessKeyOutput:
    """Enable or disable a key. Disabled, it is refused by every replica at once and by workers within a moment."""
    row = await _find(context, request.AccessKeyId)
    row.enabled = request.Enabled
    await notify(context.session)
    return UpdateAccessKeyOutput.model_validate(_members(row))


async def rotate_access_key(context: Context, request: RotateAccessKeyInput) -> RotateAccessKeyOutput:
    """Make a key that may do what the old one may; the old one is valid for the grace period, and then gone.

    Raises ValidationException for a key that is disabled or was rotated before.
    """
    old = await _find(context, request.AccessKeyId)
    if not old.enabled or old.expires_at is not None:
        state = "was rotated before" if old.enabled else "is disabled"
        raise ValidationException(
            failures_message([Failure(("AccessKeyId",), f"Member must be a key in use; this one {state}", old.id)])
        )
    new = AccessKey(**{**old.model_dump(), "id": "", "secret": b"", "created_at": context.now})
    secret = await _add(context, new)
    old.expires_at = context.now + timedelta(seconds=request.GraceSeconds)
    previous = {"PreviousAccessKeyId": old.id, "PreviousExpiresAt": old.expires_at}
    return RotateAccessKeyOutput.model_validate({**_members(new), **secret, **previous})


async def delete_access_key(context: Context, request: DeleteAccessKeyInput) -> None:
    row = await _find(context, request.AccessKeyId)
    await context.session.delete(row)
    await notify(context.session)


async def principal(session: AsyncSession, key_id: str, now: datetime) -> Principal | None:
    """Return the principal of a key that is enabled and has not run out."""
    row = await keys.find(session, key_id)
    if row is None or not row.enabled or (row.expires_at is not None and row.expires_at <= now):
        return None
    return principal_of(row)


async def _find(context: Context, key_id: str) -> AccessKey:
    row = await keys.find(context.session, key_id, tenant=context.caller.tenant, lock=True)
    if row is None:
        raise not_found_access_key(key_id)
    own = context.caller.endpoints
    if own and not (row.endpoints and set(row.endpoints) <= set(own)):
        raise AccessDeniedException(f"This key can only change keys for its own endpoint patterns: {', '.join(own)}.")
    return row


async def _add(context: Context, row: AccessKey) -> dict[str, str]:
    """Give the row an id and a secret and insert it; return the secret as a member of the answer."""
    entropy = secrets.token_bytes(ENTROPY_BYTES)
    if row.kind == "access-key":
        pair = new_access_key(entropy)
        row.id, row.secret = pair.id, context.seal(pair.secret)
        shown = {"SecretAccessKey": pair.secret}
    else:
        key = new_api_key(entropy)
        row.id, row.secret = key.id, key.digest
        shown = {"ApiKey": key.key}
    context.trail.made = row.id
    context.session.add(row)
    await context.session.flush()
    await notify(context.session)
    return shown


def _members(row: AccessKey) -> dict[str, Any]:
    return {
        "AccessKeyId": row.id,
        "Kind": row.kind,
        "Role": row.role,
        "Tenant": row.tenant or None,
        "Endpoints": tuple(row.endpoints),
        "Enabled": row.enabled,
        "Description": row.description,
        "RequestsPerSecond": row.requests_per_second,
        "ConcurrentRequests": row.concurrent_requests,
        "CreationTime": row.created_at,
        "ExpiresAt": row.expires_at,
    }

"""RegisterModelHost, DeregisterModelHost, ListModelHosts: hosts that come and go."""

from datetime import timedelta

from access.addresses import is_metadata_host
from controlplane.errors import ValidationException, not_found_model_host
from controlplane.operations.context import Context
from controlplane.operations.models import find_model
from controlplane.shapes import paging
from controlplane.shapes.base import Failure
from controlplane.shapes.hosts import (
    METADATA,
    DeregisterModelHostInput,
    ListModelHostsInput,
    ListModelHostsOutput,
    ModelHostSummary,
    RegisterModelHostInput,
    RegisterModelHostOutput,
    host_of,
    normalize_base_url,
)
from controlplane.shapes.messages import failures_message
from controlplane.shapes.paging import Position
from controlplane.store import hosts
from controlplane.store.hosts import PoolRow
from controlplane.store.notices import notify
from controlplane.store.tables import ModelHost


async def register_model_host(context: Context, request: RegisterModelHostInput) -> RegisterModelHostOutput:
    """Put a host into the model's pool, or renew its place; a host known by its HostName may come with a new URL.

    Raises ValidationException if the URL is in use under another HostName or leads to a metadata service, or the host
    is one of WARMROUTE_HOSTS or another tenant's.
    """
    url = normalize_base_url(request.BaseUrl)
    if not context.metadata_hosts and is_metadata_host(host_of(url)):
        raise _refused("BaseUrl", f"Member must be a base URL of a model host: {METADATA}")
    identity = request.HostName or url
    if "://" in identity and identity != url:
        raise _refused(
            "HostName", f"Member must be a name, or the base URL itself ({url}); a URL names the host that it leads to"
        )
    model = await find_model(context, request.ModelName, lock=True)
    await hosts.lock_pools(context.session)
    known = await hosts.get_member(context.session, model.id, identity)
    if known is not None and known.source == "Environment":
        raise _refused("HostName", f"{identity} is in this model's pool already, by WARMROUTE_HOSTS of its Environment")
    user = await hosts.user_of_url(context.session, url, identity, context.now)
    if user is not None:
        used = f'under HostName "{user.identity}"; register it under that name, or deregister that first'
        raise _refused("BaseUrl", f"{url} is in use {used if user.tenant == model.tenant else 'by another tenant'}")
    try:
        host, moved = await hosts.put_host(context.session, identity, url, context.now, model.tenant)
    except hosts.OfAnotherTenant:
        raise _refused("HostName", f"{identity} is in use by another tenant; give another name") from None
    expires_at = context.now + timedelta(seconds=request.TtlSeconds) if request.TtlSeconds is not None else None
    await hosts.put_member(
        context.session,
        ModelHost(
            model_id=model.id,
            host_id=host.id,
            source="Registration",
            ttl_seconds=request.TtlSeconds,
            registered_at=context.now,
            expires_at=expires_at,
        ),
    )
    # A renewal changes nothing for anybody, and every host sends one every few seconds.
    if moved or known is None or (known.expires_at is not None and known.expires_at <= context.now):
        await notify(context.session)
    else:
        context.trail.is_change = False
    return RegisterModelHostOutput(ModelName=model.name, HostName=identity, BaseUrl=url, ExpiresAt=expires_at)


async def deregister_model_host(context: Context, request: DeregisterModelHostInput) -> None:
    """Take a host out of the model's pool; endpoints stop sending to it. Its requests in flight are not cut off."""
    model = await find_model(context, request.ModelName, lock=True)
    await hosts.lock_pools(context.session)
    member = await hosts.get_member(context.session, model.id, request.HostName)
    if member is None:
        raise not_found_model_host(request.HostName, context.arn("model", model.name))
    if member.source == "Environment":
        raise _refused(
            "HostName",
            f"{request.HostName} is one of WARMROUTE_HOSTS of this model, and models are immutable; create a model "
            "without it and update the endpoint to that",
        )
    await hosts.remove_member(context.session, member)
    await notify(context.session)


async def list_model_hosts(context: Context, request: ListModelHostsInput) -> ListModelHostsOutput:
    model = await find_model(context, request.ModelName)
    after = paging.position(request, request.NextToken)
    rows = await hosts.list_members(
        context.session, model.id, context.now, after.name if after else None, request.MaxResults + 1
    )
    page = rows[: request.MaxResults]
    token = None
    if len(rows) > len(page):
        last = page[-1].host.identity
        token = paging.next_token(request, Position(last, last))
    return ListModelHostsOutput(Hosts=tuple(map(_summary, page)), NextToken=token)


def _summary(row: PoolRow) -> ModelHostSummary:
    return ModelHostSummary(
        HostName=row.host.identity,
        BaseUrl=row.host.base_url,
        Source=row.member.source,
        Healthy=row.healthy,
        EndpointName=row.endpoint_name,
        VariantName=row.variant_name,
        ExpiresAt=row.member.expires_at,
    )


def _refused(member: str, constraint: str) -> ValidationException:
    return ValidationException(failures_message([Failure((member,), constraint)]))

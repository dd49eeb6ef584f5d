"""Filters, order and pages that ListModels, ListEndpointConfigs and ListEndpoints have in common."""

from collections.abc import Iterator

from sqlalchemy import ColumnElement
from sqlmodel import col

from controlplane.operations.context import Context
from controlplane.shapes import paging
from controlplane.shapes.common import ListInput
from controlplane.shapes.paging import Position
from controlplane.store import named
from controlplane.store.named import Named


async def list_page(
    context: Context, table: type[Named], request: ListInput, *filters: ColumnElement[bool]
) -> tuple[list[Named], str | None]:
    """Return the rows of the page asked for, and the token of the next page, None on the last."""
    after = paging.position(request, request.NextToken)
    rows = await named.page(
        context.session,
        table,
        where=[*_common_filters(context, table, request), *filters],
        sort_by=request.SortBy,
        descending=request.SortOrder == "Descending",
        after=(after.value, after.name) if after else None,
        limit=request.MaxResults + 1,
    )
    if len(rows) <= request.MaxResults:
        return rows, None
    rows = rows[: request.MaxResults]
    return rows, paging.next_token(request, Position(*named.place(rows[-1], request.SortBy)))


def _common_filters(context: Context, table: type[Named], request: ListInput) -> Iterator[ColumnElement[bool]]:
    if context.caller.tenant:
        yield named.of_tenant(table, context.caller.tenant)
    if request.NameContains:
        yield named.name_contains(table, request.NameContains)
    if request.CreationTimeBefore is not None:
        yield col(table.created_at) < request.CreationTimeBefore
    if request.CreationTimeAfter is not None:
        yield col(table.created_at) >= request.CreationTimeAfter

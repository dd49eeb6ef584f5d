"""Who is behind a request, as the guard found out: kept in the request's scope, where no header reaches."""

from starlette.requests import Request
from starlette.types import Scope

from contract.principals import Principal
from controlplane.operations.context import Caller

ANY_READ = "ListEndpoints"
"""Whoever may do this may see the documentation, and be told that a page or an operation does not exist."""
_KEY = "warmroute.principal"


def let_in(scope: Scope, principal: Principal) -> None:
    scope[_KEY] = principal


def principal_of(request: Request) -> Principal | None:
    """Return whose request it is; None while AUTH is off."""
    principal: Principal | None = request.scope.get(_KEY)
    return principal


def caller_of(request: Request, principal: Principal | None, request_id: str) -> Caller:
    source = request.client.host if request.client else ""
    if principal is None:
        return Caller(source=source, request_id=request_id)
    return Caller(principal.id, principal.tenant, principal.endpoints, source, request_id)

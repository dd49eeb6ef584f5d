"""The control plane's web application: both doors, health, metrics and the documentation page."""

import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from access.sealing import Sealing
from controlplane.api.deps import Database, Operation, Record, Service, utc_now
from controlplane.api.docs_page import PAGE, SECURITY_POLICY
from controlplane.api.doors import UNKNOWN, Doors, Observe, internal_failure
from controlplane.api.guard import Guard
from controlplane.api.openapi import DESCRIPTION, describe, with_schemas
from controlplane.api.responses import REST, error_response, failure
from controlplane.errors import UnknownOperationException
from controlplane.operations import audit
from controlplane.operations.registry import OPERATIONS
from controlplane.shapes.messages import quoted

METRICS_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def build_app(
    *,
    database: Database,
    account_id: str,
    region: str,
    is_ready: Callable[[], tuple[bool, str]],
    metrics: Callable[[], str],
    now: Callable[[], datetime] = utc_now,
    operations: Mapping[str, Operation] = OPERATIONS,
    observe: Observe = lambda operation, code, seconds: None,
    record: Record | None = audit.record,
    sealing: Sealing | None = None,
    auth: bool = False,
    metadata_hosts: bool = False,
) -> FastAPI:
    """Return the application. ``is_ready`` gives readiness and, if not ready, the reason in one sentence.

    ``auth`` True: only callers with a key are served, which takes ``sealing``.
    """
    # Slash redirects are off: a POST that is redirected loses its body in many clients.
    app = FastAPI(
        title="warmroute control plane",
        description=DESCRIPTION,
        version=version("warmroute"),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    service = Service(database, account_id, region, now, sealing, metadata_hosts, record)
    doors = Doors(operations, service, observe)
    _add_operations(app, doors, operations)
    _add_observation(app, is_ready, metrics)
    if auth:
        assert sealing is not None
        app.add_middleware(
            Guard,
            lookup=service.principal,
            operations=operations,
            region=region,
            sealing=sealing,
            now=now,
            refused=lambda code, seconds: observe(UNKNOWN, code, seconds),
        )
    app.add_exception_handler(HTTPException, _framework_error)
    app.add_exception_handler(Exception, _last_resort)
    app.openapi = with_schemas(app, operations, auth=auth)  # type: ignore[method-assign]
    return app


def _add_operations(app: FastAPI, doors: Doors, operations: Mapping[str, Operation]) -> None:
    async def aws_json(request: Request) -> Response:
        return await doors.aws_json(request)

    app.add_api_route("/", aws_json, methods=["POST"], include_in_schema=False)
    for name, operation in operations.items():
        app.add_api_route(
            f"/{name}",
            _rest_endpoint(doors, name),
            methods=["POST"],
            name=name,
            operation_id=name,
            response_class=JSONResponse,
            **describe(operation),
        )


def _rest_endpoint(doors: Doors, name: str) -> Callable[..., object]:
    async def rest(request: Request) -> Response:
        return await doors.rest(request, name)

    return rest


def _add_observation(app: FastAPI, is_ready: Callable[[], tuple[bool, str]], metrics: Callable[[], str]) -> None:
    async def live() -> Response:
        return JSONResponse({"status": "live"})

    async def ready() -> Response:
        serving, reason = is_ready()
        if serving:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready", "reason": reason}, 503)

    async def metrics_text() -> Response:
        return PlainTextResponse(metrics(), media_type=METRICS_MEDIA_TYPE)

    async def docs() -> Response:
        return HTMLResponse(PAGE, headers={"content-security-policy": SECURITY_POLICY})

    away: dict[int | str, dict[str, Any]] = {503: {"description": "Not ready; the reason is in the answer."}}
    for path, endpoint, summary, kind, more in (
        ("/health/live", live, "200 while the process runs", JSONResponse, {}),
        ("/health/ready", ready, "200 once requests can be served, else 503 with the reason", JSONResponse, away),
        ("/metrics", metrics_text, "Metrics in the Prometheus text format", PlainTextResponse, {}),
    ):
        app.add_api_route(
            path,
            endpoint,
            methods=["GET"],
            tags=["Observation"],
            summary=summary,
            response_class=kind,
            responses=more,
        )
    app.add_api_route("/docs", docs, methods=["GET"], include_in_schema=False)


async def _framework_error(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, in the form of every other error."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    place = f"{request.method} {quoted(request.scope.get('path', ''))}"
    message = f"{place} is not served: {HTTPStatus(status).phrase}. Operations are POST /<Operation>, listed at /docs."
    return error_response(status, UnknownOperationException.code, message, str(uuid.uuid4()), REST.media_type, headers)


async def _last_resort(request: Request, error: Exception) -> Response:
    """A fault outside the operations, such as in ``metrics``. The framework logs the traceback itself."""
    request_id = str(uuid.uuid4())
    return failure(REST, internal_failure(request_id), request_id)

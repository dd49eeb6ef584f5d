"""The two doors of the API, ``POST /`` with X-Amz-Target and ``POST /<Operation>``, over one registry of operations."""

import difflib
import logging
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from access.permissions import matches, may
from contract.principals import Principal
from controlplane.api import body
from controlplane.api.callers import ANY_READ, caller_of, principal_of
from controlplane.api.deps import Operation, Service
from controlplane.api.responses import AWS_JSON, REST, Door, failure, success
from controlplane.arn import parse_arn
from controlplane.errors import AccessDeniedException, InternalFailure, ServiceError, UnknownOperationException
from controlplane.operations.context import Caller
from controlplane.shapes.messages import quoted
from controlplane.shapes.parse import parse

TARGET_PREFIX = "SageMaker."
UNKNOWN = "Unknown"
"""Stands for every operation that is not served, in metrics: their names are the caller's."""

LOG_CHARACTERS_MAX = 1000

log = logging.getLogger(__name__)

Observe = Callable[[str, str, float], None]
"""Called once a request with the operation, the error code or ``OK``, and the seconds it took."""


class Doors:
    """Turns HTTP requests into calls of operations and what they return or raise into responses."""

    def __init__(self, operations: Mapping[str, Operation], service: Service, observe: Observe) -> None:
        self._operations = operations
        self._service = service
        self._observe = observe

    async def aws_json(self, request: Request) -> Response:
        """Serve ``POST /``; the operation is named by X-Amz-Target."""
        target = request.headers.get("x-amz-target", "")
        return await self._serve(request, AWS_JSON, target.removeprefix(TARGET_PREFIX), target)

    async def rest(self, request: Request, name: str) -> Response:
        """Serve ``POST /<name>``."""
        return await self._serve(request, REST, name, f"{TARGET_PREFIX}{name}")

    async def _serve(self, request: Request, door: Door, name: str, target: str) -> Response:
        request_id, started, code = str(uuid.uuid4()), time.perf_counter(), "OK"
        principal = principal_of(request)
        caller = caller_of(request, principal, request_id)
        members: dict[str, Any] = {}
        try:
            _refuse_other_sites(request)
            operation = self._operation(name, target, principal)
            members = body.decode(await body.read(request))
            self._authorize(principal, name, members)
            answer = await self._service.call(operation, parse(operation.input, members), caller)
            response = success(door, answer, request_id)
        except ServiceError as error:
            code = error.code
            response = failure(door, error, request_id)
            if error.status < 500 and name in self._operations:
                await self._service.refused(name, members, caller, code)
            if error.status >= 500:
                log.error("request %s: %s", request_id, quoted(error.log or error.message, LOG_CHARACTERS_MAX))
        except ClientDisconnect:
            code = "ClientDisconnect"
            response = Response(status_code=400)
        except Exception as error:
            code = InternalFailure.code
            response = failure(door, internal_failure(request_id), request_id)
            log.error("request %s failed unexpectedly:\n%s", request_id, _traceback(error))
            await self._service.refused(name, members, caller, code)
        seconds = time.perf_counter() - started
        # The message of a refusal repeats what the caller sent, which is no business of the log.
        log.info("request %s: %s %s in %.1f ms%s", request_id, quoted(name), code, seconds * 1000, _by(caller))
        self._observe(name if name in self._operations else UNKNOWN, code, seconds)
        return response

    def _operation(self, name: str, target: str, principal: Principal | None) -> Operation:
        """Return the operation, if there is one and the principal's role has it: before the body is looked at."""
        operation = self._operations.get(name) if target.startswith(TARGET_PREFIX) else None
        if principal is not None and not may(principal, name if operation is not None else ANY_READ):
            raise self._service.forbidden(principal.id, name if operation is not None else "*", "*")
        if operation is None:
            raise self._unknown(name, target)
        return operation

    def _authorize(self, principal: Principal | None, name: str, members: Mapping[str, Any]) -> None:
        """Raise AccessDeniedException for an endpoint that the principal's patterns leave out."""
        if principal is None or not principal.endpoints:
            return
        endpoint = endpoint_in(members)
        if endpoint is not None and not matches(principal, endpoint):
            raise self._service.forbidden(principal.id, name, self._service.arn(endpoint))

    def _unknown(self, name: str, target: str) -> UnknownOperationException:
        if not target:
            return UnknownOperationException(
                "The header X-Amz-Target is missing: send SageMaker.<Operation>, or POST to /<Operation>."
            )
        near = difflib.get_close_matches(name[:64], self._operations, n=1, cutoff=0.8)
        hint = f" Did you mean {near[0]}?" if near else ""
        return UnknownOperationException(
            f"The operation {quoted(target)} is not supported by this version.{hint} "
            f"Supported operations: {', '.join(sorted(self._operations))}."
        )


def endpoint_in(members: Mapping[str, Any]) -> str | None:
    """Return the name of the endpoint that a request is about, None if it is about none or names it badly."""
    name, arn = members.get("EndpointName"), members.get("ResourceArn")
    if isinstance(name, str):
        return name
    parsed = parse_arn(arn) if isinstance(arn, str) else None
    return parsed.name if parsed is not None and parsed.kind == "endpoint" else None


def _by(caller: Caller) -> str:
    return f" by {caller.principal}" if caller.principal else ""


def internal_failure(request_id: str) -> InternalFailure:
    return InternalFailure(f"An internal error occurred. The service's log has the details under request {request_id}.")


def _refuse_other_sites(request: Request) -> None:
    """Refuse a browser page of another origin: on a loopback address there is nothing else between it and the API."""
    origin, host = request.headers.get("origin"), request.headers.get("host")
    if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
        raise AccessDeniedException("Requests from web pages of another origin are not allowed.")


def _traceback(error: BaseException) -> str:
    """Return the traceback with every line marked: text of a caller in it cannot pass for a log line of ours."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(f"    | {quoted(line, LOG_CHARACTERS_MAX)}" for line in lines)

"""The two doors of the API, ``POST /`` with X-Amz-Target and ``POST /<Operation>``, over one registry of operations."""

import difflib
import logging
import time
import traceback
import uuid
from collections.abc import Callable, Mapping

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from controlplane.api import body
from controlplane.api.deps import Operation, Service
from controlplane.api.responses import AWS_JSON, REST, Door, failure, success
from controlplane.errors import AccessDeniedException, InternalFailure, ServiceError, UnknownOperationException
from controlplane.shapes.base import Shape
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
        try:
            response = success(door, await self._answer(request, name, target), request_id)
        except ServiceError as error:
            code = error.code
            response = failure(door, error, request_id)
            if error.status >= 500:
                log.error("request %s: %s", request_id, quoted(error.log or error.message, LOG_CHARACTERS_MAX))
        except ClientDisconnect:
            code = "ClientDisconnect"
            response = Response(status_code=400)
        except Exception as error:
            code = InternalFailure.code
            response = failure(door, internal_failure(request_id), request_id)
            log.error("request %s failed unexpectedly:\n%s", request_id, _traceback(error))
        seconds = time.perf_counter() - started
        # The message of a refusal repeats what the caller sent, which is no business of the log.
        log.info("request %s: %s %s in %.1f ms", request_id, quoted(name), code, seconds * 1000)
        self._observe(name if name in self._operations else UNKNOWN, code, seconds)
        return response

    async def _answer(self, request: Request, name: str, target: str) -> Shape | None:
        _refuse_other_sites(request)
        operation = self._operations.get(name)
        if operation is None or not target.startswith(TARGET_PREFIX):
            raise self._unknown(name, target)
        document = body.decode(await body.read(request))
        return await self._service.call(operation, parse(operation.input, document))

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

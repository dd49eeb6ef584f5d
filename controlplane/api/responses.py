"""Bytes that leave: results, errors and the request id, the same at both doors but for the content type."""

import json
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from controlplane.errors import ServiceError
from controlplane.shapes.base import Shape

REQUEST_ID = "x-amzn-RequestId"


@dataclass(frozen=True)
class Door:
    """One way in. ``empty`` is the body of an operation without result."""

    name: str
    media_type: str
    empty: bytes


AWS_JSON = Door("aws", "application/x-amz-json-1.1", b"")
REST = Door("rest", "application/json", b"{}")


def success(door: Door, output: Shape | None, request_id: str) -> Response:
    body = door.empty if output is None else encode(output.to_wire())
    return Response(body, 200, {REQUEST_ID: request_id}, door.media_type)


def failure(door: Door, error: ServiceError, request_id: str) -> Response:
    return error_response(error.status, error.code, error.message, request_id, door.media_type)


def error_response(
    status: int, code: str, message: str, request_id: str, media_type: str, headers: dict[str, str] | None = None
) -> Response:
    """Return an error as AWS JSON clients read it: they take the code from ``__type`` in the body, from no header."""
    body = encode({"__type": code, "message": message})
    return Response(body, status, {REQUEST_ID: request_id, **(headers or {})}, media_type)


def encode(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

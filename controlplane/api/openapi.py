"""The OpenAPI document, made of the shapes: the framework cannot know them, since it must never parse a body itself."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from controlplane.api.deps import Operation
from controlplane.api.descriptions import DESCRIPTIONS
from controlplane.shapes.base import Shape

DESCRIPTION = """Amazon SageMaker's endpoint API, self-hosted, and operations on model hosts that are warmroute's own.

Every operation is reachable in two ways: `POST /<Operation>` with a JSON body, described here, and AWS JSON 1.1,
`POST /` with the header `X-Amz-Target: SageMaker.<Operation>`, which is what boto3 and the AWS CLI speak. A failed
request is answered `{"__type": "<code>", "message": "..."}`; one message lists everything that is wrong with it."""

_REF = "#/components/schemas/{model}"
_ERROR = {
    "type": "object",
    "required": ["__type", "message"],
    "properties": {"__type": {"type": "string"}, "message": {"type": "string"}},
    "example": {"__type": "ValidationException", "message": 'Could not find endpoint "arn:...".'},
}
_SECURITY = {
    "apiKey": {"type": "http", "scheme": "bearer", "description": "An API key of warmroute: `sk-...`."},
    "basic": {"type": "http", "scheme": "basic", "description": "The same as the password; the name is passed over."},
    "signature": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "AWS Signature Version 4, service sagemaker: boto3, the AWS CLI, `curl --aws-sigv4`.",
    },
}
_FAILURES = {
    400: "The request is refused; the message names the members.",
    403: "With AUTH on: the caller is not known, or may not. Else: a web page of another origin.",
    500: "A fault of the service.",
    503: "The database is away; try again.",
}


def describe(operation: Operation) -> dict[str, Any]:
    """Return what the framework's route takes to document ``operation``."""
    text = DESCRIPTIONS[operation.name]
    content = {"schema": {"$ref": _ref(operation.input)}, "example": text.example}
    result: dict[str, Any] = {"description": "Done."}
    if operation.output is not None:
        result["content"] = {"application/json": {"schema": {"$ref": _ref(operation.output)}}}
    error = {"application/json": {"schema": {"$ref": _REF.format(model="Error")}}}
    return {
        "tags": [text.family],
        "summary": text.summary,
        "description": text.description,
        "openapi_extra": {"requestBody": {"required": True, "content": {"application/json": content}}},
        "responses": {200: result} | {s: {"description": d, "content": error} for s, d in _FAILURES.items()},
    }


def with_schemas(app: FastAPI, operations: Mapping[str, Operation], *, auth: bool) -> Callable[[], dict[str, Any]]:
    """Return a replacement for ``app.openapi`` that adds the schemas of all shapes, made once.

    ``auth``: it also says how a caller shows who it is.
    """

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            shapes = dict.fromkeys(
                shape for operation in operations.values() for shape in (operation.input, operation.output) if shape
            )
            _, schemas = models_json_schema([(shape, "validation") for shape in shapes], ref_template=_REF)
            document.setdefault("components", {})["schemas"] = {"Error": _ERROR, **schemas.get("$defs", {})}
            if auth:
                _add_security(document)
            # A structure that shares its name with the member that holds it has this suffix in our source only.
            app.openapi_schema = json.loads(json.dumps(document).replace('Shape"', '"'))
        return app.openapi_schema

    return openapi


def _add_security(document: dict[str, Any]) -> None:
    document["components"]["securitySchemes"] = _SECURITY
    document["security"] = [{name: []} for name in _SECURITY]
    for path, methods in document["paths"].items():
        if path.startswith("/health/"):
            for operation in methods.values():
                operation["security"] = []


def _ref(shape: type[Shape]) -> str:
    return _REF.format(model=shape.__name__)

"""botocore's service model of SageMaker Runtime: what its clients send, and how they read answers and errors."""

import json
from collections.abc import Iterator
from typing import Any

import botocore.loaders
from botocore.eventstream import EventStream
from botocore.model import OperationModel, ServiceModel
from botocore.parsers import create_parser

from dataplane.api.faults import Answer
from dataplane.wire.http import AnswerHead, Headers, Request

MODEL = ServiceModel(botocore.loaders.Loader().load_service_model("sagemaker-runtime", "service-2"))
PARSER = create_parser("rest-json")


def operation(name: str) -> OperationModel:
    return MODEL.operation_model(name)


def header_members(name: str) -> dict[str, tuple[str, Any]]:
    """Return member -> (header, shape) of an operation's input."""
    members = operation(name).input_shape.members
    return {
        member: (shape.serialization["name"], shape)
        for member, shape in members.items()
        if shape.serialization.get("location") == "header"
    }


def request(*headers: tuple[str, bytes], body: bytes = b"{}", target: bytes = b"/") -> Request:
    """Return a request as the wire hands it on."""
    made = Request(method=b"POST", target=target, body=body)
    for title, value in headers:
        name = title.lower().encode()
        if name in made.headers:
            made.repeated.append((name, value))
        else:
            made.headers[name] = value
    return made


def answer(status: int, headers: Headers) -> AnswerHead:
    """Return the head of a host's answer as the wire hands it on."""
    return AnswerHead(status, headers, dict(headers))


def lines(data: bytes) -> list[tuple[str, str]]:
    """Take complete header lines apart."""
    assert data == b"" or data.endswith(b"\r\n")
    found = []
    for line in data.split(b"\r\n")[:-1]:
        name, colon, value = line.partition(b": ")
        assert colon, line
        found.append((name.decode(), value.decode("latin-1")))
    return found


def parsed_error(answer: Answer, name: str) -> dict[str, Any]:
    """Read an error as boto3 does for ClientError.response, the modelled members of its shape included."""
    status, headers, body = answer
    response = {"status_code": status, "headers": _insensitive(lines(headers)), "body": body}
    found: dict[str, Any] = PARSER.parse(response, operation(name).output_shape)
    shape = MODEL.shape_for_error_code(found["Error"]["Code"])
    if shape is not None:
        found.update(PARSER.parse(response, shape))
    return found


def _insensitive(found: list[tuple[str, str]]) -> Any:
    from botocore.awsrequest import HeadersDict

    return HeadersDict(found)


class _Raw:
    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def stream(self) -> Iterator[bytes]:
        yield from self._pieces

    def close(self) -> None:
        pass


def events(pieces: list[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the events of a response stream as boto3 does; raises EventStreamError for an exception frame."""
    shape = operation("InvokeEndpointWithResponseStream").output_shape.members["Body"]
    yield from EventStream(_Raw(pieces), shape, PARSER._event_stream_parser, "InvokeEndpointWithResponseStream")


def body_of(answer: Answer) -> Any:
    return json.loads(answer[2])

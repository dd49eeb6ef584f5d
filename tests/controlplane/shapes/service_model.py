"""botocore's model of SageMaker, read as data, and a comparison of our shapes with it."""

import functools
import gzip
import json
import types
import typing
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from controlplane.shapes.base import Bounds, Items, Marker, Moment, OneOf, Shape, Text

OWN_OPERATIONS = {
    "RegisterModelHost",
    "DeregisterModelHost",
    "ListModelHosts",
    "CreateAccessKey",
    "ListAccessKeys",
    "UpdateAccessKey",
    "RotateAccessKey",
    "DeleteAccessKey",
}


@functools.cache
def model() -> dict[str, Any]:
    data = files("botocore").joinpath("data/sagemaker/2017-07-24/service-2.json.gz").read_bytes()
    return json.loads(gzip.decompress(data))


def aws_shape(name: str) -> dict[str, Any]:
    return model()["shapes"][name]


def core(annotation: Any) -> tuple[Any, list[object]]:
    """Return the annotation without Optional and Annotated, and the constraints that were around it."""
    found: list[object] = []
    while True:
        if typing.get_origin(annotation) is typing.Annotated:
            found += annotation.__metadata__
            annotation = annotation.__origin__
        elif typing.get_origin(annotation) in (typing.Union, types.UnionType):
            (annotation,) = (part for part in typing.get_args(annotation) if part is not type(None))
        else:
            return annotation, [one for one in found if not isinstance(one, Marker)]


def members(shape: type[Shape]) -> dict[str, tuple[Any, bool]]:
    hints = typing.get_type_hints(shape, include_extras=True)
    return {name: (hints[name], field.is_required()) for name, field in shape.model_fields.items()}


def differences(annotation: Any, aws_name: str, path: str, *, subset: bool = False) -> Iterator[str]:
    """Yield each way in which ``annotation`` differs from the AWS shape. ``subset`` allows members to be absent."""
    ours, found = core(annotation)
    aws = aws_shape(aws_name)
    match aws["type"]:
        case "structure":
            yield from _structure(ours, aws, path, subset)
        case "list":
            yield from _equal(path, found, Items(aws.get("min"), aws.get("max")))
            yield from differences(typing.get_args(ours)[0], aws["member"]["shape"], f"{path}[]", subset=subset)
        case "map":
            yield from _equal(path, found, Items(aws.get("min"), aws.get("max")))
            for part, kind in zip(typing.get_args(ours), ("key", "value"), strict=True):
                yield from differences(part, aws[kind]["shape"], f"{path}<{kind}>", subset=subset)
        case "string" if "enum" in aws:
            yield from _equal(path, found, OneOf(tuple(aws["enum"])))
        case "string":
            yield from _equal(path, found, Text(aws.get("min"), aws.get("max"), aws.get("pattern")))
        case "integer" | "float":
            yield from _equal(path, found, Bounds(aws.get("min"), aws.get("max")))
            if ours is not {"integer": int, "float": float}[aws["type"]]:
                yield f"{path}: is {ours}, the service model says {aws['type']}"
        case "timestamp":
            yield from _equal(path, found, Moment())
        case "boolean":
            if ours is not bool or found:
                yield f"{path}: is {ours} {found}, the service model says boolean"
        case other:
            yield f"{path}: type {other} is not handled"


def _structure(ours: Any, aws: dict[str, Any], path: str, subset: bool) -> Iterator[str]:
    if not (isinstance(ours, type) and issubclass(ours, Shape)):
        yield f"{path}: is {ours}, the service model says structure"
        return
    mine, theirs, required = members(ours), aws["members"], set(aws.get("required", ()))
    if not subset:
        yield from (f"{path}.{name}: missing" for name in theirs.keys() - mine.keys())
    yield from (f"{path}.{name}: not in the service model" for name in mine.keys() - theirs.keys())
    for name, (annotation, is_required) in mine.items():
        if name in theirs:
            if is_required != (name in required) and not (subset and is_required):
                yield f"{path}.{name}: required is {is_required}"
            yield from differences(annotation, theirs[name]["shape"], f"{path}.{name}", subset=subset)
    if subset:
        yield from (f"{path}.{name}: required, but missing" for name in required - mine.keys())


def _equal(path: str, found: list[object], wanted: object) -> Iterator[str]:
    if found != [wanted]:
        yield f"{path}: is {found}, the service model says {wanted}"


def shapes_by_name() -> dict[str, type[Shape]]:
    from controlplane.shapes import endpoint_configs, endpoints, hosts, keys, models, tags

    return {
        name: value
        for module in (models, endpoint_configs, endpoints, tags, hosts, keys)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Shape) and name.endswith(("Input", "Output"))
    }

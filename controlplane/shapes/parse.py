"""From a decoded JSON document to a checked shape, or one error that lists every failure of the request.

Two passes over the same document: each member by itself (pydantic), then the rules across members and what this version
does not serve. The second pass reads the raw document, so that one bad member does not hide the others.
"""

import difflib
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from types import UnionType
from typing import Any, TypeVar, cast

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from controlplane.errors import SerializationException, ServiceError, ValidationException
from controlplane.shapes.base import ENTRIES_MAX, NO_VALUE, Accepts, Bounds, Failure, OneOf, Refused, Shape
from controlplane.shapes.messages import MAP_MEMBER, enum_constraint, failures_message, quoted

FAILURES_MAX = 100
"""More of either pass are not looked for: they do not fit in the message."""

S = TypeVar("S", bound=Shape)
Path = tuple[str | int, ...]

_TYPES = {
    "int_type": "integer",
    "float_type": "number",
    "string_type": "string",
    "bool_type": "boolean",
    "tuple_type": "list",
    "dict_type": "map",
    "model_type": "structure",
    "moment_type": "number of epoch seconds",
}


def parse(shape: type[S], sent: object) -> S:
    """Return ``sent``, decoded JSON, as ``shape``.

    Raises SerializationException if a value has the wrong JSON type, ValidationException for any other failure. Either
    message lists every failure of the request.
    """
    if not isinstance(sent, Mapping):
        raise SerializationException(f"The request body must be a JSON object with the members of {shape.__name__}.")
    refusals = list(islice(_rules(shape, sent, ()), FAILURES_MAX))
    try:
        parsed = shape.model_validate(sent)
    except ValidationError as error:
        refused = {failure.path for failure in refusals if failure.refused}
        # Unknown members are the second pass's.
        details = (detail for detail in error.errors(include_url=False) if detail["type"] != "extra_forbidden")
        broken = [_failure(detail) for detail in islice(details, FAILURES_MAX)]
        refusals = [f for f in broken if not any(f.path[:end] in refused for end in range(1, len(f.path)))] + refusals
    else:
        if not refusals:
            return parsed
    raise _error(refusals)


def _error(failures: list[Failure]) -> ServiceError:
    unique = list({(f.path, f.constraint): f for f in failures}.values())
    kind = SerializationException if any(failure.wrong_type for failure in unique) else ValidationException
    return kind(failures_message(unique))


def _failure(detail: ErrorDetails) -> Failure:
    path, kind, context = detail["loc"], detail["type"], detail.get("ctx", {})
    value: object = detail["input"]
    if MAP_MEMBER in path and value is not None:
        value = NO_VALUE  # Values of environment variables may be secrets.
    if path and path[-1] == "[key]":
        return Failure(path[:-2], f"Map keys must satisfy constraint: [{detail['msg']}]", path[-2])
    if kind == "missing" or value is None:
        return Failure(path, "Member must not be null", None)
    if kind in _TYPES:
        return Failure(path, f"Member must be a JSON {_TYPES[kind]}", value, wrong_type=True)
    match kind:
        case "enum":
            constraint = enum_constraint(context["values"], value)
        case "greater_than_equal":
            constraint = f"Member must have value greater than or equal to {context['ge']}"
        case "less_than_equal":
            constraint = f"Member must have value less than or equal to {context['le']}"
        case "finite_number":
            constraint = "Member must be a finite number"
        case "string_unicode":
            constraint = "Member must not contain an unpaired surrogate"
        case _:
            constraint = detail["msg"]
    return Failure(path, constraint, value)


def _rules(shape: type[Shape], sent: Mapping[str, Any], path: Path) -> Iterator[Failure]:
    """Yield, for ``sent`` and every structure inside it: unknown members, refused ones, and broken rules."""
    for name, value in sent.items():
        field = shape.model_fields.get(name)
        if field is None:
            yield Failure((*path, name), _unknown(shape, name))
        elif value is not None:
            refusal = _refusal(name, field, value)
            if refusal:
                yield Failure((*path, name), refusal, refused=True)
            else:
                yield from _inner_rules(field, value, (*path, name))
    for failure in shape.rules(sent):
        yield failure._replace(path=(*path, *failure.path))


def _inner_rules(field: FieldInfo, value: object, path: Path) -> Iterator[Failure]:
    inner = structure(cast(Any, field.annotation))
    if inner is None:
        return
    if isinstance(value, Mapping):
        yield from _rules(inner, value, path)
    elif isinstance(value, list):
        for index, item in enumerate(value[:ENTRIES_MAX]):
            if isinstance(item, Mapping):
                yield from _rules(inner, item, (*path, index))


def _refusal(name: str, field: FieldInfo, value: object) -> str:
    for marker in field.metadata:
        if isinstance(marker, Refused):
            return marker.message or f"{name} is not supported by this version"
        if isinstance(marker, Accepts) and _is_known(field, value) and value not in marker.values:
            served = ", ".join(str(item).lower() if isinstance(item, bool) else str(item) for item in marker.values)
            spelt = str(value).lower() if isinstance(value, bool) else value
            return f"{name} {spelt} is not supported by this version, which serves [{served}]"
    return ""


def _is_known(field: FieldInfo, value: object) -> bool:
    """Whether AWS knows ``value``: an unknown one gets the message about the member's values instead."""
    for constraint in constraints(field):
        if isinstance(constraint, OneOf):
            return value in constraint.values
        if isinstance(constraint, Bounds):
            return type(value) is int and (constraint.low or 0) <= value <= (constraint.high or value)
    return isinstance(value, bool)


def _unknown(shape: type[Shape], name: str) -> str:
    known = sorted(shape.model_fields)
    near = difflib.get_close_matches(name[:64], known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"Unknown member {quoted(name)}; {hint}Known members: {', '.join(known) or 'none'}"


@cache
def structure(annotation: Any) -> type[Shape] | None:
    """Return the structure that ``annotation`` holds, directly, optionally or as items of a list; None for a scalar."""
    if isinstance(annotation, type) and issubclass(annotation, Shape):
        return annotation
    origin = typing.get_origin(annotation)
    if origin in (typing.Annotated, typing.Union, UnionType, tuple):
        for argument in typing.get_args(annotation):
            found = structure(argument)
            if found is not None:
                return found
    return None


def constraints(field: FieldInfo) -> list[object]:
    """Return the constraint objects of a member, those of its items excepted."""
    return [*field.metadata, *_constraints(field.annotation)]


def _constraints(annotation: Any) -> Iterator[object]:
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        yield from annotation.__metadata__
        yield from _constraints(annotation.__origin__)
    elif origin in (typing.Union, UnionType):
        for argument in typing.get_args(annotation):
            yield from _constraints(argument)

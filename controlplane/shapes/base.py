"""Building blocks of the API's shapes: a strict, frozen base class and the constraints that botocore's model states.

Nothing is coerced: "7", true, 7.0 and 1e1 are no integers. A null member counts as absent, as in every AWS JSON API.
Each constraint is one object in the annotation, so that a test can compare it with the service model.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import regex  # type: ignore[import-untyped]
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

INTEGER_MAX = 2**31 - 1
"""AWS integers are 32-bit; so are the database's."""
FLOAT_MAX = 3.4028234663852886e38
"""AWS floats are single precision. The bound also keeps a sum of ten weights finite."""
ENTRIES_MAX = 1000
"""Of a list or map that the service model leaves unbounded; ten variants are the most that any of them can be about."""
NO_VALUE = object()
"""Stands for a value that a message must not repeat."""


class Failure(NamedTuple):
    """One broken constraint. ``path``: members as the API spells them, list items by index from 0."""

    path: tuple[str | int, ...]
    constraint: str
    value: object = NO_VALUE
    wrong_type: bool = False
    """The JSON type is wrong, not the value."""
    refused: bool = False
    """The member is refused whole, so what is wrong inside it does not matter."""


class Shape(BaseModel):
    """A structure of the API. Attribute names are the API's member names; absent members are None."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, sent: object) -> object:
        if isinstance(sent, Mapping):
            return {name: value for name, value in sent.items() if value is not None}
        return sent

    @classmethod
    def rules(cls, sent: Mapping[str, Any]) -> Iterator[Failure]:
        """Yield what breaks a rule across members. ``sent`` is unchecked: a rule passes over values of wrong type."""
        yield from ()

    def to_wire(self) -> dict[str, Any]:
        """Return the members that are present, ready for JSON: values as they were sent, defaults of AWS included."""
        return self.model_dump(mode="json", exclude_none=True)


@dataclass(frozen=True)
class Marker:
    """What this version does with a member. Without a marker a member has its effect."""

    def note(self) -> str:
        """One sentence for the API's documentation."""
        raise TypeError("a marker of no kind")

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {"description": self.note()}


@dataclass(frozen=True)
class StoredOnly(Marker):
    """Accepted, stored and echoed; changes nothing. ``why`` is printed in docs/stored-only.md."""

    why: str

    def note(self) -> str:
        return f"Stored only: {self.why}."


@dataclass(frozen=True)
class Refused(Marker):
    """Known to AWS, refused by name here. ``message`` replaces the usual sentence."""

    message: str = ""

    def note(self) -> str:
        return self.message or "Not supported by this version."


@dataclass(frozen=True)
class Accepts(Marker):
    """Only these values are served; every other value that AWS knows is refused by name."""

    values: tuple[object, ...]

    def note(self) -> str:
        served = ", ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in self.values)
        return f"This version serves [{served}] only."


@dataclass(frozen=True)
class Text:
    """A string: length in characters, and a pattern that the whole string must match."""

    low: int | None = None
    high: int | None = None
    pattern: str | None = None

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        # Java's \d, \w and \s, which the service model means, are ASCII; only \p classes reach further.
        flags = 0 if self.pattern and r"\p{" in self.pattern else regex.ASCII
        compiled = regex.compile(self.pattern, flags) if self.pattern else None

        def check(value: str) -> str:
            if self.low is not None and len(value) < self.low:
                raise _broken("Member must have length greater than or equal to {bound}", bound=self.low)
            if self.high is not None and len(value) > self.high:
                raise _broken("Member must have length less than or equal to {bound}", bound=self.high)
            if "\0" in value:
                raise _broken("Member must not contain the character U+0000")
            if not value.isascii() and regex.search("[\ud800-\udfff]", value):
                raise _broken("Member must not contain an unpaired surrogate")
            if compiled is not None and compiled.fullmatch(value) is None:
                raise _broken("Member must satisfy regular expression pattern: {pattern}", pattern=self.pattern)
            return value

        return core_schema.no_info_after_validator_function(check, core_schema.str_schema(strict=True))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        extra = {"minLength": self.low, "maxLength": self.high, "pattern": self.pattern and f"^{self.pattern}$"}
        return handler(schema) | {key: value for key, value in extra.items() if value is not None}


@dataclass(frozen=True)
class OneOf:
    """A string out of a closed set; upper and lower case differ."""

    values: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        allowed = frozenset(self.values)

        def check(value: str) -> str:
            if value not in allowed:
                raise PydanticCustomError("enum", "Member must satisfy enum value set", {"values": self.values})
            return value

        return core_schema.no_info_after_validator_function(check, core_schema.str_schema(strict=True))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {"enum": list(self.values)}


@dataclass(frozen=True)
class Bounds:
    """An integer or float: inclusive bounds, and always those of the 32-bit type."""

    low: int | None = None
    high: int | None = None

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        if source is int:
            low, high = -INTEGER_MAX - 1, INTEGER_MAX
            return core_schema.int_schema(
                strict=True,
                ge=low if self.low is None else self.low,
                le=high if self.high is None else self.high,
            )
        return core_schema.float_schema(
            strict=True,
            allow_inf_nan=False,
            ge=-FLOAT_MAX if self.low is None else self.low,
            le=FLOAT_MAX if self.high is None else self.high,
        )


@dataclass(frozen=True)
class Items:
    """A list or map: number of entries. It is checked first, so that no time goes into entries that are too many."""

    low: int | None = None
    high: int | None = None

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        if schema["type"] == "tuple":
            # JSON has lists only; the strictness of the items is their own.
            schema = core_schema.tuple_variable_schema(schema["items_schema"][0], strict=False)
        high = ENTRIES_MAX if self.high is None else self.high

        def check(value: object) -> object:
            if isinstance(value, list | tuple | dict):
                if self.low is not None and len(value) < self.low:
                    raise _broken("Member must have length greater than or equal to {bound}", bound=self.low)
                if len(value) > high:
                    raise _broken("Member must have length less than or equal to {bound}", bound=high)
            return value

        return core_schema.no_info_before_validator_function(check, schema)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        found = handler(schema)
        unit = "Items" if found["type"] == "array" else "Properties"
        extra = {f"min{unit}": self.low, f"max{unit}": self.high}
        return found | {key: value for key, value in extra.items() if value is not None}


@dataclass(frozen=True)
class Moment:
    """A point in time: a JSON number of epoch seconds outside, an aware datetime in UTC inside."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            _moment, serialization=core_schema.plain_serializer_function_ser_schema(_epoch_seconds, when_used="json")
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "number", "description": "Epoch seconds, UTC; fractions allowed.", "examples": [1767225600]}


def _broken(constraint: str, **context: object) -> PydanticCustomError:
    return PydanticCustomError("constraint", constraint, context)


def _moment(value: object) -> datetime:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise _broken("Member must carry a time zone")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("moment_type", "Member must be a number of epoch seconds")
    # Years 1 to 9999: what both Python and Postgres can hold. Also false for NaN.
    if not -62135596800 <= value < 253402300800:
        raise _broken("Member must be a number of epoch seconds between years 1 and 9999")
    return datetime.fromtimestamp(value, UTC)


def _epoch_seconds(value: datetime) -> float:
    return value.timestamp()

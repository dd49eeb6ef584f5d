from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from controlplane.shapes.base import FLOAT_MAX, INTEGER_MAX, Bounds, Items, Moment, OneOf, Shape, StoredOnly, Text

Number = Annotated[int, Bounds(1, 10)]
Word = Annotated[str, Text(1, 5, "[a-z]+")]


class Inner(Shape):
    Word: Word


class Outer(Shape):
    Count: Number | None = None
    Weight: Annotated[float, Bounds(0)] = 1.0
    At: Annotated[datetime, Moment()] | None = None
    Inners: Annotated[tuple[Inner, ...], Items(1, 2)] | None = None
    Env: Annotated[dict[Word, Annotated[str, Text()]], Items(0, 2)] | None = None
    Flag: bool | None = None


def accepts(annotation: Any, value: object) -> bool:
    try:
        TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        return False
    return True


@given(st.one_of(st.floats(), st.text(), st.booleans(), st.lists(st.integers()), st.none(), st.decimals()))
def test_only_an_integer_is_an_integer(value: object) -> None:
    assert not accepts(Number, value)


@given(st.integers())
def test_bounds_are_inclusive(value: int) -> None:
    assert accepts(Number, value) == (1 <= value <= 10)


@given(st.integers(min_value=-(2**70), max_value=2**70))
def test_an_unbounded_integer_has_32_bits(value: int) -> None:
    assert accepts(Annotated[int, Bounds()], value) == (-INTEGER_MAX - 1 <= value <= INTEGER_MAX)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e39, -0.5, "1", True, 10**400])
def test_what_is_no_weight(value: object) -> None:
    assert not accepts(Annotated[float, Bounds(0)], value)


@pytest.mark.parametrize("value", [0, 0.0, 1, 0.8, 1e-7, 123456.789, FLOAT_MAX])
def test_weights_keep_their_value(value: float) -> None:
    assert Outer(Weight=value).to_wire()["Weight"] == value


@given(st.text())
def test_a_pattern_covers_the_whole_string(value: str) -> None:
    expected = 1 <= len(value) <= 5 and all("a" <= c <= "z" for c in value)
    assert accepts(Word, value) == expected


@pytest.mark.parametrize(
    ("pattern", "value", "fits"),
    [
        (r"\d+", "\u0660", False),
        (r"[\S]+", "\u00a0", True),
        (r"[\p{L}]+", "\u00e9", True),
        (r".*", "a\nb", False),
        ("a", "a\n", False),
    ],
)
def test_patterns_mean_what_they_mean_in_java(pattern: str, value: str, fits: bool) -> None:
    assert accepts(Annotated[str, Text(pattern=pattern)], value) == fits


@pytest.mark.parametrize("value", ["\0", "a\0", "\ud83d", "\udc00x", b"a", bytearray(b"a"), 1])
def test_what_no_string_may_hold(value: object) -> None:
    assert not accepts(Annotated[str, Text()], value)


def test_astral_characters_are_no_surrogates() -> None:
    assert accepts(Annotated[str, Text(1, 1)], "\U0001f600")


def test_a_value_set_knows_case() -> None:
    kind = Annotated[str, OneOf(("RANDOM",))]
    assert accepts(kind, "RANDOM")
    assert not accepts(kind, "random")
    assert not accepts(kind, ["RANDOM"])


@pytest.mark.parametrize(
    ("value", "fits"), [([{"Word": "a"}], True), ([], False), ([{"Word": "a"}] * 3, False), ({}, False), ("a", False)]
)
def test_lists(value: object, fits: bool) -> None:
    assert accepts(Outer, {"Inners": value}) == fits


@pytest.mark.parametrize(
    ("value", "fits"), [({}, True), ({"a": "x"}, True), ({"A": "x"}, False), ({"a": 1}, False), ([["a", "x"]], False)]
)
def test_maps(value: object, fits: bool) -> None:
    assert accepts(Outer, {"Env": value}) == fits


def test_a_null_member_is_absent() -> None:
    shape = Outer.model_validate({"Count": None, "Weight": None, "Flag": None})
    assert shape.to_wire() == {"Weight": 1.0}


def test_false_and_empty_are_present() -> None:
    assert Outer.model_validate({"Flag": False, "Env": {}}).to_wire() == {"Weight": 1.0, "Flag": False, "Env": {}}


def test_shapes_are_immutable() -> None:
    with pytest.raises(ValidationError):
        Outer().Count = 3  # type: ignore[misc]


@pytest.mark.parametrize("seconds", [0, 1767225600, 1767225600.123, -1.5])
def test_moments_are_epoch_seconds(seconds: float) -> None:
    shape = Outer.model_validate({"At": seconds})
    assert shape.At == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    assert shape.to_wire()["At"] == seconds


def test_moments_of_other_zones_are_the_same_moment() -> None:
    tokyo = datetime(2026, 1, 1, 9, tzinfo=timezone(timedelta(hours=9)))
    assert Outer(At=tokyo).to_wire()["At"] == 1767225600.0


@pytest.mark.parametrize(
    "value",
    [True, "1767225600", "2026-01-01T00:00:00Z", 1e300, 10**400, float("nan"), float("inf"), [], datetime(2026, 1, 1)],
)
def test_what_is_no_moment(value: object) -> None:
    assert not accepts(Outer, {"At": value})


def test_the_json_schema_states_the_constraints() -> None:
    schema = Outer.model_json_schema()
    count = schema["properties"]["Count"]["anyOf"][0]
    assert count == {"type": "integer", "minimum": 1, "maximum": 10}
    assert schema["$defs"]["Inner"]["properties"]["Word"]["pattern"] == "^[a-z]+$"
    assert schema["properties"]["Inners"]["anyOf"][0]["maxItems"] == 2
    assert schema["properties"]["At"]["anyOf"][0]["type"] == "number"


def test_a_marker_explains_itself_in_the_json_schema() -> None:
    class Marked(Shape):
        Image: Annotated[Word | None, StoredOnly("nothing runs it")] = None

    assert Marked.model_json_schema()["properties"]["Image"]["description"] == "Stored only: nothing runs it."

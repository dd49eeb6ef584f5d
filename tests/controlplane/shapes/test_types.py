"""Every type of string accepts what its pattern generates within its length, and nothing with a newline at its end."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from controlplane.shapes import types as t
from controlplane.shapes.base import Bounds, OneOf, Text

KINDS = {name: value for name, value in vars(t).items() if hasattr(value, "__metadata__")}
PATTERNS = {
    name: constraint.pattern
    for name, kind in KINDS.items()
    for constraint in kind.__metadata__
    if isinstance(constraint, Text) and constraint.pattern
}
# Python's own engine, which generates the words, has no \p classes.
GENERATED = sorted(name for name, pattern in PATTERNS.items() if r"\p{" not in pattern)
ENDED = sorted(name for name, kind in KINDS.items() if isinstance(kind.__metadata__[0], OneOf | Bounds))
ANY_CHARACTER = {"EnvironmentValue", "ClarifyShapBaseline"}
PRINTABLE = st.characters(min_codepoint=32, max_codepoint=126)


@pytest.mark.parametrize("name", GENERATED)
@settings(max_examples=10, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(data=st.data())
def test_what_a_pattern_generates_is_accepted(name: str, data: st.DataObject) -> None:
    text: Text = KINDS[name].__metadata__[0]
    words = st.from_regex(PATTERNS[name], fullmatch=True, alphabet=PRINTABLE)
    value = data.draw(words.filter(lambda word: (text.low or 0) <= len(word) <= (text.high or 10**6)))
    assert TypeAdapter(KINDS[name]).validate_python(value) == value


@pytest.mark.parametrize("name", sorted(PATTERNS.keys() - ANY_CHARACTER))
def test_no_pattern_lets_a_last_newline_through(name: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(KINDS[name]).validate_python("a\n")


def ends(constraint: Any) -> list[Any]:
    if isinstance(constraint, OneOf):
        return [constraint.values[0], constraint.values[-1]]
    return [end for end in (constraint.low, constraint.high) if end is not None]


@pytest.mark.parametrize("name", ENDED)
def test_both_ends_are_inside(name: str) -> None:
    for end in ends(KINDS[name].__metadata__[0]):
        assert TypeAdapter(KINDS[name]).validate_python(end) == end

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.api import headers
from dataplane.api.faults import VALIDATION, Refused
from tests.dataplane.api.runtime_model import MODEL, request

near = st.text("ab1-_. \t\x7f", max_size=70).map(str.encode) | st.binary(max_size=70)


@given(near)
def test_names_are_those_of_the_service_model(value: bytes) -> None:
    shape = MODEL.shape_for("TargetVariantHeader")
    right = re.fullmatch(shape.metadata["pattern"].encode(), value) and len(value) <= shape.metadata["max"]
    assert (headers.name(value) is None) == bool(right)


@given(near)
def test_identifiers_are_those_of_the_service_model(value: bytes) -> None:
    r"""``\A\S[\p{Print}]*\z``; of the printable characters HTTP leaves the ASCII ones."""
    shape = MODEL.shape_for("PrefixAwareIdHeader")
    low, high = shape.metadata["min"], shape.metadata["max"]
    right = low <= len(value) <= high and re.fullmatch(rb"[!-~][ -~]*", value)
    assert (headers.identifier(value) is None) == bool(right)


@given(near | st.integers(1000, 1100).map(lambda size: b"x" * size))
def test_texts_are_those_of_the_service_model(value: bytes) -> None:
    shape = MODEL.shape_for("CustomAttributesHeader")
    right = len(value) <= shape.metadata["max"] and re.fullmatch(rb"[\t -~]*", value)
    assert (headers.text(value) is None) == bool(right)


@pytest.mark.parametrize("value", [b"a" * 100_000, b"-" * 100_000, b"a-" * 50_000, b" " * 100_000])
def test_long_values_are_judged_at_once(value: bytes) -> None:
    """The patterns must not backtrack."""
    for check in (headers.name, headers.identifier, headers.text):
        assert check(value) is not None


CHECKS: dict[bytes, tuple[str, headers.Check | None]] = {
    b"x-name": ("name", headers.name),
    b"x-not": ("NotYet", None),
}


def test_known_headers_are_read_others_passed_over() -> None:
    assert headers.read(request(("X-Name", b"v1"), ("x-other", b"\xff"), ("x-other", b"2")), CHECKS) == {
        b"x-name": b"v1"
    }


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        (
            [("x-name", b"bad name")],
            "Value 'bad name' at 'name' failed to satisfy constraint: Member must have at most",
        ),
        ([("x-name", b"\xc3\xa9")], r"Value '\\xc3\\xa9' at 'name'"),
        ([("x-name", b"a"), ("x-name", b"a")], "'name' was given more than once"),
        ([("x-not", b"")], "NotYet is not supported by this version"),
    ],
)
def test_a_refusal_names_the_member_and_what_would_be_right(given_: list[tuple[str, bytes]], said: str) -> None:
    with pytest.raises(Refused) as caught:
        headers.read(request(*given_), CHECKS)
    assert said.replace("\\\\", "\\") in caught.value.message
    assert caught.value.fault is VALIDATION


def test_a_refusal_quotes_no_more_than_it_needs() -> None:
    with pytest.raises(Refused) as caught:
        headers.read(request(("x-name", b"a" * 5_000)), CHECKS)
    assert len(caught.value.message) < 400

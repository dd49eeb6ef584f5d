from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.api import body
from controlplane.errors import SerializationException


@pytest.mark.parametrize(
    ("sent", "document"),
    [
        (b"{}", {}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b' {"a": [null, true, 1.5]}\n', {"a": [None, True, 1.5]}),
        (b'{"a": 1e400}', {"a": float("inf")}),
    ],
)
def test_objects_are_decoded(sent: bytes, document: dict[str, Any]) -> None:
    assert body.decode(sent) == document


def test_numbers_that_are_none_reach_the_shapes() -> None:
    assert str(body.decode(b'{"a": NaN}')["a"]) == "nan"


@pytest.mark.parametrize(
    ("sent", "part"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"{", "line 1 column 2"),
        (b"{'a': 1}", "line 1 column 2"),
        (b"[]", "not a list"),
        (b"null", "not null"),
        (b'"x"', "not a string"),
        (b"true", "not a boolean"),
        (b"1", "not a number"),
        (b"\xff\xfe{\x00}\x00", "UTF-8"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b"[" * 20_000 + b"]" * 20_000, "nested too deeply"),
        (b'{"a":' * 20_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "too many digits"),
        (b'{"a": 1} {"b": 2}', "line 1 column 10"),
        (b"EndpointName=e", "line 1 column 1"),
    ],
)
def test_everything_else_is_refused(sent: bytes, part: str) -> None:
    with pytest.raises(SerializationException, match=part):
        body.decode(sent)


@given(st.binary(max_size=64))
def test_any_bytes_are_decoded_or_refused(sent: bytes) -> None:
    try:
        document = body.decode(sent)
    except SerializationException:
        return
    assert isinstance(document, dict)

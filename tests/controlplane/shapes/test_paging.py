from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.errors import ValidationException
from controlplane.shapes.endpoints import ListEndpointsInput
from controlplane.shapes.models import ListModelsInput
from controlplane.shapes.paging import Position, next_token, position
from controlplane.shapes.parse import parse

REQUEST = parse(ListEndpointsInput, {"SortBy": "Name", "NameContains": "a-"})

moments = st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31), timezones=st.just(UTC))


@given(st.one_of(st.text(max_size=64), moments), st.text(max_size=128))
def test_a_token_leads_back_to_its_place(value: str | datetime, name: str) -> None:
    place = Position(value, name)
    token = next_token(REQUEST, place)
    assert position(REQUEST, token) == place
    assert parse(ListEndpointsInput, {"NextToken": token}).NextToken == token


def test_no_token_is_the_start() -> None:
    assert position(REQUEST, None) is None


@given(st.text(max_size=200))
def test_what_is_no_token(text: str) -> None:
    with pytest.raises(ValidationException, match="nextToken"):
        position(REQUEST, text)


@given(st.data())
def test_a_changed_token_is_refused(data: st.DataObject) -> None:
    token = next_token(REQUEST, Position(datetime(2026, 1, 1, tzinfo=UTC), "e1"))
    index = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("ABCxyz019-_").filter(lambda c: c != token[index]))
    changed = token[:index] + other + token[index + 1 :]
    try:
        place = position(REQUEST, changed)
    except ValidationException:
        return
    # The last character of base64 has bits that mean nothing.
    assert index == len(token) - 1
    assert place == position(REQUEST, token)


def test_the_page_size_may_change_from_page_to_page() -> None:
    token = next_token(REQUEST, Position("e1", "e1"))
    later = parse(ListEndpointsInput, {"SortBy": "Name", "NameContains": "a-", "NextToken": token, "MaxResults": 50})
    assert position(later, later.NextToken) == Position("e1", "e1")


@pytest.mark.parametrize("change", [{"SortBy": "CreationTime"}, {"NameContains": "b-"}, {"SortOrder": "Ascending"}])
def test_a_token_of_another_request_is_refused(change: dict[str, str]) -> None:
    token = next_token(REQUEST, Position("e1", "e1"))
    other = parse(ListEndpointsInput, {"SortBy": "Name", "NameContains": "a-", **change})
    with pytest.raises(ValidationException):
        position(other, token)


def test_a_token_of_another_operation_is_refused() -> None:
    token = next_token(parse(ListModelsInput, {}), Position("e1", "e1"))
    with pytest.raises(ValidationException):
        position(parse(ListEndpointsInput, {}), token)

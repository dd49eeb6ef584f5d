"""The table itself: what it promises callers, and that nothing can leave it."""

import botocore.session
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.endpoint_status import (
    IN_PROGRESS,
    REMOVED,
    SERVING,
    TRANSITIONS,
    Event,
    IllegalTransition,
    Status,
    allows,
    diagram,
    next_status,
)
from controlplane.store.tables import STATUSES

ASKED_FOR = {Event.UPDATE, Event.UPDATE_CAPACITY, Event.DELETE}


def test_statuses_are_those_of_aws_and_of_the_database() -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    assert {*Status} == {*STATUSES} == {*model.shape_for("EndpointStatus").enum}


def test_every_status_is_in_the_table() -> None:
    assert TRANSITIONS.keys() == {*Status}


@pytest.mark.parametrize("status", Status)
def test_callers_can_do_nothing_while_an_endpoint_is_in_progress(status: Status) -> None:
    allowed = {event for event in ASKED_FOR if allows(status, event)}
    if status in IN_PROGRESS:
        assert not allowed
    if status is Status.FAILED:
        assert allowed == {Event.DELETE}
    if status is Status.IN_SERVICE:
        assert allowed == ASKED_FOR


def test_the_life_of_an_endpoint_that_meets_everything() -> None:
    status: Status | None = Status.CREATING
    for event in (
        Event.READY,
        Event.UPDATE,
        Event.BROKEN,
        Event.ROLLED_BACK,
        Event.UPDATE_CAPACITY,
        Event.READY,
        Event.DELETE,
        Event.GONE,
    ):
        assert status is not None
        status = next_status(status, event)
    assert status is REMOVED


def test_an_event_that_cannot_happen_names_status_and_event() -> None:
    with pytest.raises(IllegalTransition, match="Failed cannot take the event UPDATE"):
        next_status(Status.FAILED, Event.UPDATE)


@given(st.lists(st.sampled_from(Event), max_size=40))
def test_no_sequence_of_events_leaves_the_table_or_serves_what_never_was_ready(events: list[Event]) -> None:
    status, was_ready = Status.CREATING, False
    for event in events:
        if not allows(status, event):
            with pytest.raises(IllegalTransition):
                next_status(status, event)
            continue
        after = next_status(status, event)
        if after is REMOVED:
            assert status is Status.DELETING
            return
        was_ready |= event is Event.READY
        assert was_ready or after not in SERVING
        assert after in TRANSITIONS
        status = after


@pytest.mark.parametrize("status", sorted(IN_PROGRESS - {Status.SYSTEM_UPDATING}))
def test_every_status_in_progress_has_a_way_out_that_needs_no_caller(status: Status) -> None:
    assert TRANSITIONS[status].keys() - ASKED_FOR


def test_the_diagram_shows_every_transition() -> None:
    text = diagram()
    for status, events in TRANSITIONS.items():
        for event, after in events.items():
            assert f"{status} --> {after or '[*]'}: {event}" in text

"""The life of an endpoint. Every change of status goes through next_status; this file knows no database, clock or API.

Statuses are AWS's (API reference, DescribeEndpoint). The ones without a way in are never reached by this version.
"""

from collections.abc import Mapping
from enum import StrEnum


class Status(StrEnum):
    CREATING = "Creating"
    IN_SERVICE = "InService"
    UPDATING = "Updating"
    ROLLING_BACK = "RollingBack"
    DELETING = "Deleting"
    FAILED = "Failed"
    SYSTEM_UPDATING = "SystemUpdating"
    OUT_OF_SERVICE = "OutOfService"
    UPDATE_ROLLBACK_FAILED = "UpdateRollbackFailed"


class Event(StrEnum):
    """What can happen to an endpoint. The first three are asked for by callers."""

    UPDATE = "update asked for"
    UPDATE_CAPACITY = "weights or counts asked for"
    DELETE = "deletion asked for"
    READY = "instances healthy and every worker follows"
    BROKEN = "instances not healthy in time"
    ROLLED_BACK = "back on the old configuration"
    GONE = "no worker serves it any more"


REMOVED = None
"""Instead of a status: the record is taken away and the name is free."""

TRANSITIONS: Mapping[Status, Mapping[Event, Status | None]] = {
    Status.CREATING: {Event.READY: Status.IN_SERVICE, Event.BROKEN: Status.FAILED},
    Status.IN_SERVICE: {
        Event.UPDATE: Status.UPDATING,
        Event.UPDATE_CAPACITY: Status.UPDATING,
        Event.DELETE: Status.DELETING,
    },
    Status.UPDATING: {Event.READY: Status.IN_SERVICE, Event.BROKEN: Status.ROLLING_BACK},
    Status.ROLLING_BACK: {Event.ROLLED_BACK: Status.IN_SERVICE},
    Status.FAILED: {Event.DELETE: Status.DELETING},
    Status.DELETING: {Event.GONE: REMOVED},
    Status.UPDATE_ROLLBACK_FAILED: {Event.UPDATE: Status.UPDATING, Event.DELETE: Status.DELETING},
    Status.SYSTEM_UPDATING: {},
    Status.OUT_OF_SERVICE: {Event.DELETE: Status.DELETING},
}

IN_PROGRESS = frozenset(
    {Status.CREATING, Status.UPDATING, Status.ROLLING_BACK, Status.DELETING, Status.SYSTEM_UPDATING}
)
"""Callers can only wait: update, re-weight and delete are refused as "in-progress"."""

SERVING = frozenset(
    {
        Status.IN_SERVICE,
        Status.UPDATING,
        Status.ROLLING_BACK,
        Status.SYSTEM_UPDATING,
        Status.UPDATE_ROLLBACK_FAILED,
    }
)
"""Endpoints that may be invoked. A Creating one joins them once its deployment is promoted."""


class IllegalTransition(Exception):
    """The event cannot happen in that status: a fault of ours, except where a caller asked for it."""

    def __init__(self, status: Status, event: Event) -> None:
        super().__init__(f"an endpoint that is {status} cannot take the event {event.name}")
        self.status = status
        self.event = event


def next_status(status: Status, event: Event) -> Status | None:
    """Return the status after ``event``, or REMOVED. Raises IllegalTransition."""
    try:
        return TRANSITIONS[status][event]
    except KeyError:
        raise IllegalTransition(status, event) from None


def allows(status: Status, event: Event) -> bool:
    return event in TRANSITIONS[status]


def diagram() -> str:
    """Return the table as a Mermaid state diagram, for docs."""
    lines = ["stateDiagram-v2", "    [*] --> Creating: CreateEndpoint"]
    for status, events in TRANSITIONS.items():
        for event, after in events.items():
            lines.append(f"    {status} --> {after or '[*]'}: {event}")
    return "\n".join(lines) + "\n"

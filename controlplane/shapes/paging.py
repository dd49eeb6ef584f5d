"""The opaque NextToken of the List operations.

A token holds the place of the last item returned (its sort value, then its name), not a count: pages stay whole while
items come and go. It is bound to the request's other parameters, and a damaged one is refused.
"""

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from controlplane.errors import ValidationException
from controlplane.shapes.base import Shape

_VERSION = 1
_CHECK_BYTES = 12
_NOT_BOUND = {"NextToken", "MaxResults"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Position:
    """Place of an item in a total order: what the list is sorted by, ties broken by name."""

    value: str | datetime
    name: str


def next_token(request: Shape, last: Position) -> str:
    """Return the token for the page that follows ``last`` in the list that ``request`` asks for."""
    # Whole microseconds, as Postgres keeps them: a float would round and skip or repeat an item.
    value = last.value if isinstance(last.value, str) else (last.value - _EPOCH) // _MICROSECOND
    content = json.dumps([_VERSION, value, last.name], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_check(request, content) + content).decode().rstrip("=")


def position(request: Shape, token: str | None) -> Position | None:
    """Return where ``token`` left off, None without one. Raises ValidationException for a token of another request."""
    if token is None:
        return None
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _unusable() from None
    check, content = data[:_CHECK_BYTES], data[_CHECK_BYTES:]
    if check != _check(request, content):
        raise _unusable()
    # The check covers the content, so only what next_token made arrives here.
    _, value, name = json.loads(content)
    return Position(_EPOCH + value * _MICROSECOND if isinstance(value, int) else value, name)


def _check(request: Shape, content: bytes) -> bytes:
    bound = {name: value for name, value in request.to_wire().items() if name not in _NOT_BOUND}
    text = json.dumps([type(request).__name__, bound], sort_keys=True)
    return hashlib.blake2b(content, digest_size=_CHECK_BYTES, key=hashlib.sha256(text.encode()).digest()).digest()


def _unusable() -> ValidationException:
    return ValidationException(
        "1 validation error detected: Value at 'nextToken' failed to satisfy constraint: Member must be the NextToken "
        "of the previous response to the same request, unchanged"
    )

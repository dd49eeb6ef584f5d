import itertools

import pytest
from botocore.eventstream import EventStreamBuffer
from botocore.exceptions import EventStreamError
from hypothesis import given
from hypothesis import strategies as st

from dataplane.api.event_stream import exception, frame, payload_part
from tests.dataplane.api.runtime_model import events


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(at % (len(data) + 1) for at in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


cuts = st.lists(st.integers(0, 100_000), max_size=8)


@given(st.lists(st.binary(min_size=1, max_size=200), max_size=6), cuts)
def test_boto3_gets_back_the_hosts_bytes(parts: list[bytes], at: list[int]) -> None:
    """However the frames are cut on the way. botocore checks both checksums of each."""
    pieces = cut(b"".join(map(payload_part, parts)), at)
    assert [event["PayloadPart"]["Bytes"] for event in events(pieces)] == parts


@given(st.binary(max_size=100), cuts)
def test_headers_are_those_of_the_service(payload: bytes, at: list[int]) -> None:
    buffer = EventStreamBuffer()
    for piece in cut(payload_part(payload), at):
        buffer.add_data(piece)
    (message,) = list(buffer)
    assert message.payload == payload
    assert message.headers == {
        ":event-type": "PayloadPart",
        ":content-type": "application/octet-stream",
        ":message-type": "event",
    }


@pytest.mark.parametrize("kind", ["ModelStreamError", "InternalStreamFailure"])
def test_a_failure_midway_is_an_exception_for_boto3(kind: str) -> None:
    found = events([payload_part(b"one"), exception(kind, b'{"Message":"broken","ErrorCode":"StreamBroken"}')])
    assert next(found)["PayloadPart"]["Bytes"] == b"one"
    with pytest.raises(EventStreamError, match="broken") as caught:
        next(found)
    assert caught.value.response["Error"]["Code"] == kind


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_lengths_cover_the_whole_frame(headers: bytes, payload: bytes) -> None:
    made = frame(headers, payload)
    assert int.from_bytes(made[:4], "big") == len(made)
    assert int.from_bytes(made[4:8], "big") == len(headers)
    assert made[12:-4] == headers + payload

import errno
import io
import json
import threading
import time
from typing import Any
from unittest.mock import patch

import pytest

from dataplane import access_log
from dataplane.access_log import AccessLog, Line, milliseconds
from tests.waiting import wait_until


def line(**members: Any) -> Line:
    return Line(at=time.monotonic(), request_id="r1", route="invoke", status=200, **members)


def written(*lines: Line) -> list[dict[str, Any]]:
    """Return what a log with these lines holds after it was stopped."""
    stream = io.StringIO()
    log = AccessLog(stream)
    log.start()
    for one in lines:
        log.write(one)
    log.stop()
    assert stream.getvalue().endswith("\n") or not lines
    return [json.loads(text) for text in stream.getvalue().split("\n")[:-1]]


def test_a_request_is_one_line_of_json() -> None:
    before = time.time()
    (found,) = written(line(endpoint="e", outcome="home", total_ms=1.5, client="203.0.113.9"))
    assert before - 0.5 < found.pop("at") < time.time() + 0.5, "epoch seconds"
    assert found == {
        "request_id": "r1",
        "route": "invoke",
        "status": 200,
        "endpoint": "e",
        "outcome": "home",
        "total_ms": 1.5,
        "client": "203.0.113.9",
    }


def test_lines_keep_their_order() -> None:
    assert [found["attempts"] for found in written(*(line(attempts=number) for number in range(2, 500)))] == list(
        range(2, 500)
    )


@pytest.mark.parametrize("reason", ['quote " and\nline end', "\x1b[31mred\x00", "é\u2028😀", "half \ud83d"])
def test_nothing_in_a_reason_makes_a_line_of_its_own(reason: str) -> None:
    """And a reason that cannot be written takes no other line with it."""
    found = written(line(reason=reason), line(reason="next"))
    assert len(found) == 2
    assert found[1]["reason"] == "next"


def test_lines_are_written_soon_without_a_stop() -> None:
    stream = io.StringIO()
    log = AccessLog(stream)
    log.start()
    log.write(line())
    wait_until(lambda: stream.getvalue(), 2.0)
    log.stop()


def test_times_are_told_to_the_microsecond() -> None:
    assert [milliseconds(seconds) for seconds in (0.0, 1e-6, 0.0123456, 1.5)] == [0.0, 0.001, 12.346, 1500.0]


class Stuck(io.StringIO):
    """A reader that does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()
        self.entered = threading.Event()

    def write(self, text: str) -> int:
        self.entered.set()
        self.released.wait(5)
        return super().write(text)


def test_a_reader_that_stops_reading_costs_lines_not_the_worker() -> None:
    stream = Stuck()
    with patch.object(access_log, "LINES_MAX", 100):
        log = AccessLog(stream)
        log.start()
        log.write(line())
        assert stream.entered.wait(2)
        began = time.monotonic()
        for _ in range(1_000):
            log.write(line())
        assert time.monotonic() - began < 0.5
        stream.released.set()
        log.stop()
    found = [json.loads(text) for text in stream.getvalue().split("\n")[:-1]]
    assert sum("request_id" in one for one in found) == 101
    assert [one["dropped_lines"] for one in found if "dropped_lines" in one] == [900]


class Closed(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_reader_that_is_gone_ends_the_log_quietly() -> None:
    log = AccessLog(Closed())
    log.start()
    log.write(line())
    log.stop()
    log.write(line())


class Full(io.StringIO):
    """A disk without room until there is some."""

    is_full = True
    refused = 0

    def write(self, text: str) -> int:
        if self.is_full:
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_a_full_disk_takes_lines_and_not_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Said once for the operator, and in the log how many are missing."""
    stream = Full()
    log = AccessLog(stream)
    log.start()
    for round_ in range(1, 3):
        log.write(line())
        log.write(line())
        wait_until(lambda wanted=round_: stream.refused == wanted, 2.0)  # type: ignore[misc]
    stream.is_full = False
    log.write(line(endpoint="e"))
    log.stop()
    found = [json.loads(text) for text in stream.getvalue().splitlines()]
    assert [one.get("endpoint") or one for one in found] == ["e", {"dropped_lines": 4}]
    assert caplog.text.count("No space left on device") == 1

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.state.health import FAILURES_MAX, PROBE_AGAIN_SECONDS, REFUSALS_MAX, Health

EJECT_SECONDS = 10.0
H = "h1"


@pytest.fixture
def health() -> Health:
    return Health(EJECT_SECONDS)


def repeat(times: int, act: Callable[[], bool]) -> list[bool]:
    return [act() for _ in range(times)]


def test_refusals_in_a_row_set_an_instance_aside(health: Health) -> None:
    assert repeat(REFUSALS_MAX, lambda: health.refused(H, 0.0)) == [False] * (REFUSALS_MAX - 1) + [True]
    assert health.out == {H}
    assert health.refused(H, 0.0) is False, "told once"


def test_failures_in_a_row_set_an_instance_aside(health: Health) -> None:
    assert repeat(FAILURES_MAX, lambda: health.failed(H, 0.0)) == [False] * (FAILURES_MAX - 1) + [True]
    assert health.out == {H}


def test_a_success_between_begins_the_row_anew(health: Health) -> None:
    for _ in range(3):
        repeat(FAILURES_MAX - 1, lambda: health.failed(H, 0.0))
        repeat(REFUSALS_MAX - 1, lambda: health.refused(H, 0.0))
        health.succeeded(H)
    assert health.out == set()


def test_a_late_success_does_not_bring_an_instance_back(health: Health) -> None:
    """Of a request that began before: only the ping brings it back."""
    repeat(REFUSALS_MAX, lambda: health.refused(H, 0.0))
    health.succeeded(H)
    assert health.out == {H}


def test_refused_connections_are_probed_soon_failed_answers_after_the_whole_time(health: Health) -> None:
    repeat(REFUSALS_MAX, lambda: health.refused("down", 0.0))
    repeat(FAILURES_MAX, lambda: health.failed("sick", 0.0))
    assert health.due(PROBE_AGAIN_SECONDS - 0.01) == []
    assert health.due(PROBE_AGAIN_SECONDS) == ["down"]
    assert health.due(EJECT_SECONDS - 0.01) == []
    assert health.due(EJECT_SECONDS) == ["sick"]


def test_an_instance_is_probed_by_one_probe_at_a_time(health: Health) -> None:
    repeat(REFUSALS_MAX, lambda: health.refused(H, 0.0))
    assert health.due(1.0) == [H]
    assert health.due(9.0) == []
    assert health.probed(H, False, 9.0) is False
    assert health.due(9.5) == []
    assert health.due(10.0) == [H]


def test_a_successful_probe_brings_it_back(health: Health) -> None:
    repeat(REFUSALS_MAX, lambda: health.refused(H, 0.0))
    health.due(1.0)
    assert health.probed(H, True, 1.0) is True
    assert health.out == set()
    assert health.due(100.0) == []
    assert health.refused(H, 2.0) is False, "a single refusal is no row"


def test_a_failing_instance_that_only_answers_its_ping_is_set_aside_longer_each_time(health: Health) -> None:
    """One more failure is enough, and the time doubles up to eightfold; a success ends that."""
    now, times = 0.0, []
    repeat(FAILURES_MAX, lambda: health.failed(H, now))
    for _ in range(6):
        began = now
        while not health.due(now):
            now += 0.5
        times.append(now - began)
        assert health.probed(H, True, now)
        assert health.failed(H, now) is True
    assert times == [EJECT_SECONDS * factor for factor in (1, 2, 4, 8, 8, 8)]
    while not health.due(now):
        now += 0.5
    health.probed(H, True, now)
    health.succeeded(H)
    assert health.failed(H, now) is False


def test_what_the_control_plane_reports_sets_aside_at_once(health: Health) -> None:
    health.reported("a", True, 0.0)
    health.reported("b", False, 0.0)
    assert health.out == {"b"}
    assert health.due(EJECT_SECONDS) == ["b"]
    health.probed("b", True, EJECT_SECONDS)
    assert health.out == set()


def test_a_good_report_does_not_outweigh_what_was_seen(health: Health) -> None:
    """A table is published for many reasons; requests failed here a moment ago."""
    repeat(FAILURES_MAX, lambda: health.failed(H, 0.0))
    health.reported(H, True, 1.0)
    assert health.out == {H}


def test_instances_that_left_are_forgotten(health: Health) -> None:
    """Nor are they probed; one that comes back under its name begins anew."""
    repeat(REFUSALS_MAX, lambda: health.refused(H, 0.0))
    assert health.due(1.0) == [H]
    health.forget_all_but({"other"})
    assert health.out == set()
    assert health.probed(H, True, 2.0) is False
    assert health.due(100.0) == []
    assert health.refused(H, 3.0) is False


events = st.lists(
    st.tuples(
        st.sampled_from(["refused", "failed", "succeeded", "good", "bad", "due", "answered", "silent", "forget"]),
        st.sampled_from(["a", "b"]),
    ),
    max_size=60,
)


@given(events, st.floats(0.1, 5))
def test_whoever_is_out_will_be_probed(steps: list[tuple[str, str]], pace: float) -> None:
    """No order of events leaves an instance set aside that nobody will ever ask again."""
    health, now, probing = Health(EJECT_SECONDS), 0.0, set()
    for step, name in steps:
        now += pace
        if step == "due":
            probing |= set(health.due(now))
        elif step in ("answered", "silent"):
            if name in probing:
                probing.discard(name)
                health.probed(name, step == "answered", now)
        elif step in ("good", "bad"):
            health.reported(name, step == "good", now)
        elif step == "forget":
            health.forget_all_but({name})
        elif step == "succeeded":
            health.succeeded(name)
        elif step == "failed":
            health.failed(name, now)
        else:
            health.refused(name, now)
    later = now + 8 * EJECT_SECONDS
    assert set(health.due(later)) | (probing & health.out) == health.out

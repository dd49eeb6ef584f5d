"""Three failures in a row, one success."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.host_health import FAILURES_MAX, HostState, after_probe


def run(outcomes: list[bool]) -> HostState:
    state = HostState(healthy=False, failures=0)
    for succeeded in outcomes:
        state = after_probe(state, succeeded=succeeded)
    return state


def test_a_host_is_unhealthy_until_its_first_success() -> None:
    assert not run([]).healthy
    assert not run([False]).healthy
    assert run([False, True]).healthy


def test_only_three_failures_in_a_row_make_it_unhealthy() -> None:
    assert run([True, False, False]).healthy
    assert run([True, False, False, True, False, False]).healthy
    assert not run([True, False, False, False]).healthy


@given(st.lists(st.booleans()))
def test_health_is_what_the_last_probes_say(outcomes: list[bool]) -> None:
    state = run(outcomes)
    recent = outcomes[-FAILURES_MAX:]
    assert state.healthy == (True in outcomes and (len(recent) < FAILURES_MAX or any(recent)))
    assert 0 <= state.failures <= FAILURES_MAX

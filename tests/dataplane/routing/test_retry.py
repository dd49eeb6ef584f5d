from hypothesis import given
from hypothesis import strategies as st

from dataplane.host import Failure
from dataplane.routing.retry import Next, next_step

lefts = st.integers(0, 5)
budgets = st.floats(0, 50)
seconds = st.floats(-5, 5)


@given(st.sampled_from([Failure.LOST, Failure.SILENT, Failure.MALFORMED, Failure.BROKEN]), lefts, budgets, seconds)
def test_what_a_host_may_have_run_is_never_sent_again(failure: Failure, left: int, budget: float, time: float) -> None:
    assert next_step(failure, left, budget, time) is Next.GIVE_UP


@given(lefts, budgets, seconds)
def test_a_refused_connection_goes_elsewhere_within_the_limits(left: int, budget: float, time: float) -> None:
    may_retry = left > 0 and budget >= 1 and time > 0
    assert next_step(Failure.REFUSED, left, budget, time) is (Next.OTHER if may_retry else Next.GIVE_UP)

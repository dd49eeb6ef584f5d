from dataplane.routing.retry import BUDGET_MAX, BUDGET_SHARE
from dataplane.state.budget import RetryBudget


def test_a_quiet_worker_may_retry_at_once() -> None:
    assert RetryBudget().left == BUDGET_MAX


def test_retries_are_a_share_of_the_requests() -> None:
    """A fleet of which every host refuses gets a fifth more connections, not N times as many."""
    budget = RetryBudget()
    retries = 0
    for _ in range(10_000):
        budget.earn()
        while budget.left >= 1:
            budget.spend()
            retries += 1
    assert retries <= BUDGET_MAX + 10_000 * BUDGET_SHARE
    assert retries >= 10_000 * BUDGET_SHARE


def test_no_more_is_saved_up_than_the_limit() -> None:
    budget = RetryBudget()
    budget.spend()
    for _ in range(1_000):
        budget.earn()
    assert BUDGET_MAX <= budget.left < BUDGET_MAX + BUDGET_SHARE

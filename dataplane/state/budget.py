"""How many retries there are left: each request earns a fifth of one, each retry costs one."""

from dataplane.routing.retry import BUDGET_MAX, BUDGET_SHARE


class RetryBudget:
    """``left`` retries; starts full, so that the first failure of a quiet worker is retried."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = BUDGET_MAX

    def earn(self) -> None:
        if self.left < BUDGET_MAX:
            self.left += BUDGET_SHARE

    def spend(self) -> None:
        self.left -= 1

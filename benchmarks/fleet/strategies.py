"""The strategies as rules: the product's own decisions (dataplane/routing/admission.py), not copies. Pure."""

from collections.abc import Callable, Sequence

from dataplane.routing.admission import Outcome, pick, pick_least

Rule = Callable[[Sequence[int], int, int], tuple[int, Outcome]]
"""(requests in flight by rank, best first; threshold; dice, any integer >= 0) -> (rank, outcome)."""


def in_force(counts: Sequence[int], threshold: int, dice: int) -> tuple[int, Outcome]:
    """PREFIX_AWARE."""
    return pick(counts, threshold)


def least_outstanding(counts: Sequence[int], threshold: int, dice: int) -> tuple[int, Outcome]:
    """LEAST_OUTSTANDING_REQUESTS."""
    return pick_least(counts, dice)


def random_rank(counts: Sequence[int], threshold: int, dice: int) -> tuple[int, Outcome]:
    """RANDOM."""
    return dice % len(counts), Outcome.RANDOM


STRATEGIES: dict[str, Rule] = {
    "PREFIX_AWARE": in_force,
    "LEAST_OUTSTANDING_REQUESTS": least_outstanding,
    "RANDOM": random_rank,
}

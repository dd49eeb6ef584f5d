"""The rules that are compared. Pure; the product's own is dataplane/routing/admission.py itself, not a copy.

A rule says which rank takes a request. It is put together of two parts, as admission.pick is: where to when some
instance is under the threshold but not the home (overflow), and where to when none is (saturated).
"""

from collections.abc import Callable, Sequence

from benchmarks.fleet.strategies import Rule, in_force
from dataplane.routing.admission import Outcome, pick

Overflow = Callable[[Sequence[int], Sequence[int], int], int]
"""(in flight by rank; ranks under the threshold, best first, at least one; dice) -> one of those ranks."""
Saturated = Callable[[Sequence[int]], int]
"""(in flight by rank, all at the threshold) -> rank."""


def compose(overflow: Overflow, saturated: Saturated) -> Rule:
    """Return the rule of two parts."""

    def rule(counts: Sequence[int], threshold: int, dice: int) -> tuple[int, Outcome]:
        if counts[0] < threshold:
            return 0, Outcome.HOME
        free = [rank for rank, count in enumerate(counts) if count < threshold]
        if free:
            return overflow(counts, free, dice), Outcome.OVERFLOW
        return saturated(counts), Outcome.ALL_SATURATED

    return rule


# --- overflow ---------------------------------------------------------------------------------------------------------


def first_free(counts: Sequence[int], free: Sequence[int], dice: int) -> int:
    return free[0]


def lighter_of_two_free(counts: Sequence[int], free: Sequence[int], dice: int) -> int:
    return min(free[:2], key=counts.__getitem__)


def least_of_free(counts: Sequence[int], free: Sequence[int], dice: int) -> int:
    return min(free, key=counts.__getitem__)


def random_free(counts: Sequence[int], free: Sequence[int], dice: int) -> int:
    return free[dice % len(free)]


# --- saturated --------------------------------------------------------------------------------------------------------


def owner(counts: Sequence[int]) -> int:
    return 0


def least_loaded(counts: Sequence[int]) -> int:
    return min(range(len(counts)), key=counts.__getitem__)


def lighter_of_two(counts: Sequence[int]) -> int:
    return min(range(min(2, len(counts))), key=counts.__getitem__)


def bounded(counts: Sequence[int]) -> int:
    """Return the first rank that is within 1.25 of the mean (consistent hashing with bounded loads)."""
    return next(rank for rank in range(len(counts)) if is_within_quarter(counts, rank))


def mix(counts: Sequence[int]) -> int:
    """Return home or the lighter of two while within 1.1 of the mean, else the first rank that is.

    Written apart from the product's, which the tests hold against it.
    """
    bound = 1.1 * sum(counts) / len(counts) + 1e-9
    ranks: list[int] = [0, lighter_of_two(counts), *range(len(counts))]
    return next(rank for rank in ranks if counts[rank] <= bound)


def home_else_least(counts: Sequence[int]) -> int:
    """Return home while it is within 1.25 of the mean, else the least loaded of all."""
    return 0 if is_within_quarter(counts, 0) else least_loaded(counts)


def home_else_mean(counts: Sequence[int]) -> int:
    """Return home while it is within 1.25 of the mean, else the first rank at or below the mean; there is one."""
    if is_within_quarter(counts, 0):
        return 0
    return next(rank for rank, count in enumerate(counts) if count * len(counts) <= sum(counts))


def is_within_quarter(counts: Sequence[int], rank: int) -> bool:
    return 4 * len(counts) * counts[rank] <= 5 * sum(counts)


OVERFLOW: dict[str, Overflow] = {
    "first free rank": first_free,
    "lighter of the first two free": lighter_of_two_free,
    "least loaded of the free": least_of_free,
    "random free": random_free,
}
SATURATED: dict[str, Saturated] = {
    "home": owner,
    "least loaded": least_loaded,
    "lighter of ranks 1-2": lighter_of_two,
    "bounded 1.25": bounded,
    "mix 1.1": mix,
    "home 1.25, else least loaded": home_else_least,
    "home 1.25, else first at the mean": home_else_mean,
}
IN_FORCE = ("least loaded of the free", "home 1.25, else first at the mean")
"""What dataplane/routing/admission.py does; a test holds the two against each other."""


_made: dict[tuple[str, str], Rule] = {}


def rule_of(overflow: str, saturated: str) -> Rule:
    """Return the rule of two named parts, always the same object; the rule in force is the product's own code."""
    if (overflow, saturated) == IN_FORCE:
        return in_force
    return _made.setdefault((overflow, saturated), compose(OVERFLOW[overflow], SATURATED[saturated]))


def rule_named(name: str) -> Rule:
    """Return the rule of one named part, the other part as it is in force, or the whole rule of that name."""
    if name in WHOLE:
        return WHOLE[name]
    return rule_of(IN_FORCE[0], name) if name in SATURATED else rule_of(name, IN_FORCE[1])


# --- whole rules ------------------------------------------------------------------------------------------------------


def two_ranks_only(counts: Sequence[int], threshold: int, dice: int) -> tuple[int, Outcome]:
    """Keep a key on its first two ranks even when others are free: past the threshold, so against the API's words."""
    return pick(counts[:2], threshold)


WHOLE: dict[str, Rule] = {"first two ranks only": two_ranks_only}


# --- what any rule in force must keep ---------------------------------------------------------------------------------


def twelve_at_once(rule: Rule) -> list[int]:
    """Return the counts of three hosts, threshold 2, after twelve requests of one prefix of which none has ended."""
    counts = [0, 0, 0]
    for dice in range(12):
        counts[rule(counts, 2, dice)[0]] += 1
    return counts


def meets_load(rule: Rule) -> bool:
    """Whether, home and rank 2 at the threshold, the request goes to the lighter of the two others, whatever dice."""
    return all(rule([2, 2, 1, 0], 2, dice)[0] == 3 and rule([2, 2, 0, 1], 2, dice)[0] == 2 for dice in range(12))


def keeps_constraints(rule: Rule) -> bool:
    counts = twelve_at_once(rule)
    return max(counts) - min(counts) <= 2 and meets_load(rule)

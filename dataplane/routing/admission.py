"""Which instance takes the request, given how many each has in flight.

The rule of state/admission.lua, which runs it atomically for all workers. This twin is its oracle in the tests and
decides when the store is away. Sources: the API's words for ConcurrencyThreshold (at the threshold, another instance
with more capacity); docs/adr/0004 for the order of overflow and for what happens when all are at it.
"""

from collections.abc import Sequence
from enum import IntEnum


class Outcome(IntEnum):
    """How an instance was chosen; the numbers are what the script returns, the names are the metric's labels."""

    HOME = 0
    OVERFLOW = 1
    ALL_SATURATED = 2
    LEAST_OUTSTANDING = 3
    SINGLE = 4
    RANDOM = 5
    NO_KEY = 6


def pick(counts: Sequence[int], threshold: int) -> tuple[int, Outcome]:
    """Return (rank, outcome) for a key whose instances, best rank first, have ``counts`` requests in flight.

    Home while it is under the threshold; else the fewest in flight of those under it, the better rank of a tie; else,
    all being at it, home while within a quarter of the mean, else the first rank at or below the mean.
    """
    if counts[0] < threshold:
        return 0, Outcome.HOME
    free = [rank for rank, count in enumerate(counts) if count < threshold]
    if free:
        return min(free, key=counts.__getitem__), Outcome.OVERFLOW
    return _saturated(counts), Outcome.ALL_SATURATED


def pick_alone(own: Sequence[int], known: Sequence[int], share: int) -> tuple[int, Outcome]:
    """The same choice without the store: ``own`` are this worker's counts, ``known`` the fleet's as last heard.

    ``share`` is this worker's part of the threshold. Keyed on own counts, a key stays on its home however old
    ``known`` is; ``known`` only says which of the others is lighter.
    """
    if own[0] < share:
        return 0, Outcome.HOME
    free = [rank for rank, count in enumerate(own) if count < share]
    if free:
        return min(free, key=known.__getitem__), Outcome.OVERFLOW
    return _saturated(known), Outcome.ALL_SATURATED


def _saturated(counts: Sequence[int]) -> int:
    # In integers, as in the script. Chance alone takes a warm home some way above the mean, so leaving it is for more
    # than that; and what leaves is worth a cold start only where it levels the fleet. Some count is at most the mean.
    total, n = sum(counts), len(counts)
    if 4 * n * counts[0] <= 5 * total:
        return 0
    return next(rank for rank, count in enumerate(counts) if n * count <= total)


def pick_least(counts: Sequence[int], dice: int) -> tuple[int, Outcome]:
    """Return (position, outcome) of an instance with the fewest in flight; ``dice``, any integer >= 0, breaks ties."""
    least = min(counts)
    tied = [position for position, count in enumerate(counts) if count == least]
    return tied[dice % len(tied)], Outcome.LEAST_OUTSTANDING

"""Key -> instances in order of preference (rendezvous hashing).

A key falls into one of 65,536 slots and each slot ranks all instances by hash(identity, slot), highest first. Slots
bound the memory of remembered orders however many distinct prefixes pass by, and make the ranking of a thousand
instances a look-up. Adding or removing one of N instances moves the slots that instance wins, 1/N of them; nothing
else. With N instances each owns 65,536/N slots with a deviation of sqrt(N/65,536), 1% for 7 and 12% for 1,000.
"""

from collections.abc import Sequence
from heapq import nlargest

from xxhash import xxh3_64_intdigest

SLOTS = 65_536
RANKS = 8
"""How many ranks are computed and sent for an admission. All of them only when these are all at the threshold."""

_SLOT_BYTES = 2
_SMALL = 32
"""Up to this many instances an order takes some µs to compute, so few of them are remembered."""
_REMEMBERED_SMALL = 4_096


class InstanceOrder:
    """The preference of every key over one variant's instances. Same identities, same orders, in every process."""

    __slots__ = ("_numbers", "_remembered", "_remembered_max", "_seeds")

    def __init__(self, identities: Sequence[str], numbers: Sequence[int]) -> None:
        """``numbers[i]`` is what stands for ``identities[i]`` in an order."""
        self._seeds = [xxh3_64_intdigest(identity.encode()) for identity in identities]
        self._numbers = tuple(numbers)
        self._remembered: dict[int, tuple[int, ...]] = {}
        self._remembered_max = _REMEMBERED_SMALL if len(identities) <= _SMALL else SLOTS

    def first(self, key: int) -> tuple[int, ...]:
        """Return the first RANKS instances for ``key`` (all, when there are no more), best first."""
        slot = key % SLOTS
        order = self._remembered.get(slot)
        if order is None:
            if len(self._remembered) >= self._remembered_max:
                self._remembered.clear()
            best = nlargest(RANKS, range(len(self._seeds)), self._scores(slot).__getitem__)
            order = self._remembered[slot] = tuple([self._numbers[position] for position in best])
        return order

    def all(self, key: int) -> tuple[int, ...]:
        """Return all instances, best first. O(N log N); for keys whose first ranks are all busy."""
        scores = self._scores(key % SLOTS)
        best = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
        return tuple([self._numbers[position] for position in best])

    def _scores(self, slot: int) -> list[int]:
        data = slot.to_bytes(_SLOT_BYTES, "little")
        return [xxh3_64_intdigest(data, seed) for seed in self._seeds]

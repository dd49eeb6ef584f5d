"""Counting what repeats, in memory that does not grow with the log. Pure.

Keys are 64-bit hashes, so the smallest of them are a fair sample: one that is kept is kept from its first occurrence
on, and its count is exact.
"""

from dataclasses import dataclass, field

GROUPS_KEPT = 16_384
"""Counted one by one; more of them are estimated from a sample of at least half as many, 1% of standard error."""
LARGEST_KEPT = 1_024
"""Candidates for the largest group; its count is at most 1 / LARGEST_KEPT of the requests too low."""
_SPAN = 2**64


@dataclass(slots=True)
class Groups:
    """Groups of requests with one key. Exact up to ``kept`` groups."""

    kept: int = GROUPS_KEPT
    requests: int = 0
    _limit: int = _SPAN
    _counts: dict[int, int] = field(default_factory=dict)
    _largest: "Largest | None" = None
    """Only once the counts are a sample."""

    def add(self, key: int) -> None:
        self.requests += 1
        if self._largest is not None:
            self._largest.add(key)
        if key < self._limit:
            self._counts[key] = self._counts.get(key, 0) + 1
            if len(self._counts) > self.kept:
                self._halve()

    def _halve(self) -> None:
        if self._largest is None:
            self._largest = Largest.of(self._counts)
        self._limit //= 2
        self._counts = {key: count for key, count in self._counts.items() if key < self._limit}

    @property
    def is_exact(self) -> bool:
        return self._largest is None

    @property
    def number(self) -> int:
        """How many groups there are."""
        return round(len(self._counts) * (_SPAN / self._limit))

    @property
    def alone(self) -> float:
        """Share of the groups that have one request."""
        return sum(count == 1 for count in self._counts.values()) / max(1, len(self._counts))

    @property
    def largest_share(self) -> float:
        """Share of the requests that are in the largest group; at most 1 / LARGEST_KEPT too low."""
        most = self._largest.most if self._largest is not None else max(self._counts.values(), default=0)
        return most / max(1, self.requests)


@dataclass(slots=True)
class Largest:
    """The heaviest keys of a stream (the algorithm of Misra and Gries). Counts are low by at most 1 / kept of all."""

    kept: int = LARGEST_KEPT
    _counts: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, counts: dict[int, int], kept: int = LARGEST_KEPT) -> "Largest":
        """Return the summary of what was counted exactly so far."""
        ranked = sorted(counts, key=counts.__getitem__, reverse=True)
        below = counts[ranked[kept]] if len(ranked) > kept else 0
        return cls(kept, {key: counts[key] - below for key in ranked[:kept] if counts[key] > below})

    def add(self, key: int) -> None:
        if key in self._counts:
            self._counts[key] += 1
        elif len(self._counts) < self.kept:
            self._counts[key] = 1
        else:
            self._counts = {other: count - 1 for other, count in self._counts.items() if count > 1}

    @property
    def most(self) -> int:
        return max(self._counts.values(), default=0)

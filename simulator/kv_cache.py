"""The KV cache of one model host: blocks shared by prefix, counted, evicted least recently used first.

Semantics are those of vLLM's automatic prefix caching (its design document "Automatic Prefix Caching"): full blocks are
found by a hash that is chained over everything before them; a block that running sequences use is never evicted; a
block that none uses keeps its content until room is needed; among those, the least recently released goes first, and of
one sequence the last block first. Blocks that are found together are kept together: a *segment* is a run of blocks with
no branch inside, so every call costs the number of segments on a path, never the number of blocks in the cache.

One difference: sequences that compute the same block at the same time share one copy afterwards; vLLM keeps both until
they are released. Pure: no clock, no I/O.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush


@dataclass(slots=True, eq=False)
class Segment:
    """A run of blocks that follow one another. Callers hold it as an opaque handle on "the prefix that ends here"."""

    parent: "Segment | None"
    hashes: list[int]
    end: int
    """Blocks from the start of the prompt to the end of this segment."""
    holders: int = 0
    """Sequences that use these blocks. Equal for all blocks of a segment."""
    released: int = 0
    """When the last holder left, as a count of releases."""
    children: "dict[int, Segment]" = field(default_factory=dict)
    """By the hash of their first block."""


class KvCache:
    """A pool of ``capacity`` blocks.

    A block is in one of four places: free, *private* (reserved by a sequence, not findable: a partial block, or one
    that is being generated), *active* (findable and held) or idle (findable and held by none, so evictable).
    """

    def __init__(self, capacity: int) -> None:
        """``capacity`` in blocks, at least 1."""
        if capacity < 1:
            raise ValueError("the KV cache needs at least one block")
        self.capacity = capacity
        self.private = 0
        self.findable = 0
        self.active = 0
        self.root = Segment(None, [], 0)
        self._releases = 0
        self._segments = 0
        self._offers = 0
        # (released, tie-break, segment): leaves that may be evicted, oldest first. An entry whose segment was held,
        # extended or emptied since is stale and skipped; see _is_current.
        self._evictable: list[tuple[int, int, Segment]] = []

    @property
    def available(self) -> int:
        """Blocks that reserve() can give: free ones and idle ones."""
        return self.capacity - self.private - self.active

    @property
    def usage(self) -> float:
        """Share of the blocks that running sequences hold, 0 to 1: vLLM's ``kv_cache_usage_perc``."""
        return (self.private + self.active) / self.capacity

    def probe(self, blocks: Sequence[int], limit: int) -> tuple[int, int]:
        """Return how many of the first ``limit`` blocks are found, and how many of those are idle. Changes nothing.

        ``blocks`` are chained hashes: equal at one place means equal everywhere before it.
        """
        segment, depth, idle = self.root, 0, 0
        while depth < limit:
            child = segment.children.get(blocks[depth])
            if child is None:
                break
            reached = _common_end(child, blocks, limit)
            if not child.holders:
                idle += reached - depth
            depth = reached
            if reached < child.end:
                break
            segment = child
        return depth, idle

    def acquire(self, blocks: Sequence[int], limit: int) -> Segment:
        """Hold the longest known prefix of ``blocks``, of at most ``limit`` blocks. Undone by release()."""
        segment = self.root
        while segment.end < limit:
            child = segment.children.get(blocks[segment.end])
            if child is None:
                break
            segment = self._enter(child, _common_end(child, blocks, limit))
        return segment

    def reserve(self, count: int) -> None:
        """Take ``count`` private blocks, evicting idle ones as needed. Raises MemoryError if not that many are
        available; nothing is taken then."""
        if count > self.available:
            raise MemoryError(f"{count} KV blocks asked for, {self.available} available")
        self.private += count
        lacking = self.private + self.findable - self.capacity
        if lacking > 0:
            self._evict(lacking)

    def unreserve(self, count: int) -> None:
        """Give ``count`` private blocks back."""
        if not 0 <= count <= self.private:
            raise ValueError(f"{count} KV blocks given back, {self.private} are reserved")
        self.private -= count

    def extend(self, segment: Segment, blocks: Sequence[int], upto: int) -> Segment:
        """Make the blocks from ``segment``'s end to ``upto`` findable and held; return the new handle.

        They were reserved by the caller. One that somebody else made findable meanwhile is shared instead and the
        caller's private copy freed.
        """
        while segment.end < upto:
            child = segment.children.get(blocks[segment.end])
            if child is None:
                return self._append(segment, list(blocks[segment.end : upto]), upto)
            reached = _common_end(child, blocks, upto)
            self.private -= reached - segment.end
            segment = self._enter(child, reached)
        return segment

    def release(self, segment: Segment) -> None:
        """Let go of the whole prefix that ends at ``segment``. Its blocks stay findable until they are evicted."""
        self._releases += 1
        node: Segment = segment
        while node.parent is not None:
            node.holders -= 1
            if node.holders == 0:
                self.active -= len(node.hashes)
                node.released = self._releases
                if not node.children:
                    self._offer(node)
            node = node.parent

    def clear(self) -> None:
        """Forget every idle block, as after a restart of the engine."""
        self._evict(self.findable - self.active)

    def _enter(self, child: Segment, reached: int) -> Segment:
        """Hold ``child`` up to ``reached``, cutting it in two if that is inside it."""
        if reached < child.end:
            child = self._split(child, reached)
        if child.holders == 0:
            self.active += len(child.hashes)
        child.holders += 1
        return child

    def _append(self, segment: Segment, hashes: list[int], upto: int) -> Segment:
        self.private -= len(hashes)
        self.findable += len(hashes)
        self.active += len(hashes)
        if segment.parent is not None and segment.holders == 1 and not segment.children:
            # The caller alone holds this leaf, so it grows instead of getting a child per chunk or generated block.
            segment.hashes.extend(hashes)
            segment.end = upto
            return segment
        child = Segment(segment, hashes, upto, holders=1)
        segment.children[hashes[0]] = child
        self._segments += 1
        return child

    def _split(self, lower: Segment, at: int) -> Segment:
        """Cut ``lower`` after block ``at``; return the new upper part. ``lower`` stays the handle of its holders."""
        parent = lower.parent
        assert parent is not None, "the root holds no blocks and is never cut"
        cut = at - lower.end + len(lower.hashes)
        upper = Segment(parent, lower.hashes[:cut], at, lower.holders, lower.released)
        del lower.hashes[:cut]
        upper.children[lower.hashes[0]] = lower
        parent.children[upper.hashes[0]] = upper
        lower.parent = upper
        self._segments += 1
        return upper

    def _offer(self, leaf: Segment) -> None:
        self._offers += 1
        heappush(self._evictable, (leaf.released, self._offers, leaf))
        if len(self._evictable) > 64 + 4 * self._segments:
            self._evictable = [entry for entry in self._evictable if _is_current(entry)]
            heapify(self._evictable)

    def _evict(self, count: int) -> None:
        while count > 0:
            entry = self._evictable[0]
            if not _is_current(entry):
                heappop(self._evictable)
                continue
            leaf = entry[2]
            taken = min(count, len(leaf.hashes))
            count -= taken
            self.findable -= taken
            if taken < len(leaf.hashes):
                del leaf.hashes[-taken:]
                leaf.end -= taken
                return
            heappop(self._evictable)
            self._remove(leaf)

    def _remove(self, leaf: Segment) -> None:
        parent = leaf.parent
        assert parent is not None, "the root is never offered"
        del parent.children[leaf.hashes[0]]
        leaf.hashes.clear()
        self._segments -= 1
        # The parent was released no earlier than the child, so its turn comes now or later.
        if parent.parent is not None and not parent.children and not parent.holders:
            self._offer(parent)


def _common_end(child: Segment, blocks: Sequence[int], limit: int) -> int:
    """Return up to which block ``child``, whose first block matches, agrees with ``blocks[:limit]``."""
    start = child.end - len(child.hashes)
    high = min(child.end, limit)
    if child.hashes[high - start - 1] == blocks[high - 1]:
        return high
    low = start + 1
    while high - low > 1:
        middle = (low + high) // 2
        if child.hashes[middle - start - 1] == blocks[middle - 1]:
            low = middle
        else:
            high = middle
    return low


def _is_current(entry: tuple[int, int, Segment]) -> bool:
    released, _, leaf = entry
    return not leaf.holders and not leaf.children and leaf.released == released and bool(leaf.hashes)

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from simulator.kv_cache import KvCache, Segment
from tests.simulator.reference import NaiveCache


def chain(*path: int) -> list[int]:
    """Hashes of a prompt whose blocks have these contents: equal exactly for equal beginnings."""
    return [hash(path[: depth + 1]) for depth in range(len(path))]


# Few contents and short prompts, so that prompts share beginnings, branch and collide with eviction.
prompts = st.lists(st.integers(0, 2), min_size=1, max_size=9).map(lambda path: chain(*path))


class CacheAgainstOracle(RuleBasedStateMachine):
    """Random prompts are held, extended and released; the cache must agree with the block-by-block oracle."""

    @initialize(capacity=st.integers(1, 24))
    def start(self, capacity: int) -> None:
        self.cache = KvCache(capacity)
        self.oracle = NaiveCache(capacity)
        self.held: list[tuple[list[int], Segment, int]] = []

    @rule(blocks=prompts, data=st.data())
    def take(self, blocks: list[int], data: st.DataObject) -> None:
        limit = data.draw(st.integers(0, len(blocks)))
        depth, idle = self.cache.probe(blocks, limit)
        assert depth == self.oracle.known(blocks, limit)
        assert idle == sum(block in self.oracle.idle for block in blocks[:depth])
        segment = self.cache.acquire(blocks, limit)
        assert segment.end == depth
        for block in blocks[:depth]:
            self.oracle.hold(block)
        self.held.append((blocks, segment, depth))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.held) - 1))
        blocks, segment, depth = self.held[index]
        upto = data.draw(st.integers(depth, len(blocks)))
        assert self.cache.available == self.oracle.available
        if upto - depth > self.cache.available:
            with pytest.raises(MemoryError):
                self.cache.reserve(upto - depth)
            return
        self.cache.reserve(upto - depth)
        self.oracle.reserve(upto - depth)
        for block in blocks[depth:upto]:
            self.oracle.publish(block)
        self.held[index] = (blocks, self.cache.extend(segment, blocks, upto), upto)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        blocks, segment, depth = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        assert segment.end == depth
        self.cache.release(segment)
        self.oracle.release(blocks[:depth])

    @rule(count=st.integers(0, 4))
    def evict_some(self, count: int) -> None:
        count = min(count, self.cache.available)
        self.cache.reserve(count)
        self.oracle.reserve(count)
        self.cache.unreserve(count)
        self.oracle.private -= count

    @invariant()
    def agrees(self) -> None:
        assert 0 <= self.cache.active <= self.cache.findable
        assert self.cache.private + self.cache.findable <= self.cache.capacity
        assert self.cache.findable == len(self.oracle.holders)
        assert self.cache.active == len(self.oracle.holders) - len(self.oracle.idle)
        assert known_blocks(self.cache.root) == self.oracle.holders


def known_blocks(segment: Segment) -> dict[int, int]:
    """Every findable block with its holders, and the shape of the tree on the way."""
    found = dict.fromkeys(segment.hashes, segment.holders)
    for first, child in segment.children.items():
        assert child.parent is segment
        assert child.hashes[0] == first
        assert child.end == segment.end + len(child.hashes)
        found |= known_blocks(child)
    return found


CacheAgainstOracle.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCacheAgainstOracle = CacheAgainstOracle.TestCase


def fill(cache: KvCache, blocks: list[int]) -> Segment:
    segment = cache.acquire(blocks, len(blocks))
    cache.reserve(len(blocks) - segment.end)
    return cache.extend(segment, blocks, len(blocks))


def test_least_recently_released_goes_first_and_the_last_block_before_the_first() -> None:
    cache = KvCache(6)
    old, new = chain(1, 2, 3), chain(4, 5, 6)
    first, second = fill(cache, old), fill(cache, new)
    cache.release(first)
    cache.release(second)
    cache.reserve(2)
    assert cache.probe(old, 3)[0] == 1
    assert cache.probe(new, 3)[0] == 3
    cache.reserve(2)
    assert cache.probe(old, 3)[0] == 0
    assert cache.probe(new, 3)[0] == 2


def test_a_hit_makes_a_prefix_recent_again() -> None:
    cache = KvCache(6)
    old, new = chain(1, 2, 3), chain(4, 5, 6)
    for blocks in (old, new):
        cache.release(fill(cache, blocks))
    cache.release(cache.acquire(old, 3))
    cache.reserve(3)
    assert cache.probe(old, 3)[0] == 3
    assert cache.probe(new, 3)[0] == 0


def test_what_is_held_is_never_evicted() -> None:
    cache = KvCache(4)
    held = fill(cache, chain(1, 2, 3))
    assert cache.available == 1
    with pytest.raises(MemoryError):
        cache.reserve(2)
    assert cache.probe(chain(1, 2, 3), 3)[0] == 3
    cache.release(held)
    cache.reserve(4)
    assert cache.findable == 0


def test_giving_back_what_was_not_reserved_is_refused() -> None:
    cache = KvCache(4)
    cache.reserve(1)
    with pytest.raises(ValueError, match="1 are reserved"):
        cache.unreserve(2)


def test_clear_keeps_what_is_held() -> None:
    cache = KvCache(10)
    cache.release(fill(cache, chain(1, 2)))
    fill(cache, chain(3, 4))
    cache.clear()
    assert cache.probe(chain(1, 2), 2)[0] == 0
    assert cache.probe(chain(3, 4), 2)[0] == 2


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=2000, unique=True), st.data())
def test_a_long_segment_is_matched_exactly_up_to_where_the_prompts_part(path: list[int], data: st.DataObject) -> None:
    cache = KvCache(2000)
    blocks = [hash((0, *path[:1])) + index * 7 for index in range(len(path))]
    cache.release(fill(cache, blocks))
    part = data.draw(st.integers(0, len(path)))
    other = blocks[:part] + [-block - 1 for block in blocks[part:]]
    assert cache.probe(other, len(other))[0] == part


def test_the_cost_does_not_grow_with_stale_entries() -> None:
    cache = KvCache(100)
    blocks = chain(1, 2, 3)
    cache.release(fill(cache, blocks))
    for _ in range(5000):
        cache.release(cache.acquire(blocks, 3))
    assert len(cache._evictable) < 100

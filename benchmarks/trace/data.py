"""The trace: where it is, what it holds, and how much of it any cache could find."""

import hashlib
import json
import os
import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from benchmarks.errors import InputMissing
from simulator.calibration import BLOCK_TOKENS as ENGINE_BLOCK_TOKENS
from simulator.kv_cache import KvCache
from warmroute.advise import mooncake
from warmroute.advise.mooncake import BLOCK_TOKENS

VARIABLE = "MOONCAKE_TRACE"
ENGINE_BLOCKS = BLOCK_TOKENS // ENGINE_BLOCK_TOKENS
"""Blocks of the engine in one of the trace."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of the trace."""

    at: float
    """Seconds from the start."""
    prompt_tokens: int
    output_tokens: int
    blocks: "array[int]"
    """The engine's, those of the prompt that are full."""
    keys: tuple[int, ...]
    """One for each PrefixLength asked for."""
    ids: tuple[int, ...]
    """The trace's own blocks, the last one mostly partial."""


def location() -> Path:
    """Return the trace's file. Raises InputMissing."""
    path = Path(os.environ.get(VARIABLE, "conversation_trace.jsonl"))
    if not path.is_file():
        raise InputMissing(
            f"the part trace needs conversation_trace.jsonl, which is not at {path}. It was released with the Mooncake "
            "paper (FAST'25) under the Apache License 2.0: repository kvcache-ai/Mooncake on GitHub, folder "
            f"FAST25-release/traces. Then: make bench PART=trace {VARIABLE}=path/to/conversation_trace.jsonl"
        )
    return path


@lru_cache(maxsize=2)
def load(path: Path, lengths: tuple[int, ...]) -> list[Arrival]:
    """Return the requests of the trace, with the product's keys at ``lengths``."""
    arrivals = []
    with path.open("rb") as lines:
        for line in lines:
            found = mooncake.parse(line)
            entry = mooncake.entry_of(found)
            keys = [key for length in lengths if (key := entry.key(length)) is not None]
            assert entry.at is not None
            assert len(keys) == len(lengths)
            arrivals.append(Arrival(entry.at, entry.prompt_tokens, entry.output_tokens, entry.blocks, tuple(keys),
                                    tuple(found.hash_ids)))  # fmt: skip
    return arrivals


def found_blocks(arrival: Arrival, cached_tokens: int) -> int:
    """Return how many of the trace's blocks are found when so many tokens are.

    The last block is mostly a partial one; it is found when all is found that an engine can find: full 16-token blocks,
    and never the last token.
    """
    whole, rest = divmod(cached_tokens, BLOCK_TOKENS)
    most = (arrival.prompt_tokens - 1) // ENGINE_BLOCK_TOKENS * ENGINE_BLOCK_TOKENS
    return whole + (rest > 0 and cached_tokens == most)


def bound(arrivals: Sequence[Arrival]) -> tuple[float, float]:
    """Return the shares of the trace's blocks, and of the prompt tokens, that one cache without bounds would find.

    Blocks as the trace has them, the partial last one for whole, equal leading ids found.
    """
    seen: set[int] = set()
    cache = KvCache(sum(len(arrival.blocks) for arrival in arrivals) + 1)
    blocks = found = tokens = cached = 0
    for arrival in arrivals:
        blocks += len(arrival.ids)
        found += next((place for place, one in enumerate(arrival.ids) if one not in seen), len(arrival.ids))
        seen.update(arrival.ids)
        tokens += arrival.prompt_tokens
        segment = cache.acquire(arrival.blocks, (arrival.prompt_tokens - 1) // ENGINE_BLOCK_TOKENS)
        cached += segment.end * ENGINE_BLOCK_TOKENS
        cache.reserve(len(arrival.blocks) - segment.end)
        cache.release(cache.extend(segment, arrival.blocks, len(arrival.blocks)))
    return found / blocks, cached / tokens


def fingerprint(path: Path) -> str:
    """Return the start of the file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def made_up(path: Path, requests: int) -> Path:
    """Write a small trace of the same form, to show that the part works: chats that grow by a block a turn."""
    dice = random.Random(1)  # noqa: S311
    chats = {chat: [0] for chat in range(max(1, requests // 6))}
    lines = []
    for number in range(requests):
        ids = chats[dice.randrange(len(chats))]
        ids.append(number + 1)
        lines.append(json.dumps({"timestamp": 100 * number, "input_length": BLOCK_TOKENS * len(ids),
                                 "output_length": 20, "hash_ids": ids}))  # fmt: skip
    path.write_text("\n".join(lines) + "\n")
    return path

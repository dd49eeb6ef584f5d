"""What the engine keeps of a request, the events it reports and what it counts. Data only."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from simulator.kv_cache import Segment


class PromptTooLong(ValueError):
    """Prompt and answer together exceed what the host can hold."""

    def __init__(self, prompt_tokens: int, output_tokens: int, limit: int) -> None:
        super().__init__(
            f"This host holds at most {limit} tokens; {prompt_tokens} of the prompt and {output_tokens} of the answer "
            f"are {prompt_tokens + output_tokens}. Shorten the prompt or ask for fewer tokens."
        )


class Stage(Enum):
    """Where a request is. WAITING -> PREFILL -> GENERATE -> DONE; preemption leads back to WAITING, abort to DONE."""

    WAITING = "waiting"
    PREFILL = "prefill"
    GENERATE = "generate"
    DONE = "done"


@dataclass(slots=True, eq=False)
class Request:
    """One request. The first group is for readers; the second belongs to the engine. Times as the engine's."""

    id: Hashable
    blocks: Sequence[int]
    prompt_tokens: int
    output_tokens: int
    submitted_at: float
    segment: Segment
    stage: Stage = Stage.WAITING
    admitted_at: float | None = None
    first_token_at: float | None = None
    finished_at: float | None = None
    cached_tokens: int = 0
    """Prompt tokens that were found in the cache when it was first admitted."""
    preemptions: int = 0

    target: int = field(init=False)
    """Tokens to compute before the next one can be generated: the prompt, and after a preemption the answer so far."""
    computed: int = 0
    held: int = 0
    """Blocks it holds, findable and private, while it is in PREFILL."""
    generated: int = 0
    """Tokens generated when it joined the generating sequences (or was preempted)."""
    joined: int = 0
    """The engine's tick at which it joined."""
    join: int = 0
    """Number of that joining, so that what was planned for an earlier one is known to be stale."""

    def __post_init__(self) -> None:
        self.target = self.prompt_tokens


class Kind(Enum):
    """What happened to a request."""

    FIRST_TOKEN = "first_token"  # noqa: S105 - a token of text
    FINISHED = "finished"
    PREEMPTED = "preempted"


class Event(NamedTuple):
    """One thing that happened."""

    at: float
    kind: Kind
    request: Request


@dataclass(slots=True)
class Counters:
    """Totals since the start; the names of vLLM's metrics where it has them."""

    prefix_cache_queries: int = 0
    """Prompt tokens looked up, once per request."""
    prefix_cache_hits: int = 0
    """Of those, tokens found."""
    prompt_tokens: int = 0
    """Prompt tokens of requests that got their first token, found ones included."""
    generation_tokens: int = 0
    preemptions: int = 0
    finished: int = 0
    aborted: int = 0
    steps: int = 0
    busy_seconds: float = 0.0

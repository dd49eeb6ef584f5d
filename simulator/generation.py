"""From a prompt and its limits to what the engine runs and the client reads. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.request import PromptTooLong
from simulator.tokens import TOKEN_BYTES, answer_text, block_hashes, count_tokens


@dataclass(frozen=True, slots=True)
class Generation:
    """An answer that is fixed before it is generated: the model is simulated, only its time is not known yet."""

    prompt_tokens: int
    output_tokens: int
    """Tokens that the engine generates; one more than the text has where a stop string ends it."""
    blocks: list[int]
    text: str
    finish_reason: str
    """``length``: the client's limit was reached; ``stop``: the answer's own end or a stop string."""

    def part(self, start: int, end: int) -> str:
        """Return the text of the tokens from ``start`` to ``end`` of the answer."""
        return self.text[start * TOKEN_BYTES : end * TOKEN_BYTES]


def plan(
    prompt: bytes,
    *,
    context_tokens: int,
    max_tokens: int | None,
    default_tokens: int,
    stop: Sequence[str] = (),
    salt: str = "",
) -> Generation:
    """Return the answer to ``prompt``.

    With ``max_tokens`` it has exactly that many tokens, so that a load generator gets what it asked for; without, it
    has ``default_tokens``, or fewer if the context ends before. Raises PromptTooLong.
    """
    prompt_tokens = max(count_tokens(prompt), 1)
    tokens = max_tokens if max_tokens is not None else max(min(default_tokens, context_tokens - prompt_tokens), 1)
    if prompt_tokens + tokens > context_tokens:
        raise PromptTooLong(prompt_tokens, tokens, context_tokens)
    text = answer_text(prompt, tokens)
    reason = "stop" if max_tokens is None else "length"
    found = [(text.index(word), len(word)) for word in stop if word in text]
    blocks = block_hashes(prompt + text.encode(), salt)
    if found:
        start, length = min(found)
        tokens, text, reason = -(-(start + length) // TOKEN_BYTES), text[:start], "stop"
    return Generation(prompt_tokens, tokens, blocks, text, reason)

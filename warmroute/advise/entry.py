"""One request of a log, with what routing and a cache see of it."""

from array import array
from dataclasses import dataclass

from dataplane.routing.prefix_key import Chat, chat_key, native_key
from simulator.calibration import BLOCK_TOKENS
from simulator.tokens import block_hashes, count_tokens


class BadLine(ValueError):
    """A line is no request. The message says why, without anything that the line holds."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A request: its text or body for the keys, and its prompt as a model host has it."""

    prompt_tokens: int
    output_tokens: int
    blocks: "array[int]"
    """Chained hashes of the prompt's full 16-token blocks."""
    body: bytes = b""
    """As InvokeEndpoint gets it. Empty when the log has texts only."""
    chat: Chat | None = None
    """What the OpenAI API's key is made of; None: the key is the native API's."""
    isolation: bytes | None = None
    at: float | None = None
    """Arrival in seconds of the log's clock."""

    def key(self, prefix_length: int) -> int | None:
        """Return the product's key at ``prefix_length``; None: the request has nothing that could make one."""
        if self.chat is not None:
            return chat_key(self.chat, prefix_length)
        return native_key(self.body, prefix_length, self.isolation)


def tokens_of(prompt: bytes, salt: str = "") -> "tuple[int, array[int]]":
    """Return a prompt's number of tokens and block hashes, at four bytes a token as the simulated host has them."""
    return max(count_tokens(prompt), 1), array("Q", block_hashes(prompt, salt))


def blocks_of(ids: list[int], block_tokens: int, prompt_tokens: int) -> "array[int]":
    """Return 16-token blocks of larger ones that are known by their ids: id i has the numbers from i * parts on."""
    parts = block_tokens // BLOCK_TOKENS
    found = array("Q")
    for number in ids:
        found.extend(range(number * parts, (number + 1) * parts))
    del found[prompt_tokens // BLOCK_TOKENS :]
    return found

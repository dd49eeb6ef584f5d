"""What clients say: shared documents with questions, and chats that grow. Pure; the same dice, the same words.

Texts are random and made of whole tokens as the simulated host counts them (four bytes). Both APIs carry the same
messages: the OpenAI API as they are, the native API as one text that the client's own chat template made of them.
"""

import math
import random
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import msgspec

from dataplane.routing.prefix_key import chat_key, native_key, read_chat
from simulator.calibration import BLOCK_TOKENS
from simulator.tokens import TOKEN_BYTES, answer_text, count_tokens, render_chat

MODEL = "llama"
"""Name of the endpoint in bodies of the OpenAI API."""
_BLOCK_BITS = 16
"""Blocks of one conversation are numbered within so many bits."""

Message = dict[str, str]


class Api(Enum):
    """How a request comes."""

    NATIVE = "native"
    OPENAI = "OpenAI"

    def body(self, messages: list[Message], output_tokens: int, *, stream: bool = False) -> bytes:
        """Return the body of a request."""
        if self is Api.NATIVE:
            text = render_chat(messages).decode()
            return msgspec.json.encode({"inputs": text, "parameters": {"max_new_tokens": output_tokens}})
        more = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        return msgspec.json.encode({"model": MODEL, "messages": messages, "max_tokens": output_tokens, **more})

    def key(self, body: bytes, prefix_length: int) -> int:
        """Return the product's prefix key of a body."""
        key = native_key(body, prefix_length, None) if self is Api.NATIVE else chat_key(read_chat(body), prefix_length)
        assert key is not None, "every body here has text"
        return key


@dataclass(frozen=True, slots=True)
class Turn:
    """One request."""

    messages: list[Message]
    blocks: range
    """Ids of the full blocks that other turns of the conversation may share, from the start of the prompt."""
    prompt_tokens: int
    output_tokens: int
    reusable_tokens: int
    """Of the prompt, tokens that an earlier turn left in the cache of the host that took it."""


class Conversation(Protocol):
    """A row of requests of one client, each after the answer to the one before."""

    def next_turn(self) -> Turn | None:
        """Return the next request, None after the last."""


Start = Callable[[random.Random, int], Conversation]
"""(dice, number of the conversation in the run, unique) -> a conversation that begins."""


@dataclass(frozen=True, slots=True)
class Documents:
    """One document of ``shared_tokens`` for each conversation, and with it a question of its own in each request."""

    per_prefix: tuple[int, ...]
    """Requests of a document: one of these, each as likely."""
    shared_tokens: int = 8_000
    own_tokens: int = 50
    output_tokens: int = 256

    def start(self, dice: random.Random, number: int) -> Conversation:
        return _Document(self, dice, number)


class _Document:
    def __init__(self, kind: Documents, dice: random.Random, number: int) -> None:
        self._kind = kind
        self._dice = dice
        self._left = dice.choice(kind.per_prefix)
        self._asked = False
        self._system = {"role": "system", "content": words(dice, kind.shared_tokens)}
        # The question begins on the token grid behind the document.
        shared = count_tokens(render_chat([self._system])) - count_tokens(render_chat([]))
        self._blocks = range(number << _BLOCK_BITS, (number << _BLOCK_BITS) + shared // BLOCK_TOKENS)

    def next_turn(self) -> Turn | None:
        if not self._left:
            return None
        self._left -= 1
        kind = self._kind
        messages = [self._system, {"role": "user", "content": words(self._dice, kind.own_tokens)}]
        reusable = len(self._blocks) * BLOCK_TOKENS if self._asked else 0
        self._asked = True
        return Turn(messages, self._blocks, count_tokens(render_chat(messages)), kind.output_tokens, reusable)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Log-normal with this mean and sigma, cut to 1 .. most; all but sigma in tokens."""

    mean: float
    sigma: float
    most: int

    def draw(self, dice: random.Random) -> int:
        middle = math.log(self.mean) - self.sigma**2 / 2
        return max(1, min(self.most, round(dice.lognormvariate(middle, self.sigma))))


@dataclass(frozen=True, slots=True)
class Chats:
    """Chats that send their whole history with each turn."""

    turns: float
    """Mean number of turns, at least 1; geometric."""
    user: Lengths
    answer: Lengths

    def start(self, dice: random.Random, number: int) -> Conversation:
        return _Chat(self, dice, number)


class _Chat:
    def __init__(self, kind: Chats, dice: random.Random, number: int) -> None:
        self._kind = kind
        self._dice = dice
        self._first_block = number << _BLOCK_BITS
        self._messages: list[Message] = []
        self._left = 1
        while dice.random() > 1 / kind.turns:
            self._left += 1
        self._stored = 0
        """Tokens of the last prompt and answer that are in some host's cache: all but the last one of the answer."""
        self._answer_tokens = 0

    def next_turn(self) -> Turn | None:
        if not self._left:
            return None
        self._left -= 1
        if self._messages:
            answer = answer_text(render_chat(self._messages), self._answer_tokens)
            self._messages.append({"role": "assistant", "content": answer})
        self._messages.append({"role": "user", "content": words(self._dice, self._kind.user.draw(self._dice))})
        messages = list(self._messages)
        prompt = count_tokens(render_chat(messages))
        self._answer_tokens = self._kind.answer.draw(self._dice)
        reusable = self._stored // BLOCK_TOKENS * BLOCK_TOKENS
        self._stored = prompt + self._answer_tokens - 1
        blocks = range(self._first_block, self._first_block + (prompt + self._answer_tokens) // BLOCK_TOKENS)
        return Turn(messages, blocks, prompt, self._answer_tokens, reusable)


def words(dice: random.Random, tokens: int) -> str:
    """Return a random text of ``tokens`` tokens that needs no escapes in JSON."""
    return b64encode(dice.randbytes(tokens * TOKEN_BYTES // 4 * 3)).decode()

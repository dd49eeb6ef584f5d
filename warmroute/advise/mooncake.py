"""Traces in the form that the Mooncake paper (FAST'25) released its own in: no text, but ids of the prompt's blocks.

A line has ``timestamp`` (ms from the start), ``input_length`` and ``output_length`` (tokens) and ``hash_ids``: one id
for each 512 tokens, equal leading ids meaning an equal prefix. The text that a key needs is made of the ids.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from dataplane.routing.prefix_key import PREFIX_LENGTH_MAX, Chat
from simulator.tokens import TOKEN_BYTES
from warmroute.advise.entry import BadLine, Entry, blocks_of

BLOCK_TOKENS = 512
BLOCK_CHARACTERS = BLOCK_TOKENS * TOKEN_BYTES
_WORD_CHARACTERS = 16
_ID_MAX = 10 ** (_WORD_CHARACTERS - 1) - 1

_Count = Annotated[int, Meta(ge=1, le=10**9)]
_Id = Annotated[int, Meta(ge=0, le=_ID_MAX)]


class TraceLine(Struct):
    """One request of a trace."""

    timestamp: Annotated[float, Meta(ge=0, le=1e15)]
    input_length: _Count
    output_length: Annotated[int, Meta(ge=0, le=10**9)]
    hash_ids: Annotated[list[_Id], Meta(min_length=1)]


_decoder = msgspec.json.Decoder(TraceLine)


def read(line: bytes) -> Entry:
    """Return the request of one line. Raises BadLine."""
    return entry_of(parse(line))


def parse(line: bytes) -> TraceLine:
    """Return what a line says. Raises BadLine."""
    try:
        found = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(f"no line of a Mooncake trace: {error}") from None
    if len(found.hash_ids) != -(-found.input_length // BLOCK_TOKENS):
        raise BadLine(
            f"hash_ids has {len(found.hash_ids)} ids, and input_length {found.input_length} means "
            f"{-(-found.input_length // BLOCK_TOKENS)} blocks of {BLOCK_TOKENS} tokens"
        )
    return found


def entry_of(found: TraceLine) -> Entry:
    """Return the request that a line stands for."""
    return Entry(
        prompt_tokens=found.input_length,
        # A request that generated nothing still gave a first token.
        output_tokens=max(found.output_length, 1),
        blocks=blocks_of(found.hash_ids, BLOCK_TOKENS, found.input_length),
        chat=Chat(text_of(found.hash_ids, found.input_length), None, False, None),
        at=found.timestamp / 1000,
    )


def text_of(ids: list[int], prompt_tokens: int) -> str:
    """Return the first PREFIX_LENGTH_MAX characters of the text that stands for these blocks, four to a token.

    A block's text is its id over and over, so two blocks differ within their first word.
    """
    heard = ids[: PREFIX_LENGTH_MAX // BLOCK_CHARACTERS]
    text = "".join([f"{number:0{_WORD_CHARACTERS - 1}d} " * (BLOCK_CHARACTERS // _WORD_CHARACTERS) for number in heard])
    return text[: prompt_tokens * TOKEN_BYTES]

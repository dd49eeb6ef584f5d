"""Text to tokens, blocks and answers without a model. Deterministic and pure.

A token is 4 bytes of UTF-8: English averages about four characters a token (OpenAI's tokenizer page), and bytes keep
the one property that matters here for every script: texts with the same beginning have tokens with the same beginning.
Text that changes the number of bytes early on moves all later tokens, as it would change a real prefix.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from xxhash import xxh64_digest, xxh64_hexdigest, xxh64_intdigest

from simulator.calibration import BLOCK_TOKENS

TOKEN_BYTES = 4
BLOCK_BYTES = BLOCK_TOKENS * TOKEN_BYTES

# Four bytes each, so that an answer of n tokens is 4n bytes and stays on the token grid when the client sends it back.
_WORDS = """
the and one for you all new day out see way who any now use how man two say she may his our too had get has him old top
air sea sun sky ice oak elm fox owl bee ant red few far own run set try ask big end lot
"""
PIECES = tuple(f"{word} " for word in _WORDS.split())


def count_tokens(text: bytes) -> int:
    """Return the number of tokens; the last one may have fewer than 4 bytes."""
    return -(-len(text) // TOKEN_BYTES)


def block_hashes(text: bytes, salt: str = "") -> list[int]:
    """Return the chained 64-bit hashes of the full 16-token blocks of ``text``.

    Equal hashes at one place mean equal text, and equal ``salt``, up to there.
    """
    chained = xxh64_intdigest(salt.encode())
    hashes = []
    for start in range(0, len(text) - BLOCK_BYTES + 1, BLOCK_BYTES):
        chained = xxh64_intdigest(text[start : start + BLOCK_BYTES], seed=chained)
        hashes.append(chained)
    return hashes


def answer_text(prompt: bytes, tokens: int) -> str:
    """Return the answer to ``prompt``: ``tokens`` words of three letters, the same for the same prompt everywhere."""
    digest = xxh64_digest(prompt)
    words: list[str] = []
    while len(words) < tokens:
        digest = xxh64_digest(digest)
        words += [PIECES[byte % len(PIECES)] for byte in digest]
    return "".join(words[:tokens])


def render_chat(messages: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the bytes that the model reads for ``messages``, up to where its answer begins.

    Each content starts on the token grid, so a conversation that comes back with the answer in it has the tokens that
    were generated. Parts that are not text stand as a short mark with a hash of the part.
    """
    text = bytearray()
    for message in messages:
        _open(text, str(message["role"]))
        text += _content(message.get("content"))
        extra = {key: message[key] for key in ("name", "tool_calls", "tool_call_id") if message.get(key) is not None}
        if extra:
            text += b"<|" + msgspec.json.encode(extra, order="deterministic") + b"|>"
        text += b"<|end|>"
    _open(text, "assistant")
    return bytes(text)


def _open(text: bytearray, role: str) -> None:
    text += b"<|" + role.encode() + b"|>"
    text += b"\n" * (-len(text) % TOKEN_BYTES)


def _content(content: object) -> bytes:
    if content is None:
        return b""
    if isinstance(content, str):
        return content.encode()
    assert isinstance(content, list), "openai_api lets nothing else through"
    return b"".join(_part(part) for part in content)


def _part(part: Mapping[str, Any]) -> bytes:
    if part["type"] == "text":
        return str(part["text"]).encode()
    encoded = msgspec.json.encode(part, order="deterministic")
    return f"<|{part['type']}:{xxh64_hexdigest(encoded)}|>".encode()

"""Makes the model: llama's architecture with random weights, small enough for a CPU, a tokenizer of one token a word.

Runs in the engine's own environment, which has numpy and gguf. What the model says means nothing; what it costs is
real: attention over every token of the prompt, and a KV cache that saves it.
"""

import argparse
import itertools
from pathlib import Path

import gguf
import numpy as np

LAYERS, WIDTH, HEADS, HIDDEN = 4, 256, 4, 640
CONTEXT_TOKENS = 8_192
SPECIAL = ("<|begin|>", "<|end|>")
CHAT = "{% for message in messages %} {{ message.role }} {{ message.content }}{% endfor %} assistant"
ROLES = ("system", "user", "assistant")


def words() -> list[str]:
    """Return the words that are one token each; prompts are made of them."""
    first, second = ("ba", "ce", "di", "fo", "gu", "la", "me", "no"), ("ka", "le", "mi", "po", "ru", "ta", "ve", "zo")
    return [head + tail for head, tail in itertools.product(first, second)]


def write(path: Path, seed: int) -> None:
    """Write the model as GGUF, the same for the same seed."""
    dice = np.random.default_rng(seed)
    tokens, merges = _vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT_TOKENS)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    control = [gguf.TokenType.CONTROL] * len(SPECIAL)
    writer.add_token_types([*[gguf.TokenType.NORMAL] * (len(tokens) - len(SPECIAL)), *control])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(len(tokens) - 2)
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_add_bos_token(True)
    writer.add_chat_template(CHAT)
    _weigh(writer, dice, tokens)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _vocabulary() -> tuple[list[str], list[str]]:
    """Return (tokens, merges) of a byte-level BPE in which each word, with the space before it, ends as one token."""
    tokens, merges = list(_byte_names()), []
    for word in [*words(), *ROLES]:
        so_far = "\u0120"  # a space, in the alphabet of byte-level BPE
        for letter in word:
            if so_far + letter not in tokens:
                tokens.append(so_far + letter)
                merges.append(f"{so_far} {letter}")
            so_far += letter
    return [*tokens, *SPECIAL], merges


def _byte_names() -> list[str]:
    """Return the printable stand-in of each byte, as byte-level BPE numbers them (GPT-2's table)."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = itertools.count(256)
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def _weigh(writer: gguf.GGUFWriter, dice: np.random.Generator, tokens: list[str]) -> None:
    def add(name: str, rows: int, columns: int, keep: np.ndarray | None = None) -> None:
        values = dice.normal(0, columns**-0.5, (rows, columns)).astype(np.float32)
        if keep is not None:
            values *= keep[:, None]
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def add_norm(name: str) -> None:
        writer.add_tensor(name, np.ones(WIDTH, dtype=np.float32))

    # Only words can win: a row of zeros never exceeds the largest of many random ones. So an answer is valid text and
    # never ends before its limit.
    whole = {"\u0120" + word for word in words()}
    add("token_embd.weight", len(tokens), WIDTH)
    add("output.weight", len(tokens), WIDTH, np.array([token in whole for token in tokens], dtype=np.float32))
    add_norm("output_norm.weight")
    for layer in range(LAYERS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{part}.weight", WIDTH, WIDTH)
        add(f"blk.{layer}.ffn_gate.weight", HIDDEN, WIDTH)
        add(f"blk.{layer}.ffn_up.weight", HIDDEN, WIDTH)
        add(f"blk.{layer}.ffn_down.weight", WIDTH, HIDDEN)
        add_norm(f"blk.{layer}.attn_norm.weight")
        add_norm(f"blk.{layer}.ffn_norm.weight")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    write(options.path, options.seed)

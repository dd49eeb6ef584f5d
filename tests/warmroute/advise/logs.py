"""Logs that are made up: seeded, small, and of a known structure."""

import json
import random
from collections.abc import Iterable
from pathlib import Path

SECRET = "The-patient-in-room-seven"
"""In every made-up prompt; it must never come out."""


def templated(requests: int = 300, tenants: int = 12, shared: int = 6_000, seed: int = 1) -> list[str]:
    """Return prompts: a greeting of 1,500 characters that all share, a tenant's text up to ``shared``, a question."""
    dice = random.Random(seed)
    greeting = f"You are an assistant. {SECRET}. ".ljust(1_500, "g")
    texts = [f"{greeting}Policies of tenant {tenant}. ".ljust(shared, chr(97 + tenant)) for tenant in range(tenants)]
    return [f"{dice.choice(texts)} Question {number}: {dice.random()} {SECRET}?" for number in range(requests)]


def chat_body(text: str) -> dict[str, object]:
    return {"model": "llama", "messages": [{"role": "user", "content": text}], "temperature": 0.5}


def trace_lines(requests: int = 400, chats: int = 40, seed: int = 1) -> list[str]:
    """Return a trace in the Mooncake form: conversations that grow by two blocks a turn, all after block 0."""
    dice = random.Random(seed)
    ids = {chat: [0] for chat in range(chats)}
    last, lines = 0, []
    for number in range(requests):
        chat = dice.randrange(chats)
        ids[chat] += [last + 1, last + 2]
        last += 2
        lines.append(json.dumps({"timestamp": number * 250, "input_length": 512 * len(ids[chat]),
                                 "output_length": 40, "hash_ids": ids[chat]}))  # fmt: skip
    return lines


def write(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path

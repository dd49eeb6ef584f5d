"""Environments that benchmarks make for themselves, apart from the product's."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(__file__).parents[1] / ".bench"
"""Not part of the repository. Removing a directory there installs it anew."""


def trouble(command: Sequence[str | Path]) -> str:
    """Run a step of an installation; return its last words when it fails, else nothing."""
    ended = subprocess.run(command, capture_output=True, text=True)
    if not ended.returncode:
        return ""
    return ((ended.stderr or ended.stdout).strip().splitlines() or ["it said nothing"])[-1]

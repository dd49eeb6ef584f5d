"""Which node of the store serves which endpoint's counts. Pure.

Outside a cluster one node serves all. In one, the hash slot of an endpoint's keys decides (Redis cluster
specification: CRC16 of the hash tag, modulo 16,384); its keys share a tag, so a call never crosses nodes.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from dataplane.state.store import Address

SLOTS = 16_384


def _table() -> list[int]:
    """CRC16/XMODEM: polynomial 0x1021, no reflection, start 0."""
    table = []
    for byte in range(256):
        value = byte << 8
        for _ in range(8):
            value = ((value << 1) ^ 0x1021 if value & 0x8000 else value << 1) & 0xFFFF
        table.append(value)
    return table


_CRC = _table()


def slot_of(key: bytes) -> int:
    """Return the hash slot of a key; only what stands between its first braces counts, if that is not empty."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    value = 0
    for byte in key:
        value = ((value << 8) & 0xFFFF) ^ _CRC[(value >> 8) ^ byte]
    return value % SLOTS


class Topology:
    """Slot ranges and their primaries; immutable."""

    __slots__ = ("_nodes", "_starts")

    def __init__(self, ranges: Sequence[tuple[int, Address]]) -> None:
        """``ranges``: (first slot, primary), ascending."""
        self._starts = [start for start, _ in ranges]
        self._nodes = [node for _, node in ranges]

    @classmethod
    def read(cls, seen_from: Address, slots: list[Any]) -> "Topology":
        """Read the answer of CLUSTER SLOTS: first slot, last slot, primary (host, port, ...), replicas..."""
        ranges = []
        for first, _, primary, *_ in sorted(slots, key=lambda row: row[0]):
            host = primary[0].decode() if isinstance(primary[0], bytes) else (primary[0] or "")
            ranges.append((int(first), seen_from.at(f"{'' if host == '?' else host}:{primary[1]}")))
        return cls(ranges)

    def node_of(self, key: bytes) -> Address | None:
        """Return the primary of a key's slot, None when no range begins at or before it."""
        at = bisect_right(self._starts, slot_of(key)) - 1
        return self._nodes[at] if at >= 0 else None

    @property
    def nodes(self) -> set[Address]:
        return set(self._nodes)

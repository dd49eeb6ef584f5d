"""Bodies that are the same JSON in different bytes: the native API's key is made of bytes, so they part ways.

Two looks, both bounded. *Repeats*: bodies of one value, which differ in the order of keys, white space or escapes;
their hashes are kept for a fair sample of at most VALUES_KEPT values. *Habits*: how each body is written, whatever
its value; two habits in one log mean two clients, whose prompts do not meet. Only hashes and sizes are kept.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest

VALUES_KEPT = 65_536
SHAPES_KEPT = 4_096
"""Sets of member names of which the order is followed."""
_SPAN = 2**64
_STRING = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")')
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode

CAUSES = ("order of keys", "white space", "escapes or the spelling of numbers")
_BEYOND_ASCII = re.compile(rb"\\u(?!00[0-7])")


@dataclass(frozen=True, slots=True)
class Writing:
    """How one body is written."""

    raw: int
    value: int
    order: int
    ink: int
    """Hashes of its bytes, of its value, of its value with the keys in their order, and of its bytes without white
    space outside strings."""
    white: int
    """Bytes of white space outside strings."""
    space: str | None
    """``none``, ``one`` after each comma and colon, as Python writes it, or ``other``; None: no place for it."""
    text: str
    """Of characters beyond ASCII: ``raw``, ``escaped``, ``both``, or ``none`` where there are none."""

    def causes(self, other: "Writing") -> list[str]:
        """Return why two bodies of one value differ in their bytes."""
        if self.order == other.order:
            spelled = self.ink != other.ink
            return [CAUSES[1]] * (not spelled or self.white != other.white) + [CAUSES[2]] * spelled
        return [CAUSES[0]] + [CAUSES[1]] * (self.white != other.white) + [CAUSES[2]] * (self.text != other.text)


@dataclass(slots=True)
class Habit:
    """One way of writing, and where it is first met."""

    line: int
    bodies: int = 0


@dataclass(slots=True)
class Examiner:
    """Looks at each body once. ``differing`` are bodies that repeat an earlier one's value in other bytes."""

    bodies: int = 0
    not_json: int = 0
    repeats: int = 0
    differing: int = 0
    causes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))
    example: tuple[int, int] | None = None
    """Two lines with one value in different bytes."""
    spaces: dict[str, Habit] = field(default_factory=dict)
    texts: dict[str, Habit] = field(default_factory=dict)
    reordered: int = 0
    """Bodies with an object whose members came in another order before."""
    reordered_at: tuple[int, int] | None = None
    _limit: int = _SPAN
    _values: dict[int, tuple[int, Writing]] = field(default_factory=dict)
    _shapes: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, number: int, body: bytes) -> None:
        """Look at the body of line ``number``."""
        self.bodies += 1
        try:
            value = msgspec.json.decode(body)
            writing, orders = writing_of(body, value), _orders(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.not_json += 1
            return
        if writing.space is not None:
            _note(self.spaces, writing.space, number)
        if writing.text != "none":
            _note(self.texts, writing.text, number)
        self._compare(number, writing)
        self._follow(number, orders)

    @property
    def is_mixed(self) -> bool:
        """Whether more than one way of writing was met."""
        return bool(self.differing or self.reordered or len(self.spaces) > 1 or len(self.texts) > 1)

    def _compare(self, number: int, writing: Writing) -> None:
        if writing.value >= self._limit:
            return
        known = self._values.get(writing.value)
        if known is None:
            self._values[writing.value] = (number, writing)
            if len(self._values) > VALUES_KEPT:
                self._limit //= 2
                self._values = {value: of for value, of in self._values.items() if value < self._limit}
            return
        self.repeats += 1
        first, other = known
        if other.raw != writing.raw:
            self.differing += 1
            self.example = self.example or (first, number)
            for cause in writing.causes(other):
                self.causes[cause] += 1

    def _follow(self, number: int, orders: list[list[str]]) -> None:
        changed = False
        for names in orders:
            shape, order = _hash(sorted(names)), _hash(names)
            if shape not in self._shapes and len(self._shapes) < SHAPES_KEPT:
                self._shapes[shape] = (order, number)
            first, line = self._shapes.get(shape, (order, number))
            if first != order:
                changed = True
                self.reordered_at = self.reordered_at or (line, number)
        self.reordered += changed


def writing_of(body: bytes, value: Any) -> Writing:
    """Return how ``body``, the JSON of ``value``, is written. Raises RecursionError for a value nested too deeply."""
    ordered = _encode(value)
    ink = _without_white(body)
    white = len(body) - len(ink)
    return Writing(
        raw=xxh3_64_intdigest(body),
        value=xxh3_64_intdigest(_encode_sorted(value)),
        order=xxh3_64_intdigest(ordered),
        ink=xxh3_64_intdigest(ink),
        white=white,
        space=_space(_separators(value), white),
        text=_text(body, ordered),
    )


def _without_white(body: bytes) -> bytes:
    """Return JSON without the white space outside strings."""
    if b"\\" in body:
        # Every second part is a string; the pattern knows which quotes end one.
        return b"".join(part if part.startswith(b'"') else b"".join(part.split()) for part in _STRING.split(body))
    parts = body.split(b'"')
    parts[::2] = [b"".join(part.split()) for part in parts[::2]]
    return b'"'.join(parts)


def _space(separators: int, white: int) -> str | None:
    if not white:
        return "none" if separators else None
    return "one" if white == separators else "other"


def _separators(value: Any) -> int:
    """Return the number of commas and colons in the JSON of ``value``, those within strings aside."""
    if isinstance(value, dict):
        return max(2 * len(value) - 1, 0) + sum(map(_separators, value.values()))
    if isinstance(value, list):
        return max(len(value) - 1, 0) + sum(map(_separators, value))
    return 0


def _text(body: bytes, ordered: bytes) -> str:
    if ordered.isascii():
        return "none"
    if body.isascii():
        return "escaped"
    return "both" if _BEYOND_ASCII.search(body.replace(b"\\\\", b"")) else "raw"


def _orders(value: Any) -> list[list[str]]:
    """Return the member names of each object in ``value``, in their order."""
    if isinstance(value, dict):
        return [list(value), *(names for inner in value.values() for names in _orders(inner))]
    if isinstance(value, list):
        return [names for inner in value for names in _orders(inner)]
    return []


def _hash(names: list[str]) -> int:
    return xxh3_64_intdigest(json.dumps(names).encode())


def _note(habits: dict[str, Habit], name: str, number: int) -> None:
    habits.setdefault(name, Habit(number)).bodies += 1


def summary(found: Examiner) -> dict[str, Any]:
    """Return what was found as JSON values."""
    return {
        "bodies": found.bodies,
        "not_json": found.not_json,
        "same_json_again": found.repeats,
        "of_these_in_other_bytes": found.differing,
        "causes": found.causes,
        "example_lines": found.example,
        "white_space": _habits(found.spaces),
        "beyond_ascii": _habits(found.texts),
        "bodies_in_another_order_of_keys": found.reordered,
        "reordered_lines": found.reordered_at,
    }


def _habits(habits: Mapping[str, Habit]) -> dict[str, dict[str, int]]:
    return {name: {"bodies": habit.bodies, "first_line": habit.line} for name, habit in habits.items()}

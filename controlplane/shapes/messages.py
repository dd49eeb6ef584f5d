"""The texts of a refused request, in AWS's form. They are bounded: whoever sends a megabyte gets a line back."""

import difflib
from collections.abc import Sequence

from controlplane.shapes.base import NO_VALUE, Failure

VALUE_CHARACTERS_MAX = 80
PATH_CHARACTERS_MAX = 256
MESSAGE_CHARACTERS_MAX = 4096
"""Room for some twenty failures; what does not fit is counted."""
ENUM_VALUES_MAX = 12
"""A longer set of values is cut to its nearest ones."""


MAP_MEMBER = "Environment"
"""The one map of the API: what follows it in a path is a key of the caller's, spelt as it was sent."""


def failures_message(failures: Sequence[Failure]) -> str:
    """Return ``N validation errors detected: A; B``."""
    head = f"{len(failures)} validation error{'s' if len(failures) > 1 else ''} detected: "
    text = head + _sentence(failures[0])
    for index, failure in enumerate(failures[1:], start=1):
        sentence = _sentence(failure)
        if len(text) + len(sentence) > MESSAGE_CHARACTERS_MAX - 20:
            return f"{text}; and {len(failures) - index} more"
        text += f"; {sentence}"
    return text


def enum_constraint(values: Sequence[str], sent: object) -> str:
    if len(values) <= ENUM_VALUES_MAX:
        return f"Member must satisfy enum value set: [{', '.join(values)}]"
    near = difflib.get_close_matches(str(sent)[:64], values, n=4, cutoff=0.3) or list(values[:4])
    return f"Member must satisfy enum value set: [{', '.join(near)}, ...] ({len(values)} values)"


def path_text(path: Sequence[str | int]) -> str:
    """Return the path in AWS's grammar: lower-camel members, list items as ``.N.member`` counted from 1."""
    parts: list[str] = []
    for index, part in enumerate(path):
        if isinstance(part, int):
            parts.append(f"{part + 1}.member")
        else:
            parts.append(part if MAP_MEMBER in path[:index] else part[:1].lower() + part[1:])
    return quoted(".".join(parts), PATH_CHARACTERS_MAX)


def quoted(value: object, characters_max: int = VALUE_CHARACTERS_MAX) -> str:
    """Return ``value`` as it may stand in a message or a log line: control characters escaped, and cut."""
    text = _json_like(value)
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: characters_max + 1])
    return shown if len(text) <= characters_max else shown[:characters_max] + "..."


def _json_like(value: object) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() if abs(value) > 10**40:
            return "a number of more than 40 digits"
        case int() | float():
            return str(value)
        case list():
            return f"a list of {len(value)}"
        case dict():
            return f"a structure with {', '.join(list(value)[:4])}" if value else "an empty structure"
        case _:
            return type(value).__name__


def _sentence(failure: Failure) -> str:
    path = path_text(failure.path)
    if failure.value is NO_VALUE:
        value = "Value"
    elif failure.value is None:
        value = "Value null"
    else:
        value = f"Value '{quoted(failure.value)}'"
    return f"{value} at '{path}' failed to satisfy constraint: {failure.constraint}"

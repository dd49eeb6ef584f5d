"""Reading the headers of the APIs: one pass, every value checked against its bounds."""

import re
from collections.abc import Callable

from dataplane.api.faults import VALIDATION, Refused
from dataplane.wire.http import Request

NAME = re.compile(rb"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
"""Of endpoints and variants (botocore's service model)."""
_PRINTABLE = re.compile(rb"[!-~][ -~]{0,63}")
_ASCII = re.compile(rb"[\t -~]{0,1024}")

Check = Callable[[bytes], str | None]
"""Returns what the value must be, or None when it is."""


def name(value: bytes) -> str | None:
    if len(value) <= 63 and NAME.fullmatch(value):
        return None
    return "have at most 63 characters and satisfy regular expression pattern: ^[a-zA-Z0-9](-*[a-zA-Z0-9])*"


def identifier(value: bytes) -> str | None:
    """1..64 printable characters, the first no space (pattern ``\\A\\S[\\p{Print}]*\\z`` of the service model)."""
    return None if _PRINTABLE.fullmatch(value) else "have 1 to 64 printable ASCII characters, the first not a space"


def text(value: bytes) -> str | None:
    return None if _ASCII.fullmatch(value) else "have at most 1024 printable ASCII characters"


def read(request: Request, checks: dict[bytes, tuple[str, Check | None]]) -> dict[bytes, bytes]:
    """Return the known headers. Raises Refused for one that is out of bounds, repeated or not supported.

    ``checks``: header -> (member of the API, check; None for a member that this version refuses).
    """
    found = {header: value for header, value in request.headers.items() if header in checks}
    for header, value in found.items():
        member, check = checks[header]
        if check is None:
            raise Refused(VALIDATION, f"{member} is not supported by this version.")
        if (wanted := check(value)) is not None:
            shown = value[:64].decode("ascii", "backslashreplace")
            raise Refused(
                VALIDATION,
                f"1 validation error detected: Value '{shown}' at '{member}' failed to satisfy constraint: "
                f"Member must {wanted}",
            )
    for header, _ in request.repeated:
        if header in found:
            raise Refused(VALIDATION, f"1 validation error detected: '{checks[header][0]}' was given more than once")
    return found

"""Secrets at rest: sealed under the installation's secret key, opened only where they are used.

The cipher is cryptography's Fernet (AES-128-CBC with HMAC-SHA-256). Several keys rotate: the first seals, all open.
"""

import base64
import binascii
from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

KEY_BYTES = 32


class BadSecretKey(ValueError):
    """The configured key is none; the message says what would be right and never what was given."""


class Unsealable(ValueError):
    """What was sealed does not open: another installation's key sealed it, or it was changed."""


class Sealing:
    """Seals and opens. ``repr`` shows no key."""

    __slots__ = ("_fernet",)

    def __init__(self, keys: Sequence[bytes]) -> None:
        """``keys``: at least one, each of KEY_BYTES."""
        self._fernet = MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in keys])

    @classmethod
    def of(cls, text: str) -> "Sealing":
        """Read ``key[,key...]``, each 32 bytes in base64 (either alphabet). Raises BadSecretKey."""
        keys = [part.strip() for part in text.replace("\n", ",").split(",") if part.strip()]
        if not keys:
            raise BadSecretKey(f"it is empty; {_MAKE_ONE}")
        return cls([_decode(key, position) for position, key in enumerate(keys, 1)])

    def seal(self, secret: str) -> bytes:
        """Return the secret, sealed; two seals of the same secret differ."""
        return self._fernet.encrypt(secret.encode())

    def open(self, sealed: bytes) -> str:
        """Return the secret. Raises Unsealable."""
        try:
            return self._fernet.decrypt(sealed).decode()
        except InvalidToken:
            raise Unsealable("sealed under another secret key, or damaged") from None

    def renew(self, sealed: bytes) -> bytes:
        """Return the same secret sealed under the first key, for a rotation. Raises Unsealable."""
        try:
            return self._fernet.rotate(sealed)
        except InvalidToken:
            raise Unsealable("sealed under another secret key, or damaged") from None


_MAKE_ONE = "make one with: openssl rand -base64 32"


def _decode(key: str, position: int) -> bytes:
    try:
        found = base64.b64decode(key.translate(_STANDARD), validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if len(found) != KEY_BYTES:
        raise BadSecretKey(f"key {position} is not {KEY_BYTES} bytes in base64; {_MAKE_ONE}")
    return found


_STANDARD = str.maketrans("-_", "+/")

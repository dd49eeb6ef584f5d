"""The forms of keys, and new ones made of random bytes that the caller brings."""

import base64
import hashlib
import re
from dataclasses import dataclass, field

ENTROPY_BYTES = 40
"""10 for the public id, 30 for the secret."""
ACCESS_KEY_PREFIX = "AKWR"
"""20 characters in all, as AWS's, but no prefix of theirs: a scanner must not take one of these keys for an AWS key."""
API_KEY_PREFIX = "sk-"
_API_KEY = re.compile(rb"(sk-[a-z2-7]{16})-[a-z2-7]{48}")


@dataclass(frozen=True)
class AccessKey:
    """Shown once; only the sealed secret is kept."""

    id: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class ApiKey:
    """Shown once; only the digest is kept."""

    id: str
    key: str = field(repr=False)
    digest: bytes


def new_access_key(entropy: bytes) -> AccessKey:
    """Return a key pair. ``entropy``: ENTROPY_BYTES from ``secrets.token_bytes``."""
    assert len(entropy) == ENTROPY_BYTES
    # Both in the alphabets and lengths that AWS's have: tools check them.
    return AccessKey(ACCESS_KEY_PREFIX + _base32(entropy[:10]), base64.b64encode(entropy[10:]).decode())


def new_api_key(entropy: bytes) -> ApiKey:
    """Return an API key: its public id, then the secret. ``entropy``: as for new_access_key."""
    assert len(entropy) == ENTROPY_BYTES
    identity = API_KEY_PREFIX + _base32(entropy[:10]).lower()
    key = f"{identity}-{_base32(entropy[10:]).lower()}"
    return ApiKey(identity, key, digest(key.encode()))


def digest(key: bytes) -> bytes:
    """Return what is kept of an API key."""
    return hashlib.sha256(key).digest()


def api_key_id(key: bytes) -> str | None:
    """Return the public id in an API key, or None when it does not have the form of one."""
    match = _API_KEY.fullmatch(key)
    return match[1].decode() if match else None


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode()

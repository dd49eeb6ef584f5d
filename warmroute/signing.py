"""Signs a request with Signature Version 4, as `up` needs it for its own calls: no client library is installed."""

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlsplit

from access import sigv4


@dataclass(frozen=True)
class Key:
    """An access key and the region it is used in."""

    id: str
    secret: str = field(repr=False)
    region: str


def signed(key: Key, method: str, url: str, body: bytes, now: datetime) -> dict[str, str]:
    """Return the headers that prove a JSON request to be the key's. ``now`` is UTC."""
    parts = urlsplit(url)
    timestamp = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {"content-type": "application/json", "host": parts.netloc, "x-amz-date": timestamp}
    names = ";".join(headers).encode()
    lines = sigv4.canonical_headers([(name.encode(), value.encode()) for name, value in headers.items()], names)
    body_hash = hashlib.sha256(body).hexdigest().encode()
    scope = sigv4.Scope(key.id, timestamp[:8], key.region, sigv4.SERVICE)
    canonical = sigv4.canonical_request(method.encode(), parts.path.encode(), lines, names, body_hash)
    signing_key = sigv4.signing_key(key.secret, scope)
    signature = sigv4.signature(signing_key, timestamp.encode(), scope.text, canonical)
    credential = f"{key.id}/{scope.text.decode()}"
    value = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names.decode()}, Signature={signature.decode()}"
    return {**headers, "authorization": value}

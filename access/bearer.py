"""The bearer token of the SageMaker SDK's generator: ``sagemaker-api-key-`` and a presigned URL in base64.

Format and rules: sagemaker.core.token_generator, whose tokens are the tests' examples. The URL's host is fixed and has
no region, so a token made by the stock generator says the same anywhere. Pure functions.
"""

import base64
import binascii
import hashlib
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from access.refusals import Denial, Refusal, unrecognized
from access.sigv4 import ALGORITHM, SKEW_SECONDS, Scope, canonical_query, canonical_request, read_scope, read_time

PREFIX = b"sagemaker-api-key-"
HOST = b"sagemaker.amazonaws.com"
ACTION = b"CallWithBearerToken"
EXPIRES_SECONDS_MAX = 43_200
TOKEN_BYTES_MAX = 4_096
_EMPTY_HASH = hashlib.sha256(b"").hexdigest().encode()
_KNOWN = {
    b"Action": "action",
    b"Version": "version",
    b"X-Amz-Algorithm": "algorithm",
    b"X-Amz-Credential": "credential",
    b"X-Amz-Date": "timestamp",
    b"X-Amz-Expires": "expires",
    b"X-Amz-SignedHeaders": "signed headers",
    b"X-Amz-Signature": "signature",
}
_UNSIGNED = (b"X-Amz-Signature", b"Version")
"""The generator appends the version after it has signed."""


class Token(Struct, frozen=True):
    """A token, read: everything but its signature is as the rules want it, apart from region and time."""

    scope: Scope
    timestamp: bytes
    expires_seconds: int
    signature: bytes
    canonical: bytes
    """What was signed, ready to be hashed."""


def read_token(token: bytes) -> Token:
    """Return the token's parts. ``token`` begins with PREFIX. Raises Refusal."""
    pairs = _pairs(token)
    if b"X-Amz-Security-Token" in pairs:
        raise unrecognized()
    if pairs.keys() != _KNOWN.keys():
        raise _bad("does not have the parameters of one")
    if (pairs[b"Action"], pairs[b"Version"], pairs[b"X-Amz-Algorithm"]) != (ACTION, b"1", ALGORITHM):
        raise _bad("is for another action, version or algorithm")
    if pairs[b"X-Amz-SignedHeaders"] != b"host":
        raise _bad("must sign the host and nothing else")
    expires = pairs[b"X-Amz-Expires"]
    if not (expires.isdigit() and len(expires) <= 5 and 1 <= int(expires) <= EXPIRES_SECONDS_MAX):
        raise _bad(f"must expire after 1 to {EXPIRES_SECONDS_MAX} seconds")
    query = b"&".join([b"%b=%b" % pair for pair in pairs.items() if pair[0] not in _UNSIGNED])
    return Token(
        read_scope(unquote_to_bytes(pairs[b"X-Amz-Credential"])),
        pairs[b"X-Amz-Date"],
        int(expires),
        pairs[b"X-Amz-Signature"],
        canonical_request(b"POST", b"/?" + canonical_query(query), b"host:%b\n" % HOST, b"host", _EMPTY_HASH),
    )


def check_life(token: Token, now: float) -> None:
    """Raise Refusal when the token is no longer good, or was made in the future."""
    made = read_time(token.timestamp)
    if made > now + SKEW_SECONDS:
        raise Refusal(Denial.SIGNATURE, "The bearer token is not yet current: its X-Amz-Date is in the future.")
    if now >= made + token.expires_seconds:
        raise Refusal(Denial.EXPIRED, "The security token included in the request is expired")


def _pairs(token: bytes) -> dict[bytes, bytes]:
    encoded = token[len(PREFIX) :]
    try:
        url = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise _bad("is not base64") from None
    # Several texts decode to the same bytes; one of them is the token.
    if base64.b64encode(url) != encoded or not url.startswith(HOST + b"/?"):
        raise _bad("is not a presigned URL in base64")
    found: dict[bytes, bytes] = {}
    for pair in url[len(HOST) + 2 :].split(b"&"):
        name, mark, value = pair.partition(b"=")
        if not mark or name in found:
            raise _bad("has a malformed or repeated parameter")
        found[name] = value
    return found


def _bad(why: str) -> Refusal:
    return Refusal(Denial.SIGNATURE, f"The bearer token {why}.")

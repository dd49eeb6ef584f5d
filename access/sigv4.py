"""Signature Version 4 as a verifier sees it: what was signed, and what the signature should be. Pure functions.

Source: AWS's "Create a signed AWS API request"; where it is silent, what botocore signs. Stricter than it in one point:
headers that steer a request must be signed, or whoever passes a request on could add one.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import quote_from_bytes

from msgspec import Struct

from access.refusals import Denial, Refusal, mismatch

ALGORITHM = b"AWS4-HMAC-SHA256"
TERMINATOR = "aws4_request"
SERVICE = "sagemaker"
"""Both APIs sign with it."""
SKEW_SECONDS = 300
"""AWS's own: a clock may be off by so much either way, and a request that was overheard can be sent again as long."""
STEERING = (b"x-amz-", b"x-amzn-sagemaker-")
"""Headers that begin like this must be signed."""
HARMLESS = frozenset((b"x-amz-user-agent", b"x-amz-cf-id"))
"""But not these, which steer nothing: AWS's SDK for PHP leaves the first one out, and CloudFront adds the second."""

Headers = Sequence[tuple[bytes, bytes]]
"""Names in lower case, values as received, repetitions kept."""


class Scope(Struct, frozen=True):
    """What a credential is good for: ``key id/date/region/service/aws4_request``."""

    key_id: str
    date: str
    region: str
    service: str

    @property
    def text(self) -> bytes:
        return f"{self.date}/{self.region}/{self.service}/{TERMINATOR}".encode()


class Authorization(Struct, frozen=True):
    """An Authorization header, read."""

    scope: Scope
    signed_headers: bytes
    signature: bytes


_AUTHORIZATION = re.compile(
    rb"AWS4-HMAC-SHA256 +Credential=([^,\s]+) *, *SignedHeaders=([^,\s]+) *, *Signature=([^,\s]+) *"
)
_PARTS = (b"Credential", b"SignedHeaders", b"Signature")
_TIME = re.compile(rb"\d{8}T\d{6}Z")
_PLAIN_PATH = re.compile(rb"[A-Za-z0-9/_.~-]*")


def read_authorization(value: bytes) -> Authorization:
    """Return the header's parts, in whatever order they came. Raises Refusal."""
    match = _AUTHORIZATION.fullmatch(value)
    if match is not None:
        credential, signed_headers, signature = match.groups()
    else:
        given = [part.strip().partition(b"=") for part in value.partition(b" ")[2].split(b",")]
        found = {name: text for name, _, text in given if text}
        if missing := [part.decode() for part in _PARTS if part not in found]:
            said = " ".join(f"Authorization header requires '{part}' parameter." for part in missing)
            raise Refusal(Denial.INCOMPLETE, said)
        if len(given) != len(_PARTS):
            raise Refusal(Denial.INCOMPLETE, "Authorization header has a parameter that is unknown or repeated.")
        credential, signed_headers, signature = (found[part] for part in _PARTS)
    return Authorization(read_scope(credential), signed_headers, signature)


def read_scope(credential: bytes) -> Scope:
    """Return a credential's parts. Raises Refusal."""
    parts = credential.decode("ascii", "replace").split("/")
    if len(parts) != 5:
        said = "Credential must have exactly 5 slash-delimited elements, e.g. keyid/date/region/service/term."
        raise Refusal(Denial.INCOMPLETE, said)
    if parts[4] != TERMINATOR:
        raise Refusal(Denial.SIGNATURE, f"Credential should be scoped with a valid terminator: '{TERMINATOR}'.")
    return Scope(*parts[:4])


def check_scope(scope: Scope, timestamp: bytes, region: str, service: str = SERVICE) -> None:
    """Raise Refusal unless the credential is for this region and service, and for the day of the signature."""
    if scope.region != region:
        raise Refusal(Denial.SIGNATURE, f"Credential should be scoped to a valid region, which is '{region}' here.")
    if scope.service != service:
        raise Refusal(Denial.SIGNATURE, f"Credential should be scoped to correct service: '{service}'.")
    if scope.date.encode() != timestamp[:8]:
        raise Refusal(Denial.SIGNATURE, "Date in Credential scope does not match YYYYMMDD of X-Amz-Date.")


def read_time(timestamp: bytes) -> float:
    """Return epoch seconds of ``YYYYMMDDThhmmssZ``. Raises Refusal."""
    try:
        if not _TIME.fullmatch(timestamp):
            raise ValueError
        year, month, day = int(timestamp[:4]), int(timestamp[4:6]), int(timestamp[6:8])
        hour, minute, second = int(timestamp[9:11]), int(timestamp[11:13]), int(timestamp[13:15])
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        said = "Date must be in ISO-8601 'basic format', such as 20260210T010203Z."
        raise Refusal(Denial.INCOMPLETE, said) from None


def check_time(timestamp: bytes, now: float) -> None:
    """Raise Refusal when the signature was made more than SKEW_SECONDS from ``now``."""
    made = read_time(timestamp)
    if made < now - SKEW_SECONDS:
        raise Refusal(
            Denial.SIGNATURE,
            f"Signature expired: {timestamp.decode()} is now earlier than {_shown(now - SKEW_SECONDS)} "
            f"({_shown(now)} - 5 min.)",
        )
    if made > now + SKEW_SECONDS:
        raise Refusal(
            Denial.SIGNATURE,
            f"Signature not yet current: {timestamp.decode()} is still later than {_shown(now + SKEW_SECONDS)} "
            f"({_shown(now)} + 5 min.)",
        )


def _shown(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y%m%dT%H%M%SZ")


def canonical_path(path: bytes) -> bytes:
    """Return the path encoded once more: signers do it to the path as it is sent, which is encoded already."""
    return path if _PLAIN_PATH.fullmatch(path) else quote_from_bytes(path, safe="/~").encode()


def canonical_query(query: bytes) -> bytes:
    """Return the pairs in order, encoded as they came."""
    if not query:
        return b""
    pairs = sorted((name, value) for name, _, value in (pair.partition(b"=") for pair in query.split(b"&")))
    return b"&".join([b"%b=%b" % pair for pair in pairs])


def canonical_headers(headers: Headers, signed_headers: bytes) -> bytes:
    """Return the lines of the signed headers. Raises Refusal for one that is not there, or not signed and should be."""
    names = signed_headers.split(b";")
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in names:
            value = b" ".join(value.split())
            found[name] = b"%b,%b" % (found[name], value) if name in found else value
        elif name.startswith(STEERING) and name not in HARMLESS:
            said = f"'{name.decode('ascii', 'replace')}' must be a 'SignedHeader' in the AWS Authorization."
            raise Refusal(Denial.SIGNATURE, said)
    if b"host" not in names:
        raise Refusal(Denial.SIGNATURE, "'Host' must be a 'SignedHeader' in the AWS Authorization.")
    if len(found) != len(names):
        # Also when one is listed twice, which no signer does.
        raise mismatch()
    return b"".join([b"%b:%b\n" % (name, found[name]) for name in names])


def canonical_request(method: bytes, target: bytes, headers: bytes, signed_headers: bytes, body_hash: bytes) -> bytes:
    """Return the text that is hashed into the string to sign. ``headers`` are canonical."""
    path, _, query = target.partition(b"?")
    return b"%b\n%b\n%b\n%b\n%b\n%b" % (
        method,
        canonical_path(path),
        canonical_query(query),
        headers,
        signed_headers,
        body_hash,
    )


def signing_key(secret: str, scope: Scope) -> bytes:
    """Return the key of one secret for one day, region and service."""
    key = b"AWS4" + secret.encode()
    for word in (scope.date, scope.region, scope.service, TERMINATOR):
        key = hmac.digest(key, word.encode(), "sha256")
    return key


def signature(key: bytes, timestamp: bytes, scope: bytes, canonical: bytes) -> bytes:
    """Return the signature in hexadecimal. ``scope``: its text, without the key id."""
    hashed = hashlib.sha256(canonical).hexdigest().encode()
    return hmac.digest(key, b"%b\n%b\n%b\n%b" % (ALGORITHM, timestamp, scope, hashed), "sha256").hex().encode()


def payload_hash(headers: Headers, body: bytes) -> bytes:
    """Return the SHA-256 of the body in hexadecimal. Raises Refusal for a header that states anything else."""
    found = hashlib.sha256(body).hexdigest().encode()
    for name, value in headers:
        if name == b"x-amz-content-sha256" and value != found:
            if value.startswith((b"UNSIGNED-PAYLOAD", b"STREAMING-")):
                said = f"{value.decode('ascii', 'replace')[:64]} is not supported: sign the SHA-256 of the body."
                raise Refusal(Denial.SIGNATURE, said)
            raise Refusal(Denial.SIGNATURE, "The X-Amz-Content-SHA256 header is not the SHA-256 of the body.")
    return found

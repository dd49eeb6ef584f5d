"""Says which principal a request comes from. Holds the principals of the moment, and signing keys of the day.

What changes here: the principals, swapped whole by ``apply``, and two bounded caches, which verifying fills. A signing
key is found by the sealed secret that it was made of, so a changed secret never meets an old key; of bearer tokens,
which are sent again for hours, those whose signature was right are known until the principals change.
"""

import hmac
from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct

from access import bearer, credentials, sigv4
from access.bearer import Token
from access.refusals import MISSING as MISSING_SAID
from access.refusals import Denial, Refusal, mismatch, unrecognized
from access.sealing import Sealing, Unsealable
from access.sigv4 import Authorization, Headers, Scope
from contract.principals import Kind, Principal

CACHE_MAX = 4_096
"""Signing keys, and as many tokens: some 300 bytes and some 1,500 each."""
_Known = TypeVar("_Known")
_Kept = TypeVar("_Kept")
_BEARER = b"bearer"
_SIGNED = sigv4.ALGORITHM.lower()


class Claim(Struct, frozen=True):
    """Who a request says it is from. A bearer token has proved it already; a signature does with the body."""

    principal: Principal
    authorization: Authorization | None
    """None for a bearer token."""
    timestamp: bytes = b""

    @property
    def is_signed(self) -> bool:
        return self.authorization is not None


class Verifier:
    """Verifies for one region. Raises Refusal for whatever is not right; never waits for anything."""

    def __init__(self, region: str, sealing: Sealing) -> None:
        self._region = region
        self._sealing = sealing
        self._principals: dict[str, Principal] = {}
        self._keys: dict[tuple[bytes, str], bytes] = {}
        self._tokens: dict[bytes, Token] = {}
        self.unsealable: set[str] = set()
        """Access keys in use whose secret does not open under this installation's key: a fault for the operator."""

    def apply(self, principals: Iterable[Principal]) -> None:
        """Take these principals for all there are; a disabled one is none."""
        self._principals = {principal.id: principal for principal in principals if principal.enabled}
        kept = {principal.secret for principal in self._principals.values()}
        self._keys = {known: key for known, key in self._keys.items() if known[0] in kept}
        self._tokens = {}
        self.unsealable = set()

    def verify(self, method: bytes, target: bytes, headers: Headers, body: bytes, now: float) -> Principal:
        """Return who sent the request. ``target`` as on the wire, ``now`` in epoch seconds."""
        claim = self.identify(headers, now)
        self.prove(claim, method, target, headers, body)
        return claim.principal

    def identify(self, headers: Headers, now: float) -> Claim:
        """Return whom the request says it is from, and check what can be checked before its body is there."""
        value = _authorization(headers)
        scheme, _, rest = value.partition(b" ")
        scheme = scheme.lower()
        if scheme == _SIGNED:
            return self._identify_signed(value, headers, now)
        if scheme == _BEARER:
            return Claim(self._bearer(rest.strip(), now), None)
        raise Refusal(Denial.INCOMPLETE, "Authorization must be an AWS4-HMAC-SHA256 signature or a Bearer token.")

    def prove(self, claim: Claim, method: bytes, target: bytes, headers: Headers, body: bytes) -> None:
        """Check the signature of a claim that ``identify`` returned for these headers."""
        found = claim.authorization
        if found is None:
            return
        lines = sigv4.canonical_headers(headers, found.signed_headers)
        payload_hash = sigv4.payload_hash(headers, body)
        canonical = sigv4.canonical_request(method, target, lines, found.signed_headers, payload_hash)
        self._check(claim.principal, found.scope, claim.timestamp, canonical, found.signature)

    def _identify_signed(self, value: bytes, headers: Headers, now: float) -> Claim:
        found = sigv4.read_authorization(value)
        timestamp = _one(headers, b"x-amz-date")
        if timestamp is None:
            raise Refusal(Denial.INCOMPLETE, "Authorization header requires existence of one 'X-Amz-Date' header.")
        sigv4.check_scope(found.scope, timestamp, self._region)
        sigv4.check_time(timestamp, now)
        if any(name == b"x-amz-security-token" for name, _ in headers):
            # Temporary credentials; none are given out here.
            raise unrecognized()
        return Claim(self._principal(found.scope.key_id, Kind.ACCESS_KEY), found, timestamp)

    def _bearer(self, token: bytes, now: float) -> Principal:
        if len(token) > bearer.TOKEN_BYTES_MAX:
            raise unrecognized()
        if token.startswith(bearer.PREFIX):
            return self._token_principal(token, now)
        identity = credentials.api_key_id(token)
        if identity is None:
            raise unrecognized()
        principal = self._principal(identity, Kind.API_KEY)
        if not hmac.compare_digest(credentials.digest(token), principal.secret):
            raise unrecognized()
        return principal

    def _token_principal(self, token: bytes, now: float) -> Principal:
        known = self._tokens.get(token)
        read = known or bearer.read_token(token)
        sigv4.check_scope(read.scope, read.timestamp, self._region)
        bearer.check_life(read, now)
        principal = self._principal(read.scope.key_id, Kind.ACCESS_KEY)
        if known is None:
            self._check(principal, read.scope, read.timestamp, read.canonical, read.signature)
            _keep(self._tokens, token, read)
        return principal

    def _principal(self, identity: str, kind: Kind) -> Principal:
        principal = self._principals.get(identity)
        if principal is None or principal.kind is not kind:
            raise unrecognized()
        return principal

    def _check(self, principal: Principal, scope: Scope, timestamp: bytes, canonical: bytes, signature: bytes) -> None:
        expected = sigv4.signature(self._key(principal, scope), timestamp, scope.text, canonical)
        if not hmac.compare_digest(expected, signature):
            raise mismatch()

    def _key(self, principal: Principal, scope: Scope) -> bytes:
        # Region and service are this verifier's by now.
        known = (principal.secret, scope.date)
        key = self._keys.get(known)
        if key is None:
            try:
                key = sigv4.signing_key(self._sealing.open(principal.secret), scope)
            except Unsealable:
                # To the caller it is a key that is not known here.
                self.unsealable.add(principal.id)
                raise unrecognized() from None
            _keep(self._keys, known, key)
        return key


def _keep(cache: dict[_Known, _Kept], known: _Known, kept: _Kept) -> None:
    """Put into a cache that drops its oldest entry when it is full."""
    if len(cache) >= CACHE_MAX:
        del cache[next(iter(cache))]
    cache[known] = kept


def _authorization(headers: Headers) -> bytes:
    value = _one(headers, b"authorization")
    if value is None:
        raise Refusal(Denial.MISSING, MISSING_SAID)
    return value


def _one(headers: Headers, wanted: bytes) -> bytes | None:
    """Return the header's value; None when it is not there or empty. Raises Refusal when it is there twice."""
    found = [value for name, value in headers if name == wanted]
    if len(found) > 1:
        raise Refusal(Denial.INCOMPLETE, f"The {wanted.decode()} header was given more than once.")
    return found[0].strip() if found and found[0].strip() else None

"""One good request, changed in every way that somebody on its path could: each change is refused with its code."""

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from access.credentials import AccessKey
from contract.principals import Kind
from tests.dataplane_e2e.callers import Caller, Callers, ask, bearing, owned, send
from tests.dataplane_e2e.stage import Deployed, Fleet, chat_body, error_of, native_error
from tests.fakes.data_plane import DataPlane
from tests.fakes.signer import Signed, presigned, wrapped

SIGNATURE = "InvalidSignatureException"
INCOMPLETE = "IncompleteSignatureException"
UNKNOWN = "UnrecognizedClientException"
MISSING = "MissingAuthenticationTokenException"
HEADERS = [
    ("Content-Type", "application/json"),
    ("Accept", "text/plain"),
    ("X-Amzn-SageMaker-Custom-Attributes", "a=1"),
    ("X-Amzn-SageMaker-Inference-Id", "one"),
    ("X-Amzn-SageMaker-Target-Variant", "AllTraffic"),
    ("X-Amzn-SageMaker-Prefix-Aware-Id", "prefix"),
]
BODY = b'{"inputs":"hello"}'
STAMP = b"x-amz-date"
Change = Callable[[Signed], Signed]


def target(old: str, new: str) -> Change:
    return lambda signed: replace(signed, target=swap(signed.target, old, new))


def body(change: Callable[[bytes], bytes]) -> Change:
    return lambda signed: replace(signed, body=change(signed.body)).with_header(
        b"content-length", b"%d" % len(change(signed.body))
    )


def header(name: str, value: str | None) -> Change:
    return lambda signed: signed.with_header(name.encode(), value.encode() if value is not None else None)


def added(name: str, value: str) -> Change:
    return lambda signed: replace(signed, headers=(*signed.headers, (name.encode(), value.encode())))


def credential(change: Callable[[bytes], bytes]) -> Change:
    """Change the Authorization header."""
    return lambda signed: signed.with_header(b"authorization", changed(change, signed.header(b"authorization")))


def scope(old: str, new: str) -> Change:
    return credential(lambda value: swap(value, old, new))


def signature(change: Callable[[bytes], bytes]) -> Change:
    def apply(value: bytes) -> bytes:
        head, mark, found = value.partition(b"Signature=")
        return head + mark + change(found)

    return credential(apply)


def stamped(change: Callable[[bytes], bytes]) -> Change:
    return lambda signed: signed.with_header(STAMP, changed(change, signed.header(STAMP)))


def changed(change: Callable[[bytes], bytes], value: bytes) -> bytes:
    new = change(value)
    assert new != value
    return new


def swap(value: bytes, old: str, new: str) -> bytes:
    assert old.encode() in value, (old, value)
    return value.replace(old.encode(), new.encode(), 1)


def other_digit(value: bytes) -> bytes:
    return value[:-1] + (b"0" if value[-1:] != b"0" else b"1")


MUTATIONS: dict[str, tuple[Change, str]] = {
    "method": (lambda signed: replace(signed, method=b"PUT"), SIGNATURE),
    "path: another endpoint": (target("/endpoints/e", "/endpoints/f"), SIGNATURE),
    "path: another operation": (target("invocations", "invocations-response-stream"), SIGNATURE),
    "path: case": (target("invocations", "Invocations"), SIGNATURE),
    "path: slash added": (target("/invocations", "//invocations"), SIGNATURE),
    "path: a letter encoded": (target("/endpoints", "/%65ndpoints"), SIGNATURE),
    "query: value": (target("b=2", "b=3"), SIGNATURE),
    "query: name": (target("b=2", "c=2"), SIGNATURE),
    "query: pair added": (target("b=2", "b=2&c=3"), SIGNATURE),
    "query: pair removed": (target("&b=2", ""), SIGNATURE),
    "query: removed": (target("?a=1&b=2", ""), SIGNATURE),
    "query: encoded": (target("b=2", "b=%32"), SIGNATURE),
    "body: a byte changed": (body(lambda found: b"[" + found[1:]), SIGNATURE),
    "body: a byte appended": (body(lambda found: found + b" "), SIGNATURE),
    "body: a byte removed": (body(lambda found: found[:-1]), SIGNATURE),
    "body: emptied": (body(lambda found: b""), SIGNATURE),
    "host": (header("host", "example.com"), SIGNATURE),
    "host: port removed": (header("host", "127.0.0.1"), SIGNATURE),
    "content-type changed": (header("content-type", "text/csv"), SIGNATURE),
    "content-type removed": (header("content-type", None), SIGNATURE),
    "accept changed": (header("accept", "text/html"), SIGNATURE),
    "custom attributes changed": (header("x-amzn-sagemaker-custom-attributes", "a=2"), SIGNATURE),
    "custom attributes twice": (added("x-amzn-sagemaker-custom-attributes", "a=1"), SIGNATURE),
    "inference id changed": (header("x-amzn-sagemaker-inference-id", "two"), SIGNATURE),
    "target variant changed": (header("x-amzn-sagemaker-target-variant", "Shadow"), SIGNATURE),
    "prefix-aware id changed": (header("x-amzn-sagemaker-prefix-aware-id", "suffix"), SIGNATURE),
    "prefix-aware id removed": (header("x-amzn-sagemaker-prefix-aware-id", None), SIGNATURE),
    "a steering header added": (header("x-amzn-sagemaker-session-id", "s"), SIGNATURE),
    "a target added": (header("x-amz-target", "SageMaker.DeleteEndpoint"), SIGNATURE),
    "date: another second": (stamped(lambda found: other_digit(found[:-1]) + b"Z"), SIGNATURE),
    "date: another day": (stamped(lambda found: b"20200101" + found[8:]), SIGNATURE),
    "date: no date": (stamped(lambda found: found[:9] + b"noon"), INCOMPLETE),
    "date: removed": (header("x-amz-date", None), INCOMPLETE),
    "date: twice": (added("x-amz-date", "20200101T000000Z"), INCOMPLETE),
    "scope: date": (scope("/20", "/19"), SIGNATURE),
    "scope: region": (scope("us-east-1", "us-east-2"), SIGNATURE),
    "scope: service": (scope("/sagemaker/", "/s3/"), SIGNATURE),
    "scope: terminator": (scope("aws4_request", "aws5_request"), SIGNATURE),
    "scope: a part missing": (scope("/sagemaker/", "/"), INCOMPLETE),
    "key: unknown": (scope("Credential=AKWR", "Credential=AKWX"), UNKNOWN),
    "key: case": (credential(lambda value: value[:28] + value[28:48].lower() + value[48:]), UNKNOWN),
    "signature: a digit": (signature(other_digit), SIGNATURE),
    "signature: upper case": (signature(bytes.upper), SIGNATURE),
    "signature: cut": (signature(lambda found: found[:-1]), SIGNATURE),
    "signature: longer": (signature(lambda found: found + b"0"), SIGNATURE),
    "signature: empty": (signature(lambda found: b""), INCOMPLETE),
    "signature: another one's": (signature(lambda found: b"0" * 64), SIGNATURE),
    "signed headers: one left out": (scope("accept;", ""), SIGNATURE),
    "signed headers: a steering one left out": (scope(";x-amzn-sagemaker-inference-id", ""), SIGNATURE),
    "signed headers: host left out": (scope("host;", ""), SIGNATURE),
    "signed headers: another order": (scope("accept;content-type", "content-type;accept"), SIGNATURE),
    "signed headers: one more": (scope("host;", "host;user-agent;"), SIGNATURE),
    "signed headers: one twice": (scope("host;", "host;host;"), SIGNATURE),
    "signed headers: one that is not there": (scope("host;", "host;te;"), SIGNATURE),
    "algorithm": (scope("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA512"), INCOMPLETE),
    "authorization removed": (header("authorization", None), MISSING),
    "authorization twice": (added("authorization", "Bearer x"), INCOMPLETE),
    "security token added": (header("x-amz-security-token", "t"), UNKNOWN),
    "unsigned payload": (header("x-amz-content-sha256", "UNSIGNED-PAYLOAD"), SIGNATURE),
}


@dataclass(frozen=True)
class Scene:
    """One endpoint, and a caller who may invoke it."""

    plane: DataPlane
    deployed: Deployed
    caller: Caller
    other: Caller

    def sign(self, **given: Any) -> Signed:
        return self.caller.sign(self.plane, f"{self.deployed.invocations}?a=1&b=2", BODY, HEADERS, **given)

    def refused(self, signed: Signed) -> tuple[int, str]:
        """Return status and code of a request that must not reach the host."""
        with self.plane.client() as client:
            response = send(client, signed)
        assert self.deployed.delivered == 0
        return native_error(response)[:2]


@pytest.fixture
def scene(guarded_plane: DataPlane, callers: Callers, fleet: Fleet) -> Scene:
    return Scene(guarded_plane, owned(fleet, "a"), callers.make(tenant="a"), callers.make(tenant="a"))


def test_there_are_enough() -> None:
    assert len(MUTATIONS) >= 40


def test_the_request_itself_is_good(scene: Scene) -> None:
    with scene.plane.client() as client:
        assert send(client, scene.sign()).status == 200
    assert scene.deployed.delivered == 1


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_changed_request_is_refused_with_its_code(scene: Scene, name: str) -> None:
    change, expected = MUTATIONS[name]
    signed = scene.sign()
    altered = change(signed)
    assert altered != signed
    assert scene.refused(altered) == (403, expected)


def test_another_ones_key_does_not_fit_the_signature(scene: Scene) -> None:
    signed = scene.sign()
    mine, theirs = scene.caller.principal.id.encode(), scene.other.principal.id.encode()
    value = signed.header(b"authorization").replace(mine, theirs)
    assert scene.refused(signed.with_header(b"authorization", value)) == (403, SIGNATURE)


@pytest.mark.parametrize("seconds", [-301, 302, -86_400])
def test_a_request_of_another_time_is_refused(scene: Scene, seconds: int) -> None:
    assert scene.refused(scene.sign(moment=time.time() + seconds)) == (403, SIGNATURE)


# --- tokens -----------------------------------------------------------------------------------------------------------

FORBIDDEN, STRANGER = (403, "invalid_signature"), (401, "invalid_api_key")


def raw(key: AccessKey, **given: Any) -> str:
    return presigned(key.id, key.secret, moment=time.time(), **given)


def part(old: str, new: str) -> Callable[[AccessKey], str]:
    def make(key: AccessKey) -> str:
        url = raw(key)
        assert old in url
        return wrapped(url.replace(old, new, 1))

    return make


TOKENS: dict[str, tuple[Callable[[AccessKey], str], tuple[int, str]]] = {
    "action": (part("CallWithBearerToken", "InvokeEndpoint"), FORBIDDEN),
    "algorithm": (part("SHA256", "SHA512"), FORBIDDEN),
    "key": (part("Credential=AKWR", "Credential=AKWX"), STRANGER),
    "scope: region": (part("us-east-1", "us-west-2"), FORBIDDEN),
    "scope: service": (part("sagemaker%2Faws4", "s3%2Faws4"), FORBIDDEN),
    "scope: terminator": (part("aws4_request", "aws5_request"), FORBIDDEN),
    "scope: written otherwise": (part("%2F", "/"), FORBIDDEN),
    "date": (lambda key: wrapped(_other_second(raw(key))), FORBIDDEN),
    "life: longer": (lambda key: wrapped(raw(key, expires=900).replace("=900", "=43200")), FORBIDDEN),
    "life: too long": (lambda key: wrapped(raw(key, expires=43_201)), FORBIDDEN),
    "life: over": (lambda key: wrapped(presigned(key.id, key.secret, moment=time.time() - 2, expires=1)),
                   (403, "expired_token")),
    "signed headers": (part("SignedHeaders=host", "SignedHeaders=date"), FORBIDDEN),
    "signature": (part("X-Amz-Signature=", "X-Amz-Signature=0"), FORBIDDEN),
    "version": (part("Version=1", "Version=2"), FORBIDDEN),
    "host": (part("sagemaker.amazonaws.com", "sagemaker.example.com"), FORBIDDEN),
    "parameter added": (part("&Version", "&X=1&Version"), FORBIDDEN),
    "session token": (lambda key: wrapped(raw(key, token="session")), STRANGER),
    "prefix": (lambda key: wrapped(raw(key)).replace("api-key", "api_key"), STRANGER),
    "base64: cut": (lambda key: wrapped(raw(key))[:-1], FORBIDDEN),
    "base64: other alphabet": (
        lambda key: "sagemaker-api-key-" + base64.b32encode(raw(key).encode()).decode(), FORBIDDEN),
}  # fmt: skip


def _other_second(url: str) -> str:
    digit = url.partition("X-Amz-Date=")[2][14]
    return url.replace(f"{digit}Z&", f"{(int(digit) + 1) % 10}Z&", 1)


@pytest.mark.parametrize("name", TOKENS)
def test_a_changed_token_is_refused_with_its_code(scene: Scene, name: str) -> None:
    make, (status, code) = TOKENS[name]
    assert scene.caller.access_key is not None
    response = ask(scene.plane, scene.deployed.chat, chat_body("x"), bearing(make(scene.caller.access_key)))
    assert (response.status, error_of(response)["code"]) == (status, code)
    assert scene.deployed.delivered == 0


def test_the_token_itself_is_good(scene: Scene) -> None:
    assert scene.caller.access_key is not None
    token = wrapped(raw(scene.caller.access_key))
    assert ask(scene.plane, scene.deployed.chat, chat_body("x"), bearing(token)).status == 200


def test_a_changed_api_key_is_refused(scene: Scene, callers: Callers) -> None:
    one, other = callers.make(kind=Kind.API_KEY, tenant="a"), callers.make(kind=Kind.API_KEY, tenant="a")
    mine, theirs = one.token(), other.token()
    likes = (mine[:-1], mine + "a", mine.upper(), mine[:-1] + ("a" if mine[-1] != "a" else "b"),
             mine[:20] + theirs[20:], theirs[:20] + mine[20:], one.principal.id)  # fmt: skip
    for token in likes:
        response = ask(scene.plane, scene.deployed.chat, chat_body("x"), bearing(token))
        assert (response.status, error_of(response)["code"]) == STRANGER
    assert ask(scene.plane, scene.deployed.chat, chat_body("x"), bearing(mine)).status == 200

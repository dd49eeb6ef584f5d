import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from access import verifier as module
from access.refusals import Denial, Refusal
from access.sigv4 import Authorization, read_authorization
from access.verifier import Verifier
from contract.principals import Kind, Principal, Role
from tests.access.stage import API_KEY, KEY, OTHER, SEALING, access_key, api_key, verifier
from tests.fakes.signer import NOW, Signed, bearer_token, sign

URL = "http://127.0.0.1:7080/endpoints/chat-1/invocations"
HEADERS = [("Content-Type", "application/json"), ("X-Amzn-SageMaker-Custom-Attributes", "a=1")]


def signed(body: bytes = b'{"x":1}', **given: object) -> Signed:
    return sign(KEY.id, KEY.secret, URL, body, HEADERS, **given)  # type: ignore[arg-type]


def check(found: Verifier, request: Signed, now: float = NOW) -> Principal:
    return found.verify(request.method, request.target, request.headers, request.body, now)


def bearing(token: str | bytes, scheme: bytes = b"Bearer") -> Signed:
    token = token if isinstance(token, bytes) else token.encode()
    return Signed(b"POST", b"/v1/chat/completions", ((b"authorization", scheme + b" " + token),), b"{}")


def denied(found: Verifier, request: Signed, now: float = NOW) -> Denial:
    with pytest.raises(Refusal) as caught:
        check(found, request, now)
    assert caught.value.message
    assert caught.value.message.isascii()
    return caught.value.denial


def test_each_kind_of_credential_is_its_principals() -> None:
    found = verifier(access_key(), api_key(), access_key(OTHER, tenant="b"))
    assert check(found, signed()).id == KEY.id
    assert check(found, bearing(bearer_token(KEY.id, KEY.secret))).id == KEY.id
    assert check(found, bearing(bearer_token(OTHER.id, OTHER.secret))).tenant == "b"
    assert check(found, bearing(API_KEY.key)).id == API_KEY.id
    assert check(found, bearing(API_KEY.key, b"bEARER ")).id == API_KEY.id


def test_what_can_be_known_before_the_body_is() -> None:
    found = verifier(access_key(), api_key())
    claim = found.identify(signed().headers, NOW)
    assert claim.is_signed
    assert claim.principal.id == KEY.id
    assert not found.identify(bearing(API_KEY.key).headers, NOW).is_signed


PIECES = ("method", "target", "body", "authorization", "host", "x-amz-date", "content-type",
          "x-amzn-sagemaker-custom-attributes")  # fmt: skip


def means(value: bytes) -> tuple[bytes, Authorization] | None:
    """Return what the header says: the scheme in whatever case, white space left out."""
    try:
        return value.partition(b" ")[0].lower(), read_authorization(value)
    except Refusal:
        return None


@given(st.sampled_from(PIECES), st.integers(0, 10_000), st.integers(1, 127))
def test_any_single_altered_byte_fails(piece: str, at: int, change: int) -> None:
    request = signed()
    name = piece.encode()
    is_member = piece in ("method", "target", "body")
    old: bytes = getattr(request, piece) if is_member else request.header(name)
    at %= len(old)
    new = old[:at] + bytes([old[at] ^ change]) + old[at + 1 :]
    altered = dataclasses.replace(request, **{piece: new}) if is_member else request.with_header(name, new)
    if b" ".join(new.split()) == b" ".join(old.split()) and not is_member:
        return
    if piece == "authorization" and means(new) == means(old):
        return
    assert denied(verifier(access_key()), altered) in (
        Denial.SIGNATURE, Denial.INCOMPLETE, Denial.UNRECOGNIZED, Denial.MISSING,
    )  # fmt: skip


@given(st.integers(0, 10_000), st.sampled_from("ABCXYZabcxyz0189+/="))
def test_any_altered_character_of_a_token_fails(at: int, letter: str) -> None:
    token = bearer_token(KEY.id, KEY.secret)
    at %= len(token)
    altered = token[:at] + letter + token[at + 1 :]
    if altered != token:
        denied(verifier(access_key()), bearing(altered))


@given(st.integers(0, 10_000), st.sampled_from("abcxyz234567-A_"))
def test_any_altered_character_of_an_api_key_fails(at: int, letter: str) -> None:
    at %= len(API_KEY.key)
    altered = API_KEY.key[:at] + letter + API_KEY.key[at + 1 :]
    if altered != API_KEY.key:
        assert denied(verifier(api_key()), bearing(altered)) is Denial.UNRECOGNIZED


@pytest.mark.parametrize(
    ("request_", "denial"),
    [
        (Signed(b"POST", b"/", (), b""), Denial.MISSING),
        (Signed(b"POST", b"/", ((b"authorization", b" "),), b""), Denial.MISSING),
        (Signed(b"POST", b"/", ((b"authorization", b"Basic YTpi"),), b""), Denial.INCOMPLETE),
        (Signed(b"POST", b"/", ((b"authorization", b"AWS4-HMAC-SHA256"), (b"x-amz-date", b"x")), b""),
         Denial.INCOMPLETE),
        (Signed(b"POST", b"/", ((b"authorization", b"Bearer"),), b""), Denial.UNRECOGNIZED),
        (bearing(b"caf\xe9"), Denial.UNRECOGNIZED),
        (bearing("“quoted”"), Denial.UNRECOGNIZED),
        (bearing("x" * 100_000), Denial.UNRECOGNIZED),
        (bearing("sagemaker-api-key-"), Denial.SIGNATURE),
        (bearing("sagemaker-api-key-" + "A" * 100_000), Denial.UNRECOGNIZED),
        (signed().with_header(b"x-amz-date", None), Denial.INCOMPLETE),
        (signed(token="session"), Denial.UNRECOGNIZED),
        (sign(OTHER.id, OTHER.secret, URL), Denial.UNRECOGNIZED),
        (sign(KEY.id, OTHER.secret, URL), Denial.SIGNATURE),
        (signed(region="eu-west-1"), Denial.SIGNATURE),
        (signed(service="s3"), Denial.SIGNATURE),
        (bearing(bearer_token(KEY.id, KEY.secret, region="eu-west-1")), Denial.SIGNATURE),
        (bearing(bearer_token(KEY.id, OTHER.secret)), Denial.SIGNATURE),
        (bearing(bearer_token(OTHER.id, OTHER.secret)), Denial.UNRECOGNIZED),
    ],
)  # fmt: skip
def test_bad_credentials_are_named_as_aws_names_them(request_: Signed, denial: Denial) -> None:
    assert denied(verifier(access_key(), api_key()), request_) is denial


def test_two_credentials_are_refused_rather_than_chosen_from() -> None:
    twice = dataclasses.replace(signed(), headers=(*signed().headers, (b"authorization", b"Bearer x")))
    assert denied(verifier(access_key()), twice) is Denial.INCOMPLETE


def test_a_signature_is_good_for_five_minutes() -> None:
    found = verifier(access_key())
    assert check(found, signed(), NOW + 300)
    assert denied(found, signed(), NOW + 301) is Denial.SIGNATURE


def test_a_disabled_or_withdrawn_key_is_unknown_at_once() -> None:
    found = verifier(access_key(), api_key())
    check(found, signed())
    found.apply([access_key(enabled=False), api_key(enabled=False)])
    assert denied(found, signed()) is Denial.UNRECOGNIZED
    assert denied(found, bearing(API_KEY.key)) is Denial.UNRECOGNIZED
    found.apply([])
    assert denied(found, bearing(bearer_token(KEY.id, KEY.secret))) is Denial.UNRECOGNIZED


def test_a_new_secret_ends_the_old_one_in_spite_of_the_cache() -> None:
    found = verifier(access_key())
    check(found, signed())
    found.apply([Principal(KEY.id, Kind.ACCESS_KEY, Role.INVOKE, SEALING.seal("another"))])
    assert denied(found, signed()) is Denial.SIGNATURE
    assert check(found, sign(KEY.id, "another", URL))


def test_a_key_of_one_kind_does_not_pass_for_the_other() -> None:
    found = verifier(Principal(KEY.id, Kind.API_KEY, Role.INVOKE, SEALING.seal(KEY.secret)))
    assert denied(found, signed()) is Denial.UNRECOGNIZED
    found = verifier(Principal(API_KEY.id, Kind.ACCESS_KEY, Role.INVOKE, API_KEY.digest))
    assert denied(found, bearing(API_KEY.key)) is Denial.UNRECOGNIZED


def test_secrets_that_do_not_open_are_told_to_the_operator_only() -> None:
    found = verifier(Principal(KEY.id, Kind.ACCESS_KEY, Role.INVOKE, b"no seal"))
    assert denied(found, signed()) is Denial.UNRECOGNIZED
    assert found.unsealable == {KEY.id}


def test_a_secret_is_opened_once_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    found = verifier(access_key())
    monkeypatch.setattr(module.sigv4, "signing_key", lambda *given: opened.append(given) or b"k")
    for day in (0, 0, 86_400, 86_400):
        denied(found, signed(moment=NOW + day), NOW + day)
    assert len(opened) == 2
    found.apply([access_key()])
    denied(found, signed())
    assert len(opened) == 3, "another seal of the same secret"


def test_a_known_token_still_ends_with_its_time_and_with_its_key() -> None:
    found = verifier(access_key())
    request = bearing(bearer_token(KEY.id, KEY.secret, expires=900))
    assert check(found, request)
    assert check(found, request, NOW + 899)
    assert denied(found, request, NOW + 900) is Denial.EXPIRED
    found.apply([access_key(tenant="moved")])
    assert check(found, request).tenant == "moved"
    found.apply([Principal(KEY.id, Kind.ACCESS_KEY, Role.INVOKE, SEALING.seal("another"))])
    assert denied(found, request) is Denial.SIGNATURE


def test_a_token_with_a_wrong_signature_is_not_remembered() -> None:
    found = verifier(access_key())
    for _ in range(2):
        assert denied(found, bearing(bearer_token(KEY.id, OTHER.secret))) is Denial.SIGNATURE
    assert found._tokens == {}


def test_the_cache_of_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE_MAX", 2)
    found = verifier(access_key(), access_key(OTHER))
    for day in range(4):
        moment = NOW + day * 86_400
        check(found, signed(moment=moment), moment)
        check(found, sign(OTHER.id, OTHER.secret, URL, moment=moment), moment)
    assert len(found._keys) == 2
    for seconds in range(1, 5):
        check(found, bearing(bearer_token(KEY.id, KEY.secret, expires=seconds)))
    assert len(found._tokens) == 2

"""Tokens are made as the SageMaker SDK's generator makes them, by botocore's query signer."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from access import bearer
from access.bearer import PREFIX, check_life, read_token
from access.refusals import Denial, Refusal
from access.sigv4 import Scope, signature, signing_key
from tests.fakes.signer import NOW, bearer_token, presigned, wrapped

URL = presigned("AKIDEXAMPLE", "secret", expires=900)


def read(url: str) -> bearer.Token:
    return read_token(wrapped(url).encode())


def denied(url: str) -> Denial:
    with pytest.raises(Refusal) as caught:
        read(url)
    return caught.value.denial


def test_a_token_says_who_until_when_and_proves_it() -> None:
    token = read_token(bearer_token("AKIDEXAMPLE", "secret", expires=900).encode())
    assert token.scope == Scope("AKIDEXAMPLE", "20260210", "us-east-1", "sagemaker")
    assert (token.timestamp, token.expires_seconds) == (b"20260210T010203Z", 900)
    key = signing_key("secret", token.scope)
    assert signature(key, token.timestamp, token.scope.text, token.canonical) == token.signature


def test_the_order_of_the_parameters_does_not_matter() -> None:
    """Generators of other languages have another one."""
    host, _, query = URL.partition("?")
    assert read(f"{host}?{'&'.join(reversed(query.split('&')))}") == read(URL)


@pytest.mark.parametrize("seconds", [1, 900, 43_200])
def test_a_token_lives_from_a_second_to_twelve_hours(seconds: int) -> None:
    token = read(presigned("AKIDEXAMPLE", "secret", expires=seconds))
    check_life(token, NOW)
    check_life(token, NOW + seconds - 0.5)
    with pytest.raises(Refusal, match="expired") as caught:
        check_life(token, NOW + seconds)
    assert caught.value.denial is Denial.EXPIRED


@pytest.mark.parametrize("seconds", ["0", "43201", "-1", "1.5", "999999", "", "x", "1e3"])
def test_a_longer_life_is_refused_however_it_is_signed(seconds: str) -> None:
    assert denied(URL.replace("X-Amz-Expires=900", f"X-Amz-Expires={seconds}")) is Denial.SIGNATURE


def test_a_token_of_the_future_is_not_good_yet() -> None:
    check_life(read(URL), NOW - 299)
    with pytest.raises(Refusal, match="not yet current"):
        check_life(read(URL), NOW - 301)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sagemaker.amazonaws.com/", "sagemaker.us-east-1.amazonaws.com/"),
        ("sagemaker.amazonaws.com/?", "sagemaker.amazonaws.com/x?"),
        ("Action=CallWithBearerToken", "Action=InvokeEndpoint"),
        ("Version=1", "Version=2"),
        ("&Version=1", ""),
        ("&Version=1", "&Version=1&Version=1"),
        ("&Version=1", "&Version=1&Extra=1"),
        ("&Version=1", "&Version=1&"),
        ("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1"),
        ("SignedHeaders=host", "SignedHeaders=host%3Bx-amz-date"),
        ("SignedHeaders=host", "SignedHeaders="),
        ("X-Amz-Date=", "X-Amz-Dote="),
        ("&X-Amz-Expires=900", ""),
    ],
)
def test_a_token_in_another_form_is_none(old: str, new: str) -> None:
    assert old in URL
    assert denied(URL.replace(old, new)) is Denial.SIGNATURE


def test_temporary_credentials_are_not_known_here() -> None:
    assert denied(presigned("AKIDEXAMPLE", "secret", token="session")) is Denial.UNRECOGNIZED


def test_one_text_is_the_token_and_not_its_likes() -> None:
    """Base64 has bits that mean nothing, white space and padding: a changed token must not be the same token."""
    token = bearer_token("AKIDEXAMPLE", "secret", expires=1)
    encoded = token.removeprefix(PREFIX.decode())
    while not encoded.endswith("="):
        token = wrapped(base64.b64decode(encoded).decode().replace("AKIDEXAMPLE", "AKIDEXAMPLES"))
        encoded = token.removeprefix(PREFIX.decode())
    stem = encoded.rstrip("=")
    likes = [chr(ord(stem[-1]) + 1), stem[-1] + "A"]
    for changed in (stem, f"{encoded}=", f"{encoded}\n", f" {encoded}", *(stem[:-1] + like + "=" for like in likes)):
        with pytest.raises(Refusal):
            read_token(PREFIX + changed.encode())


@given(st.binary(max_size=200))
def test_any_bytes_are_a_token_or_refused(data: bytes) -> None:
    for token in (data, base64.b64encode(data), base64.b64encode(b"sagemaker.amazonaws.com/?" + data)):
        with pytest.raises(Refusal):
            read_token(PREFIX + token)

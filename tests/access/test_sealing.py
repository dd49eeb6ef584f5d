import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from access.sealing import BadSecretKey, Sealing, Unsealable
from tests.access.stage import secret_key

OLD, NEW = secret_key(b"o"), secret_key(b"n")


@given(st.text())
def test_what_is_sealed_opens_and_does_not_show(secret: str) -> None:
    sealing = Sealing.of(OLD)
    sealed = sealing.seal(secret)
    assert sealing.open(sealed) == secret
    assert len(secret) < 4 or secret.encode("utf-8", "replace") not in sealed


def test_two_seals_of_a_secret_differ() -> None:
    sealing = Sealing.of(OLD)
    assert sealing.seal("secret") != sealing.seal("secret")


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_seal_does_not_open(at: int, change: int) -> None:
    sealed = bytearray(Sealing.of(OLD).seal("secret"))
    sealed[at % len(sealed)] ^= change
    try:
        found = Sealing.of(OLD).open(bytes(sealed))
    except Unsealable:
        return
    # The text of a seal has bits that mean nothing; the seal beneath is the same.
    assert found == "secret"


def test_another_key_does_not_open() -> None:
    with pytest.raises(Unsealable):
        Sealing.of(NEW).open(Sealing.of(OLD).seal("secret"))
    with pytest.raises(Unsealable):
        Sealing.of(NEW).renew(Sealing.of(OLD).seal("secret"))


def test_a_rotation_goes_in_three_steps_without_a_gap() -> None:
    """Both keys everywhere, everything sealed anew, the old key away."""
    sealed = Sealing.of(OLD).seal("secret")
    both = Sealing.of(f"{NEW}, {OLD}")
    assert both.open(sealed) == "secret"
    renewed = both.renew(sealed)
    assert Sealing.of(NEW).open(renewed) == "secret"
    with pytest.raises(Unsealable):
        Sealing.of(OLD).open(renewed)


@pytest.mark.parametrize("text", [OLD, base64.urlsafe_b64encode(b"\xfb" * 32).decode(), f"{OLD}\n", f"{OLD}\n{NEW}\n"])
def test_keys_are_read_as_the_usual_tools_write_them(text: str) -> None:
    sealing = Sealing.of(text)
    assert sealing.open(sealing.seal("x")) == "x"


@pytest.mark.parametrize("text", ["", " , ", "short", OLD[:-4], OLD + "AAAA", "é" * 44, f"{OLD},nonsense"])
def test_anything_else_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(BadSecretKey, match="openssl rand -base64 32") as caught:
        Sealing.of(text)
    assert not text.strip(" ,") or text not in str(caught.value)


def test_a_key_is_not_shown() -> None:
    assert OLD not in repr(Sealing.of(OLD))

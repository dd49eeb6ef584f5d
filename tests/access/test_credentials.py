import os
import re

from hypothesis import given
from hypothesis import strategies as st

from access import credentials
from access.credentials import ENTROPY_BYTES, api_key_id, new_access_key, new_api_key

entropy = st.binary(min_size=ENTROPY_BYTES, max_size=ENTROPY_BYTES)


@given(entropy)
def test_access_keys_have_the_form_that_tools_expect(data: bytes) -> None:
    key = new_access_key(data)
    assert re.fullmatch(r"AKWR[A-Z2-7]{16}", key.id)
    assert re.fullmatch(r"[A-Za-z0-9+/]{40}", key.secret)


@given(entropy)
def test_an_api_key_carries_its_public_id(data: bytes) -> None:
    key = new_api_key(data)
    assert re.fullmatch(r"sk-[a-z2-7]{16}-[a-z2-7]{48}", key.key)
    assert api_key_id(key.key.encode()) == key.id
    assert key.digest == credentials.digest(key.key.encode())
    assert key.key.removeprefix(key.id) not in key.id


@given(st.binary(max_size=80))
def test_other_bytes_are_no_api_key(data: bytes) -> None:
    assert api_key_id(data) is None


def test_secrets_use_all_the_randomness_and_are_not_shown() -> None:
    data = os.urandom(ENTROPY_BYTES)
    changed = data[:-1] + bytes([data[-1] ^ 1])
    assert new_access_key(data).secret != new_access_key(changed).secret
    assert new_api_key(data).key != new_api_key(changed).key
    assert new_access_key(data).secret not in repr(new_access_key(data))
    assert new_api_key(data).key not in repr(new_api_key(data))

from dataclasses import replace
from pathlib import Path

import pytest

from contract.settings import Settings, SettingsError
from dataplane.secret_key import sealing_of
from tests.access.stage import secret_key

KEY, OTHER = secret_key(b"a"), secret_key(b"b")


def test_the_key_is_in_a_setting_or_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    given, read = sealing_of(Settings(secret_key=KEY)), sealing_of(Settings(secret_key_file=str(file)))
    assert given is not None
    assert read is not None
    assert read.open(given.seal("x")) == "x"


def test_without_a_key_nothing_is_sealed() -> None:
    assert sealing_of(Settings()) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"auth": "on"}, "WARMROUTE_AUTH=on needs WARMROUTE_SECRET_KEY or WARMROUTE_SECRET_KEY_FILE"),
        ({"secret_key": KEY, "secret_key_file": "f"}, "are both set"),
        ({"secret_key": "canary"}, "WARMROUTE_SECRET_KEY is no key: key 1 is not 32 bytes"),
        ({"secret_key": " , "}, "WARMROUTE_SECRET_KEY is no key: it is empty"),
        ({"secret_key_file": "/nonexistent/key"}, "WARMROUTE_SECRET_KEY_FILE cannot be read: No such file"),
    ],
)
def test_anything_else_is_said_without_repeating_it(given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        sealing_of(replace(Settings(), **given))  # type: ignore[arg-type]
    assert "canary" not in str(caught.value)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"canary"])
def test_a_file_with_no_key_is_named(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match="WARMROUTE_SECRET_KEY_FILE") as caught:
        sealing_of(Settings(auth="on", secret_key_file=str(file)))
    assert "canary" not in str(caught.value)

import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from access.files import host_tls, listener_tls, load_certificate, sealing_of
from contract.settings import Settings, SettingsError
from tests.access.stage import secret_key
from tests.fakes.certificates import Authority

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


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def tls(certificate: Path, key: Path) -> Settings:
    return Settings(tls_cert_file=str(certificate), tls_key_file=str(key))


def test_without_a_certificate_a_listener_speaks_plainly() -> None:
    assert listener_tls(Settings()) is None


def test_a_certificate_is_read_and_read_anew(authority: Authority) -> None:
    settings = tls(*authority.issue())
    context = listener_tls(settings)
    assert context is not None
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    authority.issue()
    load_certificate(context, settings)


def test_a_certificate_that_cannot_be_used_is_named(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue()
    _, other = authority.issue("other")
    _, locked = authority.issue("locked", password=b"canary")
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("canary")
    for settings, said in (
        (Settings(tls_cert_file=str(certificate)), "go together"),
        (Settings(tls_key_file=str(key)), "go together"),
        (tls(certificate, other), "cannot be used: KEY_VALUES_MISMATCH"),
        (tls(certificate, locked), "TLS_KEY_FILE cannot be used: the key is encrypted"),
        (tls(nonsense, key), "cannot be used"),
        (tls(tmp_path / "none", key), "cannot be read: No such file"),
    ):
        with pytest.raises(SettingsError, match=said) as caught:
            listener_tls(settings)
        assert "canary" not in str(caught.value)


def test_hosts_are_checked_with_the_systems_authorities_and_ones_own(authority: Authority, tmp_path: Path) -> None:
    before = host_tls(Settings()).cert_store_stats()["x509_ca"]
    context = host_tls(Settings(tls_ca_file=str(authority.ca)))
    assert context.cert_store_stats()["x509_ca"] == before + 1
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("canary")
    for file, said in ((nonsense, "holds no certificates"), (tmp_path / "none", "cannot be read: No such file")):
        with pytest.raises(SettingsError, match=said):
            host_tls(Settings(tls_ca_file=str(file)))

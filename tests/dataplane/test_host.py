import pytest

from dataplane.host import Address


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("http://10.0.0.1:8000", Address("10.0.0.1", 8000, False, b"10.0.0.1:8000", b"")),
        ("http://host", Address("host", 80, False, b"host", b"")),
        ("https://host", Address("host", 443, True, b"host", b"")),
        ("https://host:8443/models/a/", Address("host", 8443, True, b"host:8443", b"/models/a")),
        ("http://[::1]:8000", Address("::1", 8000, False, b"[::1]:8000", b"")),
        ("http://user:secret@host:1/p", Address("host", 1, False, b"host:1", b"/p")),
    ],
)
def test_a_base_url_says_where_and_under_which_name(url: str, wanted: Address) -> None:
    assert Address.of(url) == wanted

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.errors import ServiceError, ValidationException
from controlplane.shapes.hosts import (
    InvalidBaseUrl,
    ListModelHostsOutput,
    ModelHostSummary,
    RegisterModelHostInput,
    is_ping_path,
    normalize_base_url,
    split_hosts,
)
from controlplane.shapes.parse import parse


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("http://10.0.0.1:8000", "http://10.0.0.1:8000"),
        ("HTTP://GPU-3.Example.COM/", "http://gpu-3.example.com"),
        ("https://vllm_1:8443/models/a/", "https://vllm_1:8443/models/a"),
        ("http://[2001:DB8:0:0::1]:9001/v1", "http://[2001:db8::1]:9001/v1"),
        ("http://[::1]:9001", "http://[::1]:9001"),
        ("http://localhost:65535", "http://localhost:65535"),
        ("http://127.0.0.1", "http://127.0.0.1"),
        ("http://a.b.svc.cluster.local.:80", "http://a.b.svc.cluster.local.:80"),
    ],
)
def test_one_spelling_for_one_host(url: str, normal: str) -> None:
    assert normalize_base_url(url) == normal
    assert normalize_base_url(normal) == normal


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "http"),
        ("h:8000", "start with http"),
        ("//h:8000", "start with http"),
        ("file:///etc/passwd", "start with http"),
        ("ftp://h", "start with http"),
        ("http://", "host must be"),
        ("http:///x", "host must be"),
        ("http://user:canary@h:80/", "user name"),
        ("http://canary@h:80/", "user name"),
        ("http://@h", "user name"),
        ("http://h:0", "port"),
        ("http://h:99999", "port"),
        ("http://h:", "port"),
        ("http://h:8x", "port"),
        ("http://h:-1", "port"),
        ("http://[::1]:9001/v1?x=1", "query"),
        ("http://h/?", "query"),
        ("http://h/#f", "fragment"),
        ("http://[fe80::1%25eth0]/", "zone"),
        ("http://[2001:db8::1%25eth0]/", "zone"),
        ("http://0.0.0.0:80", "unspecified"),
        ("http://[::]:80", "unspecified"),
        ("http://224.0.0.1", "multicast"),
        ("http://2852039166/", "host must be"),
        ("http://0xa9fea9fe/", "host must be"),
        ("http://0251.0376.0251.0376/", "host must be"),
        ("http://169.254.43518/", "host must be"),
        ("http://1.2.3.4.5", "host must be"),
        ("http://[::1", "malformed"),
        ("http://h\\@evil/", "printable"),
        ("http://h /x", "printable"),
        ("http://h\n", "printable"),
        ("http://caf\u00e9/", "printable"),
        ("http://-h/", "host must be"),
        ("http://h..x/", "host must be"),
        ("http://" + "a" * 64 + "/", "host must be"),
        ("http://h/../admin", "dot segments"),
        ("http://h/%2e%2e/admin", "dot segments"),
        ("http://h/a<b", "path"),
        ("http://h/a//b/.", "dot segments"),
    ],
)
def test_urls_that_are_refused_with_the_reason(url: str, reason: str) -> None:
    with pytest.raises(InvalidBaseUrl, match=reason) as raised:
        normalize_base_url(url)
    assert "canary" not in str(raised.value)


@given(st.text(max_size=40).map(lambda text: f"http://{text}"))
def test_any_url_is_normalized_or_refused(url: str) -> None:
    try:
        normal = normalize_base_url(url)
    except InvalidBaseUrl:
        return
    assert normalize_base_url(normal) == normal


def test_a_list_of_hosts_keeps_its_order() -> None:
    assert split_hosts("http://b:1/, http://A:2") == ("http://b:1", "http://a:2")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "entry 1"),
        ("http://a:1,", "entry 2"),
        ("http://a:1,,http://b:1", "entry 2"),
        ("http://a:1;http://b:1", "entry 1"),
        ("http://a:1,HTTP://A:1/", "entry 2 repeats entry 1"),
    ],
)
def test_lists_of_hosts_that_are_refused(value: str, reason: str) -> None:
    with pytest.raises(InvalidBaseUrl, match=reason):
        split_hosts(value)


@pytest.mark.parametrize(
    ("path", "fits"),
    [
        ("/ping", True),
        ("/", True),
        ("/v1/h-1", True),
        ("ping", False),
        ("/a b", False),
        ("/a\n", False),
        ("/a?b", False),
        ("", False),
    ],
)
def test_ping_paths(path: str, fits: bool) -> None:
    assert is_ping_path(path) == fits


def test_registration_names_the_member_and_hides_the_url() -> None:
    with pytest.raises(ValidationException) as raised:
        parse(RegisterModelHostInput, {"ModelName": "m", "BaseUrl": "http://u:canary@h"})
    assert (
        "at 'baseUrl' failed to satisfy constraint: Member must be a base URL of a model host" in raised.value.message
    )
    assert "canary" not in raised.value.message


@pytest.mark.parametrize(
    "change",
    [
        {"TtlSeconds": 0},
        {"TtlSeconds": 86401},
        {"TtlSeconds": 1.5},
        {"HostName": "a b"},
        {"HostName": ""},
        {"HostName": "u@h"},
    ],
)
def test_registrations_that_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ServiceError):
        parse(RegisterModelHostInput, {"ModelName": "m", "BaseUrl": "http://h:1", **change})


def test_the_default_identity_is_a_valid_host_name() -> None:
    url = normalize_base_url("http://[::1]:9001/v1")
    parse(RegisterModelHostInput, {"ModelName": "m", "BaseUrl": url, "HostName": url})


def test_a_listed_host_leaves_out_what_is_not_known() -> None:
    host = ModelHostSummary(HostName="a", BaseUrl="http://a", Source="Environment")
    assert ListModelHostsOutput(Hosts=(host,)).to_wire() == {
        "Hosts": [{"HostName": "a", "BaseUrl": "http://a", "Source": "Environment"}]
    }

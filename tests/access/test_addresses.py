"""Metadata services by all their names and addresses, and hosts that only look like them."""

import pytest

from access.addresses import is_metadata_address, is_metadata_host


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "169.254.170.2",
        "fe80::1",
        "fe80::1%eth0",
        "[fe80::1]",
        "fd00:ec2::254",
        "fd20:ce::254",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "::ffff:169.254.169.254",
        "::ffff:a9fe:a9fe",
        "::a9fe:a9fe",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
    ],
)
def test_addresses_of_metadata_services(host: str) -> None:
    assert is_metadata_address(host)
    assert is_metadata_host(host)


@pytest.mark.parametrize("host", ["metadata", "METADATA.google.internal.", "metadata.goog", "instance-data"])
def test_names_of_metadata_services(host: str) -> None:
    assert is_metadata_host(host)
    assert not is_metadata_address(host)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "10.0.0.1", "::1", "fd00::1", "100.100.100.201", "192.168.169.254", "metadata.example.com", "h", ""],
)
def test_other_hosts_are_left_alone(host: str) -> None:
    assert not is_metadata_host(host)

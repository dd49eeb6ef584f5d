"""Addresses that a model host must not have: a cloud's metadata service gives machines' credentials to whoever asks.

Decided on what was given at registration, and again on the address that a name led to. Sources: documentation of AWS,
Google Cloud, Azure, Oracle Cloud and Alibaba Cloud on instance metadata; RFC 3927 and RFC 4291 on link-local addresses.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

NAMES = frozenset(
    (
        "metadata",
        "metadata.goog",
        "metadata.google.internal",
        "instance-data",
        "instance-data.ec2.internal",
        "metadata.azure.internal",
    )
)
_NETWORKS = tuple(
    ip_network(network)
    for network in (
        "169.254.0.0/16",
        "fe80::/10",
        # AWS (also the resolver and the clock of the same kind), Google Cloud.
        "fd00:ec2::/32",
        "fd20:ce::254/128",
        # Alibaba Cloud, Oracle Cloud, Azure.
        "100.100.100.200/32",
        "192.0.0.192/32",
        "168.63.129.16/32",
    )
)
_NAT64 = ip_network("64:ff9b::/96")


def is_metadata_host(host: str) -> bool:
    """Tell whether a URL's host, a name or an address, is a metadata service by name or link-local by address."""
    return host.lower().removesuffix(".") in NAMES or is_metadata_address(host)


def is_metadata_address(text: str) -> bool:
    """Tell whether an IP address is link-local or a metadata service's, also inside IPv6. False for what is none."""
    try:
        address = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return any(one in network for one in _meanings(address) for network in _NETWORKS)


def _meanings(address: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    """Return the address and the IPv4 address that packets to it would reach, if there is one."""
    found: list[IPv4Address | IPv6Address] = [address]
    if isinstance(address, IPv6Address):
        inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in _NAT64 or int(address) >> 32 == 0:
            inner.append(IPv4Address(int(address) & 0xFFFFFFFF))
        found += [one for one in inner if one is not None]
    return found

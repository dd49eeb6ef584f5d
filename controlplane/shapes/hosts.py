"""Model hosts: the three operations that are ours, and the rules for a host's URL.

A host is reached by every worker, so a URL must not lead them elsewhere or carry credentials. Whether it may lead to a
link-local or metadata address is a setting, and so for the operations to say.
"""

import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Annotated, Any
from urllib.parse import urlsplit

from controlplane.shapes import types as t
from controlplane.shapes.base import Failure, Items, Shape

HOSTS_VARIABLE = "WARMROUTE_HOSTS"
"""Member of a model's Environment: base URLs of its static hosts, separated by commas."""
PING_PATH_VARIABLE = "WARMROUTE_PING_PATH"
"""Member of a model's Environment: path that answers 200 while the host is healthy."""
PING_PATH_DEFAULT = "/ping"

AUTHORIZATION_VARIABLE = "WARMROUTE_HOST_AUTHORIZATION"
"""Member of a model's Environment: value of the Authorization header that its hosts are sent. Kept sealed."""
HIDDEN = "***"
"""Stands for a secret wherever it would be shown."""
METADATA = "link-local and metadata addresses are not allowed unless WARMROUTE_ALLOW_METADATA_HOSTS is on"

_LABEL = r"[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?"
_DNS_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*\.?", re.ASCII)
_NUMERIC_LAST_LABEL = re.compile(r"(.*\.)?(0[xX][0-9a-fA-F]*|[0-9]+)\.?", re.ASCII)
_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)*", re.ASCII)
_PING_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*", re.ASCII)


class InvalidBaseUrl(ValueError):
    """The URL cannot be a model host's. The message says why and repeats no part of the URL."""


def normalize_base_url(url: str) -> str:
    """Return ``url`` in the one spelling that identifies a host: lower-case scheme and name, no trailing slash.

    Raises InvalidBaseUrl for anything but http(s)://name-or-address[:port][/path].
    """
    if re.search(r"[^\x21-\x7e]|\\", url):
        raise InvalidBaseUrl("it must be printable ASCII without spaces and backslashes")
    scheme, separator, _ = url.partition("://")
    if not separator or scheme.lower() not in ("http", "https"):
        raise InvalidBaseUrl("it must start with http:// or https://")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidBaseUrl("its host or port is malformed; the port must be between 1 and 65535") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidBaseUrl("it must not contain a user name or password")
    if "?" in url or "#" in url:
        raise InvalidBaseUrl("it must not contain a query or a fragment")
    if port == 0 or parts.netloc.endswith(":"):
        raise InvalidBaseUrl("the port must be between 1 and 65535")
    path = parts.path.rstrip("/")
    if not _PATH.fullmatch(path) or re.search(r"(^|/)(\.|%2[eE]){1,2}(/|$)", path):
        raise InvalidBaseUrl("its path must be plain URL characters without dot segments")
    authority = _host(host) + (f":{port}" if port is not None else "")
    return f"{parts.scheme.lower()}://{authority}{path}"


def _host(host: str) -> str:
    try:
        address = ip_address(host)
    except ValueError:
        # Spellings such as 2852039166 or 0xa9fe.1 are addresses to a resolver, though not to ip_address.
        if not _DNS_NAME.fullmatch(host) or _NUMERIC_LAST_LABEL.fullmatch(host):
            raise InvalidBaseUrl(
                "its host must be a DNS name, an IPv4 address or an IPv6 address in brackets"
            ) from None
        return host.lower()
    inner = address.ipv4_mapped if isinstance(address, IPv6Address) and address.ipv4_mapped else address
    if inner.is_multicast or inner.is_unspecified:
        raise InvalidBaseUrl("multicast and unspecified addresses are not allowed")
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            raise InvalidBaseUrl("its host must not name an IPv6 zone")
        return f"[{address.compressed}]"
    return str(address)


def host_of(normal: str) -> str:
    """Return the name or address in a normalized URL, without brackets."""
    return urlsplit(normal).hostname or ""


def split_hosts(value: str) -> tuple[str, ...]:
    """Return the normalized URLs of a WARMROUTE_HOSTS value, in order. Raises InvalidBaseUrl with an entry's number."""
    urls: list[str] = []
    for number, entry in enumerate(value.split(","), start=1):
        try:
            url = normalize_base_url(entry.strip())
        except InvalidBaseUrl as error:
            raise InvalidBaseUrl(f"entry {number} is no base URL of a model host: {error}") from None
        if url in urls:
            raise InvalidBaseUrl(f"entry {number} repeats entry {urls.index(url) + 1}")
        urls.append(url)
    return tuple(urls)


def is_authorization(value: str) -> bool:
    """Tell whether ``value`` can stand in a header as it is."""
    return re.fullmatch(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?", value) is not None and value != HIDDEN


def is_ping_path(value: str) -> bool:
    return _PING_PATH.fullmatch(value) is not None


class RegisterModelHostInput(Shape):
    ModelName: t.ModelName
    BaseUrl: t.BaseUrl
    HostName: t.HostName | None = None
    """Stable identity; default: the normalized BaseUrl, which is also the identity of a host of WARMROUTE_HOSTS."""
    TtlSeconds: t.TtlSeconds | None = None

    @classmethod
    def rules(cls, sent: Mapping[str, Any]) -> Iterator[Failure]:
        url = sent.get("BaseUrl")
        if isinstance(url, str) and url:
            try:
                normalize_base_url(url)
            except InvalidBaseUrl as error:
                # The URL may hold credentials, so it is not repeated.
                yield Failure(("BaseUrl",), f"Member must be a base URL of a model host: {error}")


class RegisterModelHostOutput(Shape):
    ModelName: t.ModelName
    HostName: t.HostName
    BaseUrl: t.BaseUrl
    ExpiresAt: t.Timestamp | None = None


class DeregisterModelHostInput(Shape):
    ModelName: t.ModelName
    HostName: t.HostName


class ListModelHostsInput(Shape):
    ModelName: t.ModelName
    NextToken: t.NextToken | None = None
    MaxResults: t.MaxResults = 100


class ModelHostSummary(Shape):
    HostName: t.HostName
    BaseUrl: t.BaseUrl
    Source: t.HostSource
    Healthy: bool | None = None
    """What the last probe said; absent before the first one."""
    EndpointName: t.EndpointName | None = None
    VariantName: t.VariantName | None = None
    ExpiresAt: t.Timestamp | None = None


class ListModelHostsOutput(Shape):
    Hosts: Annotated[tuple[ModelHostSummary, ...], Items()]
    NextToken: t.NextToken | None = None

"""A model host in words: where it listens, and how an exchange with it can fail. Pure; a leaf."""

from enum import StrEnum
from typing import NamedTuple
from urllib.parse import urlsplit


class Address(NamedTuple):
    """Where a host listens and how it is named to itself."""

    host: str
    port: int
    tls: bool
    authority: bytes
    """For the Host header: the host's own name, never the client's."""
    path: bytes
    """Prefix of every path, without a trailing slash."""

    @classmethod
    def of(cls, base_url: str) -> "Address":
        parts = urlsplit(base_url)
        tls = parts.scheme == "https"
        host = parts.hostname or ""
        port = parts.port or (443 if tls else 80)
        return cls(host, port, tls, parts.netloc.rpartition("@")[2].encode(), parts.path.rstrip("/").encode())


class Failure(StrEnum):
    """How an exchange with a host failed, in the order of what the host may have done."""

    REFUSED = "refused"
    """No connection: refused, unreachable, or not made in time. The host saw nothing."""
    LOST = "lost"
    """The connection ended after the request was sent, before any byte of an answer. The host may have run it."""
    SILENT = "silent"
    """No answer in time. The host may still be running it."""
    MALFORMED = "malformed"
    """What came is no HTTP answer."""
    BROKEN = "broken"
    """The answer ended or stalled in its middle."""


SAID = {
    Failure.REFUSED: "The model host could not be reached.",
    Failure.LOST: "The model host closed the connection before it answered.",
    Failure.SILENT: "The model host did not answer in time.",
    Failure.MALFORMED: "The model host's answer is not valid HTTP.",
    Failure.BROKEN: "The model host's answer ended in the middle.",
}
"""For the client: no addresses, no reasons of ours."""

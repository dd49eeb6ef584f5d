"""The routing table: the one document that crosses from the control plane to the workers.

Immutable. A worker holds one reference and swaps it whole; a request keeps the table it started with.
"""

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from contract.principals import Principal

FORMAT = 2
"""Number of the document's layout. A worker refuses a table of a later format and keeps what it has: one that passed
over a tenant or a host's credential would do what its table forbids."""
READABLE = (1, 2)
"""Earlier layouts lack members only, each with a default: a worker may be newer than the control plane."""


class Strategy(StrEnum):
    """How a variant picks the instance of a request. Values are the API's."""

    RANDOM = "RANDOM"
    LEAST_OUTSTANDING_REQUESTS = "LEAST_OUTSTANDING_REQUESTS"
    PREFIX_AWARE = "PREFIX_AWARE"


class Instance(Struct, frozen=True):
    """One model host bound to a variant."""

    identity: str
    """Stable identity (HostName, or the URL of a static host). It alone decides the place in the hash."""
    number: int
    """Short name of the same identity, unique in one control plane's database; the field of its in-flight count."""
    base_url: str
    """``http://host:port`` or ``https://host:port`` with an optional path, no trailing slash."""
    healthy: bool = True
    """What the control plane's last probes said. False sets the instance aside until a worker's own probe succeeds."""


class Variant(Struct, frozen=True):
    """One production variant as traffic sees it."""

    name: str
    weight: Annotated[float, Meta(ge=0)]
    instances: tuple[Instance, ...]
    strategy: Strategy = Strategy.RANDOM
    prefix_length: Annotated[int, Meta(ge=1024, le=65536)] | None = None
    """Bytes (native API) or characters (OpenAI API). Set exactly with PREFIX_AWARE, as is the threshold."""
    concurrency_threshold: Annotated[int, Meta(ge=1, le=1024)] | None = None
    ping_path: str = "/ping"
    model_name: str = ""
    host_authorization: bytes = b""
    """Sealed value of the Authorization header that the hosts are sent; empty: none."""


class Endpoint(Struct, frozen=True):
    """One endpoint that may be invoked. Endpoints that are Creating, Failed or Deleting are not in the table."""

    name: str
    id: str
    """Unique per creation: an endpoint deleted and made anew under its old name starts with counts of zero."""
    created: int
    """Epoch seconds, for the model list."""
    variants: tuple[Variant, ...]
    tenant: str = ""
    """Whose it is; empty: the installation's."""


class RoutingTable(Struct, frozen=True):
    """Everything a worker needs to route, at one moment."""

    epoch: str
    """Identity of the database that numbered this table. Generations of different epochs do not compare."""
    generation: Annotated[int, Meta(ge=0)]
    """Grows by one with every change. A worker applies a table of its own epoch only if it is newer."""
    account_id: str
    region: str
    endpoints: tuple[Endpoint, ...] = ()
    principals: tuple[Principal, ...] = ()
    """Empty with AUTH off. Secrets are sealed or hashed, as in the database."""
    format: int = FORMAT


class UnreadableTable(ValueError):
    """The bytes are no routing table of this format; the message says why."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(RoutingTable)
_format_decoder = msgspec.msgpack.Decoder(dict[str, object])


def encode(table: RoutingTable) -> bytes:
    """Return the table as msgpack, the same bytes for equal tables."""
    return _encoder.encode(table)


def decode(data: bytes) -> RoutingTable:
    """Return the table in ``data``. Raises UnreadableTable for damage and for any other format."""
    try:
        found = _format_decoder.decode(data).get("format")
        if found not in READABLE:
            raise UnreadableTable(f"routing table format {found!r}, this build reads {FORMAT}")
        return _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableTable(f"not a routing table: {error}") from None

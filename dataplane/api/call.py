"""What a request asks for, in the words of neither API; and what an API must offer to be routed and proxied."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from dataplane.api.faults import Answer, Fault
from dataplane.routing.prefix_key import Chat
from dataplane.wire.http import AnswerHead


class Head(Struct, frozen=True):
    """The head of an answer to the client."""

    status: int
    headers: bytes
    content_length: int | None
    is_stream: bool
    """An answer whose time limit is the stream's."""


class Context(Struct, frozen=True):
    """Who speaks, for messages."""

    account_id: str
    region: str
    endpoint: str
    variant: str


class Api(Protocol):
    """One way to invoke an endpoint. All have one signature; the exchange never asks which one it has."""

    label: str
    host_path: bytes

    def answer_head(self, answer: AnswerHead, variant: bytes, request_id: bytes) -> Head | None:
        """Return the head for the client, or None when the whole answer of the host must be read first."""

    def answer_parts(self, parts: Sequence[bytes]) -> bytes:
        """Return what the client gets for parts of the host's body that came together."""

    def answer_whole(self, status: int, body: bytes, whole: bool, context: Context) -> Answer:
        """Return the answer made of a host's whole answer; ``whole`` is False when it was too long to read."""

    def broken_part(self, message: str, timed_out: bool, before: bytes) -> tuple[bytes, bool]:
        """Return the last words of a stream that failed after ``before``, and whether they end it by themselves."""

    def failure(self, fault: Fault, message: str, param: str | None, context: Context | None) -> Answer:
        """Return an error before any byte of an answer."""


class Call(Struct, eq=False):
    """A request, read."""

    api: Api
    endpoint_name: str
    target_variant: str | None
    isolation: bytes | None
    headers: bytes
    """Complete header lines for the host."""
    chat: Chat | None
    is_stream: bool
    """The client asked for a stream; what the host answers decides in the end."""
    principal: str = ""
    """Whose request it is, for the log."""

"""h11's reading of a connection, without what it takes and other readers in front may take differently.

RFC 9112 lets a server go on after a bare LF, a folded line, or a length beside a coding; each has hidden a request
from somebody. Such a head is refused, as h11 refuses others, and uvicorn answers 400 and closes. What is left to h11 is
read in the one way that the RFC has for it: chunk extensions, trailers, equal lengths.
"""

import re
from typing import Any

import h11

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_ODD = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|\r\n[ \t]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""A bare line end, a folded line, a control character. A CR at the end may have its LF yet to come."""
_HOST = re.compile(rb"[!-~]*")
_VERSIONS = (b"1.0", b"1.1")


class StrictConnection(h11.Connection):
    """A server's connection."""

    def next_event(self) -> Any:
        """Return h11's next event. Raises RemoteProtocolError for a head that is not clear."""
        is_head = self.their_state is h11.IDLE
        if is_head:
            data = self.trailing_data[0]
            end = _HEAD_END.search(data)
            if _ODD.search(data, 0, end.end() if end else len(data)):
                raise h11.RemoteProtocolError("a bare line end, a folded line or a control character in a head")
        event = super().next_event()
        if isinstance(event, h11.Request) and (fault := head_fault(event)) is not None:
            raise h11.RemoteProtocolError(fault)
        return event


def head_fault(request: h11.Request) -> str | None:
    """Return what two readers could understand differently, or None."""
    if request.http_version not in _VERSIONS:
        return "another version of HTTP"
    names = [name for name, _ in request.headers]
    if b"transfer-encoding" in names and (b"content-length" in names or request.http_version == b"1.0"):
        return "a coding beside a length, or in HTTP/1.0"
    hosts = [value for name, value in request.headers if name == b"host"]
    if any(not _HOST.fullmatch(host) for host in hosts):
        return "a Host that is none"
    return None

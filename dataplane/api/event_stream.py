"""AWS event-stream frames, as InvokeEndpointWithResponseStream sends them.

Frame: u32 total length, u32 headers length, u32 CRC32 of those eight bytes, headers, payload, u32 CRC32 of all before.
Header: u8 name length, name, u8 type 7 (string), u16 value length, value. All big-endian.
"""

import struct
from zlib import crc32

_PRELUDE = struct.Struct(">II")
_U32 = struct.Struct(">I")


def _headers(**values: str) -> bytes:
    out = b""
    for name, value in values.items():
        key = b":" + name.replace("_", "-").encode()
        out += struct.pack(f">B{len(key)}sBH{len(value)}s", len(key), key, 7, len(value), value.encode())
    return out


_PART = _headers(event_type="PayloadPart", content_type="application/octet-stream", message_type="event")


def frame(headers: bytes, payload: bytes) -> bytes:
    prelude = _PRELUDE.pack(16 + len(headers) + len(payload), len(headers))
    message = b"%b%b%b%b" % (prelude, _U32.pack(crc32(prelude)), headers, payload)
    return message + _U32.pack(crc32(message))


def payload_part(data: bytes) -> bytes:
    """Return one PayloadPart event with ``data`` as it came."""
    return frame(_PART, data)


def exception(kind: str, payload: bytes) -> bytes:
    """Return the frame that ends a stream with a modelled exception (ModelStreamError, InternalStreamFailure)."""
    return frame(_headers(exception_type=kind, content_type="application/json", message_type="exception"), payload)

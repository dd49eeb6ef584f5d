"""What the hosts answer, byte for byte, and what a client must therefore get. Shared by both kinds of host."""

from pathlib import Path

EVENTS = 16
JSON_BYTES = 300


def _json(size: int) -> bytes:
    head = b'{"id":"chatcmpl-1","object":"chat.completion","created":1790000000,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"'  # noqa: E501
    tail = b'"},"finish_reason":"stop"}],"usage":{"prompt_tokens":450,"completion_tokens":16,"total_tokens":466}}'
    return head + b"a" * (size - len(head) - len(tail)) + tail


def _event(number: int) -> bytes:
    return (
        b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1790000000,"model":"bench",'
        b'"choices":[{"index":0,"delta":{"content":" token-%02d"},"finish_reason":null}]}\n\n' % number
    )


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _whole(kind: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (kind, len(body), body)


JSON_BODY = _json(JSON_BYTES)
STREAM_BODY = b"".join(map(_event, range(EVENTS))) + b"data: [DONE]\n\n"

JSON_ANSWER = _whole(b"application/json", JSON_BODY)
GET_ANSWER = _whole(b"application/json", b'{"object":"list","data":[{"id":"bench","object":"model"}]}')
"""To every GET: health, models and whatever a router asks of a host at its start."""

_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
STREAM_PARTS = (
    _STREAM_HEAD + _chunk(_event(0)),
    *(_chunk(_event(number)) for number in range(1, EVENTS)),
    _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n",
)
"""One write each: the head leaves with the first event, the end with ``[DONE]``."""


def save(directory: Path) -> None:
    """Write what a host sends into files: ``json``, ``get``, ``stream-00`` and so on."""
    directory.mkdir()
    directory.joinpath("json").write_bytes(JSON_ANSWER)
    directory.joinpath("get").write_bytes(GET_ANSWER)
    for number, part in enumerate(STREAM_PARTS):
        directory.joinpath(f"stream-{number:02}").write_bytes(part)


def is_stream(request: bytes | bytearray) -> bool:
    """Tell whether the request asks for a stream; routers write the body anew, with or without the space."""
    return b'"stream":true' in request or b'"stream": true' in request

"""Makes what is sent to the front: valid requests by a grammar, then mutations where readers are known to differ."""

import itertools
import random
import re
from collections.abc import Callable

PATHS = (b"/endpoints/e/invocations", b"/endpoints/e/invocations-response-stream",
         b"/endpoints/e/openai/v1/chat/completions", b"/v1/chat/completions")  # fmt: skip
OTHER_PATHS = (b"/health/live", b"/v1/models", b"/", b"/endpoints/none/invocations", b"*", b"http://h/health/live",
               b"/endpoints/e%2f../invocations", b"//endpoints/e/invocations", b"/endpoints/e/invocations?q=1",
               b"/endpoints/\\..\\e/invocations", b"/" + b"x" * 200, b"h:1")  # fmt: skip
LINES = (
    b"Content-Length: 5", b"Content-Length: 0", b"content-length: 05", b"Content-Length:\t5", b"Content-Length : 5",
    b"Content-Length: +5", b"Content-Length: 5, 5", b"Content-Length: 0x5", b"Content-Length:", b"Content_Length: 9",
    b"Content-Length: 99999999999999999999", b"Content-Length: 18446744073709551615", b"Content-Length: 100000000",
    b"Transfer-Encoding: chunked", b"transfer-encoding:chunked", b"Transfer-Encoding: Chunked", b"Transfer-Encoding :"
    b" chunked", b"Transfer-Encoding: identity", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: ,chunked", b"Transfer-Encoding: \x0bchunked",
    b"Transfer-Encoding: chunked;x", b"Transfer-Encoding:", b" Transfer-Encoding: chunked", b"Transfer-Encoding: gzip",
    b"Host: other", b"Host:", b"Connection: close", b"Connection: keep-alive", b"Connection: Upgrade", b"Upgrade: h2c",
    b"Connection: close, Upgrade", b"Proxy-Connection: close", b"Expect: 100-continue", b"Expect: x", b"HTTP2-Settings"
    b": x", b"TE: trailers", b"Trailer: X", b"X: \xff\xfe", b"X: a\x00b", b"X: a\x1b", b"X\x7f: 1", b": x", b"x", b"X:",
    b"X: " + b"y" * 9_000, b"X-Amzn-SageMaker-Prefix-Aware-Id: a", b"X-Amzn-SageMaker-Target-Variant: ../x",
    b"X-Amzn-SageMaker-Custom-Attributes: \xc3\xa9", b"X-Request-Id: a b", b"Content-Type: application/json",
    b"Authorization: Bearer x", b"Authorization: caf\xe9", b"GET / HTTP/1.1", b"POST /endpoints/e/invocations HTTP/1.1",
)  # fmt: skip
PIECES = (
    b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"\n\n", b"\r\r\n", b"\x00", b"\xff", b" ", b"\t", b":", b";", b",", b'"',
    b"\\", b"\x0b", b"\x0c", b"\x7f", b"\x85", b"\xa0", b"0", b"0\r\n\r\n", b"1;a=b\r\nx\r\n",
    b";a=\"\r\n\"", b"chunked",
    b"-", b"+", b"%00", b"%2f", b"..", b"/", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"RTSP/1.0",
    b"\xc0\xaf", b"\xef\xbb\xbf",
)  # fmt: skip
LINE_ENDS = (b"\n", b"\r", b"\r\r\n", b"\n\r", b"\r\n ", b"\r\n\t", b"\r\n\r\n", b"", b"\x0b", b"\x00\r\n", b" \r\n")
NUMBERS = (b"0", b"1", b"00", b"-1", b"+1", b"1.0", b"1e1", b"0x1", b"9" * 20, b"4294967296", b"18446744073709551616",
           b"ffffffffffffffff", b"10000000000000000", b"1_0", b" 1", b"1 ", b"")  # fmt: skip
BODIES = (b"", b"x", b"{}", b"a longer body of some words", b"0\r\n\r\n", b"\x00\xff\r\n", b"[" * 3_000,
          b'{"messages":[{"role":"user","content":"hello"}],"model":"e"}', b'{"messages":[{"content":"\\ud800"}]}',
          b'{"messages":' + b"[" * 2_000 + b"]" * 2_000 + b"}", b'{"messages":[],"model":"\\ud800"}',
          b'{"messages":[{"content":NaN}],"n":' + b"9" * 5_000 + b"}", b"\xef\xbb\xbf{}", b"\xff\xfe{\x00}\x00",
          b'{"messages":[{"content":"\xff"}]}', b'{"model":"e","model":"f","messages":[],"messages":[{}]}',
          b'{"model":"e\\u0000\\r\\n","messages":[{"content":"x"}]}')  # fmt: skip

Mutation = Callable[[random.Random, bytes], bytes]


def stream(dice: random.Random) -> bytes:
    """Return the bytes of one connection: some requests, most with something wrong somewhere."""
    data = b"".join(request(dice) for _ in range(dice.choice((1, 1, 2, 2, 3))))
    for _ in range(dice.choice((0, 0, 1, 1, 1, 1, 2, 3))):
        data = dice.choice(MUTATIONS)(dice, data)
    return data[:60_000]


def cut(dice: random.Random, data: bytes) -> list[bytes]:
    """Return the same bytes in pieces: whole, in a few, or one by one."""
    if dice.random() < 0.1 and len(data) < 2_000:
        return [data[at : at + 1] for at in range(len(data))]
    edges = sorted({0, len(data), *(dice.randrange(len(data) + 1) for _ in range(dice.choice((0, 1, 2, 6))))})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def request(dice: random.Random) -> bytes:
    """Return a valid request."""
    body = dice.choice(BODIES)
    if dice.random() < 0.15:
        body = request(dice)
    lines = [b"Host: h"] if dice.random() < 0.95 else []
    lines += [line for line in dice.sample(LINES, 2) if dice.random() < 0.15]
    if dice.random() < 0.4:
        lines.append(b"Transfer-Encoding: chunked")
        body = chunked(dice, body)
    elif body or dice.random() < 0.5:
        lines.append(b"Content-Length: %d" % len(body))
    dice.shuffle(lines)
    method = dice.choice((b"POST",) * 12 + (b"GET", b"HEAD", b"PUT", b"OPTIONS", b"DELETE", b"CONNECT", b"M-SEARCH"))
    target = dice.choice(PATHS if dice.random() < 0.75 else OTHER_PATHS)
    version = dice.choice((b"HTTP/1.1",) * 30 + (b"HTTP/1.0", b"HTTP/2.0"))
    return b"%b %b %b\r\n%b\r\n%b" % (method, target, version, b"".join([line + b"\r\n" for line in lines]), body)


def chunked(dice: random.Random, body: bytes) -> bytes:
    """Return the body in chunks of any sizes, some with extensions, some with a trailer."""
    out = b""
    while body:
        part, body = body[: (size := dice.choice((1, 2, 5, 16, 1_000, 9_999)))], body[size:]
        extension = dice.choice((b"",) * 6 + (b";a", b";a=b", b';a="b c"', b";a;b=c"))
        out += dice.choice((b"%x", b"%X", b"%04x")) % len(part) + extension + b"\r\n" + part + b"\r\n"
    trailer = dice.choice(
        (b"",) * 8 + (b"X: y\r\n", b"Host: z\r\n", b"Content-Length: 7\r\n", b"Connection: close\r\n")
    )
    return out + dice.choice((b"0", b"0", b"000")) + b"\r\n" + trailer + b"\r\n"


# --- mutations -------------------------------------------------------------------------------------------------------


def _somewhere(dice: random.Random, data: bytes) -> int:
    return dice.randrange(len(data) + 1)


def _lines(data: bytes) -> list[int]:
    """Return where lines begin."""
    return [0, *(found.end() for found in re.finditer(rb"\r\n", data))]


def _insert_line(dice: random.Random, data: bytes) -> bytes:
    at = dice.choice(_lines(data))
    return data[:at] + dice.choice(LINES) + b"\r\n" + data[at:]


def _repeat_line(dice: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\r\n")
    lines.insert(dice.randrange(len(lines) + 1), dice.choice(lines))
    return b"\r\n".join(lines)


def _drop_line(dice: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\r\n")
    del lines[dice.randrange(len(lines))]
    return b"\r\n".join(lines)


def _swap_lines(dice: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\r\n")
    one, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\r\n".join(lines)


def _change_line_end(dice: random.Random, data: bytes) -> bytes:
    at = dice.choice(_lines(data))
    return data[: max(0, at - 2)] + dice.choice(LINE_ENDS) + data[at:]


def _insert_piece(dice: random.Random, data: bytes) -> bytes:
    at = _somewhere(dice, data)
    return data[:at] + dice.choice(PIECES) + data[at:]


def _change_byte(dice: random.Random, data: bytes) -> bytes:
    at = _somewhere(dice, data)
    return data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]


def _drop_span(dice: random.Random, data: bytes) -> bytes:
    at = _somewhere(dice, data)
    return data[:at] + data[at + dice.choice((1, 1, 2, 8, 40)) :]


def _repeat_span(dice: random.Random, data: bytes) -> bytes:
    at, size = _somewhere(dice, data), dice.choice((1, 2, 8, 40))
    return data[: at + size] + data[at:]


def _change_number(dice: random.Random, data: bytes) -> bytes:
    found = list(re.finditer(rb"(?<=[ \n:])[0-9a-fA-F]+(?=[\r; ])", data))
    if not found:
        return data
    number = dice.choice(found)
    return data[: number.start()] + dice.choice(NUMBERS) + data[number.end() :]


def _put_in_request(dice: random.Random, data: bytes) -> bytes:
    at = _somewhere(dice, data)
    return data[:at] + request(dice) + data[at:]


def _end_early(dice: random.Random, data: bytes) -> bytes:
    return data[: _somewhere(dice, data)]


def _change_case(dice: random.Random, data: bytes) -> bytes:
    start = dice.choice(_lines(data))
    end = data.find(b"\r\n", start)
    return data[:start] + data[start:end].swapcase() + data[end:] if end > 0 else data


MUTATIONS: tuple[Mutation, ...] = (
    _insert_line, _insert_line, _repeat_line, _drop_line, _swap_lines, _change_line_end, _change_line_end,
    _insert_piece, _insert_piece, _change_byte, _drop_span, _repeat_span, _change_number, _change_number,
    _put_in_request, _end_early, _change_case,
)  # fmt: skip
"""The likelier ones more than once."""

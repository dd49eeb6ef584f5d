"""What the parts share: a finding, and a strict reader of answers."""


class Finding(AssertionError):
    """The product did what it must not do; the message holds the input."""


class CutOff(Finding):
    """The last answer is not whole."""


def answers(data: bytes, methods: list[bytes]) -> list[tuple[int, bytes]]:
    """Return (status, body) of every final answer, in order; ``methods``: of their requests. Raises Finding."""
    found: list[tuple[int, bytes]] = []
    while data:
        head, end, rest = data.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        parts = lines[0].split(b" ", 2)
        if not end:
            raise CutOff(f"an answer is cut off: {data[:200]!r}")
        if len(parts) != 3 or parts[0] != b"HTTP/1.1" or not parts[1].isdigit():
            raise Finding(f"no answer: {data[:200]!r}")
        status = int(parts[1])
        fields = [(name.lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines[1:])]
        if status < 200:
            data = rest
            continue
        method = methods[len(found)] if len(found) < len(methods) else b""
        body, data = _body(status, dict(fields), method, rest)
        found.append((status, body))
    return found


def _body(status: int, fields: dict[bytes, bytes], method: bytes, data: bytes) -> tuple[bytes, bytes]:
    if status >= 400 and fields.get(b"connection") == b"close" and method in (b"HEAD", b""):
        # Refused, perhaps before it was known to be HEAD, or as no request of any method: with its body or without.
        method = b"HEAD" if not data else b""
    if method == b"HEAD" or status in (204, 304):
        return b"", data
    if fields.get(b"transfer-encoding") == b"chunked":
        body = b""
        while True:
            size, mark, data = data.partition(b"\r\n")
            if not mark:
                raise CutOff("an answer is cut off")
            length = int(size, 16)
            if len(data) < length + 2:
                raise CutOff("an answer is cut off")
            body, end, data = body + data[:length], data[length : length + 2], data[length + 2 :]
            if end != b"\r\n":
                raise Finding("a broken chunk in an answer")
            if length == 0:
                return body, data
    if b"content-length" in fields:
        length = int(fields[b"content-length"])
        if len(data) < length:
            raise CutOff("an answer is cut off")
        return data[:length], data[length:]
    return data, b""

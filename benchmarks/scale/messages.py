"""What is sent and answered, byte for byte: clients and hosts both know it, so each can check the other's. Pure."""

PREFIX_BYTES = 1_800
_PREFIX = b"%08d "
_OPEN = b'{"model":"bench","max_tokens":%5d,"stream":%b,"messages":[{"role":"system","content":"'
_MIDDLE = b'"},{"role":"user","content":"turn '
_CLOSE = b'"}]}'
_STREAM = {True: b"true ", False: b"false"}
_OPEN_BYTES = len(_OPEN % (0, _STREAM[False]))
_TAIL_BYTES = 10 + len(_CLOSE)
BODY_BYTES = _OPEN_BYTES + PREFIX_BYTES + len(_MIDDLE) + _TAIL_BYTES

_ANSWER = b'{"turn":%010d,"instance":"%8b","text":"' + b"a" * 240 + b'"}'
ANSWER_BYTES = len(_ANSWER % (0, b""))
_INSTANCE_AT = len(b'{"turn":0123456789,"instance":"')

_EVENT = b'data: {"stream":%010d,"event":%05d,"choices":[{"index":0,"delta":{"content":" a word or two"}}]}\n\n'


def prefix(number: int) -> bytes:
    """Return one of 10**8 prefixes of PREFIX_BYTES."""
    return (_PREFIX % number) * (PREFIX_BYTES // 9)


def body(prefix_bytes: bytes, turn: int, events: int = 0) -> bytes:
    """Return a chat request; with ``events``, one for a stream of so many."""
    return b"".join((_OPEN % (events, _STREAM[events > 0]), prefix_bytes, _MIDDLE, b"%010d" % turn, _CLOSE))


def read_body(data: bytes) -> tuple[int, int]:
    """Return (turn, events) of a body. Raises ValueError for one that differs in any byte from what was sent."""
    turn = int(data[-_TAIL_BYTES : -len(_CLOSE)])
    events = int(data[len(b'{"model":"bench","max_tokens":') :][:5])
    number = int(data[_OPEN_BYTES : _OPEN_BYTES + 8])
    if data != body(prefix(number), turn, events):
        raise ValueError("a body that nobody sent")
    return turn, events


def answer(turn: int, instance: bytes) -> bytes:
    """Return the answer of ``instance`` (at most 8 bytes)."""
    return _ANSWER % (turn, instance)


def read_answer(data: bytes, turn: int) -> bytes:
    """Return the instance that gave the answer for ``turn``. Raises ValueError when any byte is not its."""
    instance = data[_INSTANCE_AT : _INSTANCE_AT + 8].strip()
    if data != answer(turn, instance):
        raise ValueError(f"not the answer for turn {turn}: {data[:100]!r}")
    return instance


def event(stream: int, number: int) -> bytes:
    """Return one event of a stream; no two are the same."""
    return _EVENT % (stream, number)

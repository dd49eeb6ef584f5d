"""Ports of the simulated hosts, kept over restarts, so that the routes of the last run still lead somewhere."""

import socket
from contextlib import ExitStack, suppress
from pathlib import Path


def keep(file: Path, count: int) -> list[int]:
    """Return ``count`` free loopback ports: those in ``file`` where they are still free; write them back."""
    known: list[int] = []
    with suppress(OSError, ValueError):
        known = [int(word) for word in file.read_text().split() if 0 < int(word) < 65536]
    with ExitStack() as held:
        ports = [_hold(held, known[index] if index < len(known) else 0) for index in range(count)]
    file.write_text(" ".join(map(str, ports + known[count:])) + "\n")
    return ports


def _hold(held: ExitStack, port: int) -> int:
    """Bind ``port``, or any other one when it is taken, until all are chosen."""
    listener = held.enter_context(socket.socket())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        listener.bind(("127.0.0.1", 0))
    return int(listener.getsockname()[1])

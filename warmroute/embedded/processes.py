"""What the system says about processes: from /proc where it exists, else from ``ps``."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")


def command_line(pid: int) -> str:
    """Return the command line of a live process, its words separated by spaces, or an empty text."""
    if _has_proc():
        with contextlib.suppress(OSError):
            return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return ""
    return "" if _ps("stat=", pid).startswith("Z") else _ps("command=", pid)


def alive(pid: int) -> bool:
    """Tell whether the process runs. One that has ended and was not waited for does not."""
    if _has_proc():
        with contextlib.suppress(OSError):
            return _fields(_PROC / str(pid) / "stat")[0] not in ("Z", "X")
        return False
    state = _ps("stat=", pid)
    return bool(state) and not state.startswith("Z")


def children(pid: int) -> list[int]:
    """Return the process ids of the direct children."""
    return [child for child, parent in _parents() if parent == pid]


def descendants(pid: int) -> list[int]:
    """Return the process ids of children, their children and so on."""
    found = children(pid)
    for child in list(found):
        found += descendants(child)
    return found


def _parents() -> Iterator[tuple[int, int]]:
    if _has_proc():
        for path in _PROC.glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                yield int(path.parent.name), int(_fields(path)[1])
        return
    listing = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True).stdout
    for line in listing.splitlines():
        pid, parent = line.split()
        yield int(pid), int(parent)


def _fields(stat: Path) -> list[str]:
    """Return state, parent and so on: what follows the name, which may hold spaces and parentheses."""
    return stat.read_text().rpartition(")")[2].split()


def _ps(what: str, pid: int) -> str:
    return subprocess.run(["ps", "-ww", "-o", what, "-p", str(pid)], capture_output=True, text=True).stdout.strip()


def _has_proc() -> bool:
    return os.path.exists("/proc/self/stat")

"""Who uses a data directory: one process at a time, and where its sockets may be."""

import contextlib
import fcntl
import hashlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from warmroute.embedded import EmbeddedError, leash

_SOCKET_PATH_BYTES_MAX = 103 if sys.platform == "darwin" else 107
"""sizeof(sockaddr_un.sun_path) without its closing zero."""


@contextlib.contextmanager
def hold(directory: Path) -> Iterator[None]:
    """Own ``directory`` for as long as the context lasts or the process lives, even when it is killed.

    Raises EmbeddedError when another process owns it or it cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise EmbeddedError(
            f"--data-dir {directory} cannot be used ({error.strerror}); give a directory that can be written"
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise EmbeddedError(
                f"--data-dir {directory} is in use by another `warmroute up` (process {owner}); "
                "stop it or give another --data-dir"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def socket_dir(directory: Path, socket_name: str) -> Path:
    """Return a private directory for a socket: in ``directory``, or in /tmp if its path would be too long or odd.

    Clients split a host at commas and read its percent signs, so only plain characters go into a URL. The same
    answer at every start, so that a kill leaves nothing that piles up.
    """
    inside = directory / "run"
    fits = len(os.fsencode(inside / socket_name)) <= _SOCKET_PATH_BYTES_MAX
    if fits and re.fullmatch(r"[A-Za-z0-9_./-]+", str(inside)):
        inside.mkdir(mode=0o700, exist_ok=True)
        return inside
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    outside = Path("/tmp") / f"warmroute-{os.getuid()}-{name}"  # noqa: S108 - checked below; TMPDIR may be long, too
    with contextlib.suppress(FileExistsError):
        outside.mkdir(mode=0o700)
    found = outside.lstat()
    # Somebody else may have put it there first; root's Postgres may be nobody's (leash.py).
    ours = (os.getuid(), leash.NOBODY) if os.getuid() == 0 else (os.getuid(),)
    if stat.S_ISDIR(found.st_mode) and found.st_uid in ours:
        outside.chmod(0o700)
        return outside
    return Path(tempfile.mkdtemp(prefix="warmroute-", dir="/tmp"))

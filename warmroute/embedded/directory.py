"""Who uses a data directory: one process at a time, and where its sockets may be."""

import contextlib
import fcntl
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from warmroute.embedded import EmbeddedError

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
    """Return a private directory for a socket: inside ``directory``, or in the temporary one if its path is too long.

    The same answer at every start, so that a kill leaves nothing that piles up.
    """
    inside = directory / "run"
    if len(os.fsencode(inside / socket_name)) <= _SOCKET_PATH_BYTES_MAX:
        inside.mkdir(mode=0o700, exist_ok=True)
        return inside
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    outside = Path("/tmp") / f"warmroute-{os.getuid()}-{name}"  # noqa: S108 - checked below; TMPDIR may be long, too
    with contextlib.suppress(FileExistsError):
        outside.mkdir(mode=0o700)
    found = outside.lstat()
    # Somebody else may have put it there first.
    if stat.S_ISDIR(found.st_mode) and found.st_uid in (os.getuid(), directory.stat().st_uid):
        outside.chmod(0o700)
        return outside
    return Path(tempfile.mkdtemp(prefix="warmroute-", dir="/tmp"))

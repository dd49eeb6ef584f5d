"""Becomes another program whose life ends with its starter's, under an identity which that program accepts.

Run as a script by child.py, never imported by it: what happens between fork and exec must not run in a process that has
threads. Standard library only, and quick to start (about 20 ms): ``python -I -S leash.py --parent PID ... -- program``.
"""

import argparse
import contextlib
import ctypes
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 1, 8, 47, 2
_CLONE_NEWUSER = 0x10000000
_CAP_DAC_OVERRIDE = 1
_CAPABILITY_VERSION_3 = 0x20080522
NOBODY = 65534
"""User and group id, on Linux and (as -2) on macOS."""


def main() -> None:
    """Take the identity, tie the process to its parent, and become the program. Returns only by an exception."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, default=os.getppid(), help="the starter, as it knows itself")
    parser.add_argument("--signal", type=int, required=True)
    parser.add_argument("--identity", choices=("own", "namespace", "nobody"), default="own")
    parser.add_argument("--pipe", type=int, help="no PR_SET_PDEATHSIG here: end when this descriptor reads end of file")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    if options.identity == "namespace":
        enter_namespace()
    elif options.identity == "nobody":
        become_nobody()
    # After the identity: the kernel forgets the wish when the credentials change.
    if options.pipe is None and sys.platform == "linux":
        _checked(_libc().prctl(_PR_SET_PDEATHSIG, options.signal, 0, 0, 0), "prctl")
    elif options.pipe is not None:
        _watch(options.pipe, options.signal)
    if os.getppid() != options.parent:
        sys.exit("the starter died first")
    os.execvp(options.program[0], options.program)  # noqa: S606 - no shell is the point


def enter_namespace() -> None:
    """Be uid 1000 inside a user namespace and root outside: Postgres refuses uid 0, and files stay root's own."""
    _checked(_libc().unshare(_CLONE_NEWUSER), "unshare")
    for name, text in (("setgroups", "deny"), ("gid_map", "1000 0 1"), ("uid_map", "1000 0 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def become_nobody() -> None:
    """Give up root for good, but keep the right to pass through directories such as a 0700 /root, where there is one.

    Containers often forbid user namespaces. The capability spares copying the binaries and opening parent directories.
    """
    linux = sys.platform == "linux"
    if linux:
        _libc().prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    if linux:
        bit = 1 << _CAP_DAC_OVERRIDE
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        sets = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)
        # A refusal is no fault yet: with readable paths the program needs no capability.
        if _libc().capset(header, sets) == 0:
            _libc().prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0)


def _watch(pipe: int, number: int) -> None:
    """Leave a process behind that signals this one at the pipe's end of file, and goes at its first byte."""
    program = os.getpid()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os.close(pipe)
        return
    if os.fork():  # The program must not find a child that it never started.
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    if not os.read(pipe, 1):
        with contextlib.suppress(ProcessLookupError):
            os.kill(program, number)
            time.sleep(10)
            os.kill(program, signal.SIGKILL)
    os._exit(0)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, call: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()

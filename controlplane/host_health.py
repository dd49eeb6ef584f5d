"""What a probe's outcome means for a host's health. Pure."""

from dataclasses import dataclass

FAILURES_MAX = 3
"""So many in a row make a healthy host unhealthy: one lost packet or one slow garbage collection must not."""


@dataclass(frozen=True)
class HostState:
    """``failures`` counts those in a row, up to FAILURES_MAX. A host starts unhealthy and without failures."""

    healthy: bool
    failures: int


def after_probe(state: HostState, *, succeeded: bool) -> HostState:
    """Return the state after one more probe; one success makes healthy."""
    if succeeded:
        return HostState(True, 0)
    failures = min(state.failures + 1, FAILURES_MAX)
    return HostState(state.healthy and failures < FAILURES_MAX, failures)

"""Which instances are set aside, by what this worker saw of them and by what the control plane's probes said.

Failures in a row set an instance aside, longer each time. It comes back by a successful probe of its ping path, never
by trying a client's request: quickly after refused connections, which a probe can judge, and after the whole time
after failed answers, which it cannot. Answers below 500 and 429 are no failures.

What changes here: the record per identity; only the loop's callbacks change it.
"""

from dataclasses import dataclass

REFUSALS_MAX = 2
"""Connections refused in a row that set an instance aside."""
FAILURES_MAX = 5
"""Failed exchanges in a row (5xx, connection lost, no answer in time) that do."""
DOUBLINGS_MAX = 3
PROBE_AGAIN_SECONDS = 0.25


@dataclass(slots=True)
class _Record:
    refusals: int = 0
    failures: int = 0
    times_ejected: int = 0
    until: float = 0.0
    """Not probed before this moment of the loop's clock."""
    is_out: bool = False
    probing: bool = False


class Health:
    """``out`` holds the identities that are set aside; empty is the common case and costs a truth test."""

    def __init__(self, eject_seconds: float) -> None:
        self._eject_seconds = eject_seconds
        self._records: dict[str, _Record] = {}
        self.out: set[str] = set()

    def succeeded(self, identity: str) -> None:
        record = self._records.get(identity)
        if record is not None and not record.is_out:
            del self._records[identity]

    def refused(self, identity: str, now: float) -> bool:
        """Note a connection that could not be made. Return True when that sets the instance aside."""
        record = self._records.setdefault(identity, _Record())
        record.refusals += 1
        return record.refusals >= REFUSALS_MAX and self._eject(identity, record, now, PROBE_AGAIN_SECONDS)

    def failed(self, identity: str, now: float) -> bool:
        """Note an exchange that failed before its answer. Return True when that sets the instance aside."""
        record = self._records.setdefault(identity, _Record())
        record.failures += 1
        return record.failures >= FAILURES_MAX and self._eject(identity, record, now, self._time_out(record))

    def reported(self, identity: str, healthy: bool, now: float) -> None:
        """Take what a new routing table says."""
        if healthy:
            # The control plane's probe and ours ask the same question; what we saw of requests still counts.
            return
        record = self._records.setdefault(identity, _Record())
        self._eject(identity, record, now, min(self._eject_seconds, PROBE_AGAIN_SECONDS * 4))

    def due(self, now: float) -> list[str]:
        """Return the identities to probe now; each is then being probed until ``probed``."""
        found = [name for name in self.out if not (r := self._records[name]).probing and r.until <= now]
        for name in found:
            self._records[name].probing = True
        return found

    def probed(self, identity: str, answered: bool, now: float) -> bool:
        """Note a probe's result. Return True when the instance is back."""
        record = self._records.get(identity)
        if record is None or not record.is_out:
            return False
        record.probing = False
        if not answered:
            record.until = now + min(self._eject_seconds, 1.0)
            return False
        self.out.discard(identity)
        record.is_out = False
        record.refusals = 0
        # One more failure sets it aside again, for longer; one success clears it.
        record.failures = FAILURES_MAX - 1 if record.failures else 0
        return True

    def forget_all_but(self, identities: set[str]) -> None:
        for name in [name for name in self._records if name not in identities]:
            del self._records[name]
            self.out.discard(name)

    def _time_out(self, record: _Record) -> float:
        return self._eject_seconds * float(2 ** min(record.times_ejected, DOUBLINGS_MAX))

    def _eject(self, identity: str, record: _Record, now: float, seconds: float) -> bool:
        if record.is_out:
            return False
        record.is_out = True
        record.until = now + seconds
        record.times_ejected += 1
        self.out.add(identity)
        return True

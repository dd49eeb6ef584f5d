"""What a soak did and found: which faults explain which failures, and the table at the end."""

from collections import Counter
from dataclasses import dataclass, field

from tests.fleet.load import Result, p95

SLACK_SECONDS = 0.1
RESTART_SECONDS = 6.0
"""How long a data plane may wait before it starts a worker anew that crashes again and again."""


@dataclass(frozen=True)
class Event:
    """One fault. ``plane``: whose worker it struck; None for Redis and the routes."""

    kind: str
    plane: int | None
    began: float
    ended: float

    def explains(self, result: Result) -> bool:
        return (
            self.plane == result.plane
            and result.began <= self.ended + SLACK_SECONDS
            and result.ended >= self.began - SLACK_SECONDS
        )

    def delays(self, result: Result) -> bool:
        """Tell whether its worker was paused or started anew while the request was open."""
        return self.plane == result.plane and self.began < result.ended and result.began < self.ended + RESTART_SECONDS


@dataclass
class Report:
    """What a run found. ``wrong`` is empty when all is well."""

    seconds: float = 0.0
    results: list[Result] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    checks: int = 0
    degraded: int = 0
    about_redis: int = 0
    streams: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def explain(self) -> Counter[str]:
        """Sort the failed requests by what explains them; those without go into ``wrong``."""
        found: Counter[str] = Counter()
        for result in self.results:
            if result.is_good:
                continue
            kinds = [event.kind for event in self.events if event.explains(result)]
            if kinds:
                found[kinds[0]] += 1
            else:
                self.wrong.append(f"status {result.status}, whole {result.whole}, nothing explains {result}")
        return found

    def table(self, explained: Counter[str]) -> str:
        good = [result for result in self.results if result.is_good and not result.left]
        calm = [result.seconds for result in good if not any(event.delays(result) for event in self.events)]
        statuses = Counter(result.status for result in self.results if not result.left)
        rows = [
            ("seconds", f"{self.seconds:.0f}"),
            ("requests", str(len(self.results))),
            ("answered 200", str(statuses[200])),
            ("left by their callers", str(sum(result.left for result in self.results))),
            ("p95 in ms", f"{p95([result.seconds for result in good]) * 1e3:.0f}"),
            ("p95 in ms, worker untouched", f"{p95(calm) * 1e3:.0f}"),
            ("decided without Redis", str(self.degraded)),
            *((f"fault: {kind}", str(count)) for kind, count in sorted(Counter(e.kind for e in self.events).items())),
            *((f"failed, explained by {kind}", str(count)) for kind, count in sorted(explained.items())),
            *((f"held streams: {kind}", str(count)) for kind, count in sorted(self.streams.items())),
            ("log lines about Redis", str(self.about_redis)),
            ("counts compared", str(self.checks)),
            ("wrong", str(len(self.wrong))),
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value:>8}" for name, value in rows)

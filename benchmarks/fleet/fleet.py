"""Simulated hosts in virtual time, with the counts that routing goes by. Pure.

Counts are exact, as admission.lua has them. What is left out: the network, Redis and the proxy (all of them
milliseconds), and failing hosts.
"""

from collections.abc import Hashable, Sequence
from operator import attrgetter

from simulator.calibration import Profile
from simulator.engine import Engine
from simulator.request import Event, Kind, Request


class Fleet:
    """Hosts and their counts. Owner of the engines; time only moves through settle() and finish()."""

    def __init__(self, hosts: int, profile: Profile) -> None:
        self.profile = profile
        self.engines = [Engine(profile) for _ in range(hosts)]
        self.in_flight = [0] * hosts
        self._changes_at: list[float | None] = [None] * hosts

    def add(self) -> int:
        """Add a cold host; return its number. Its engine's time begins with what is sent to it."""
        self.engines.append(Engine(self.profile))
        self.in_flight.append(0)
        self._changes_at.append(None)
        return len(self.engines) - 1

    def next_change_at(self) -> float | None:
        """When something happens on any host next, in seconds; None: all are idle."""
        return min((at for at in self._changes_at if at is not None), default=None)

    def settle(self, now: float) -> list[Event]:
        """Let time pass until ``now``; return what happened, in order of time. What ended is in flight no more."""
        events: list[Event] = []
        for host, at in enumerate(self._changes_at):
            if at is None or at > now:
                continue
            engine = self.engines[host]
            for event in engine.advance(now):
                if event.kind is Kind.FINISHED:
                    self.in_flight[host] -= 1
                events.append(event)
            self._changes_at[host] = engine.next_change_at()
        if len(events) > 1:
            events.sort(key=attrgetter("at"))
        return events

    def send(
        self, host: int, number: Hashable, blocks: Sequence[int], prompt_tokens: int, output_tokens: int, now: float
    ) -> Request:
        """Give a request to a host; arguments as Engine.submit takes them."""
        engine = self.engines[host]
        request = engine.submit(number, blocks, prompt_tokens, output_tokens, now)
        self.in_flight[host] += 1
        self._changes_at[host] = engine.next_change_at()
        return request

    def finish(self) -> None:
        """Let all requests end."""
        for engine in self.engines:
            while (at := engine.next_change_at()) is not None:
                engine.advance(at)


def percentile(ascending: Sequence[float], share: float) -> float:
    """Return the value that ``share`` of them do not exceed (nearest rank)."""
    return ascending[max(0, -int(-share * len(ascending) // 1) - 1)]

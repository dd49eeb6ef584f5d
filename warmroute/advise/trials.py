"""Which pairs are replayed, and what came of each.

Not every pair is run. Lengths that make the same groups differ by the luck of the hash alone, so one stands for all;
a threshold that no home reaches changes nothing; and where the length is worse by far whatever the threshold, one run
shows it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dataplane.routing.instance_order import InstanceOrder
from simulator.calibration import Profile
from warmroute.advise import fleet
from warmroute.advise.fleet import Figures
from warmroute.advise.spool import Kept, Spool

LENGTHS = (1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152, 65536)
THRESHOLDS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
UNLEVEL = 1.25
"""A fleet is level while its busiest host gets at most this many times its even share."""
FAR = 0.03
"""A level length this much of the hit rate below the best is tried at one threshold only."""
SEED = 1


@dataclass(frozen=True, slots=True)
class Group:
    """Lengths that make the same groups of requests."""

    lengths: tuple[int, ...]
    number: int
    """Groups of requests with one key, over the whole log."""
    largest: float
    """Share of the requests that are in the largest group."""
    exact: bool = True
    """Counted; else estimated."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One pair and its figures."""

    group: Group
    threshold: int
    figures: Figures
    and_above: bool = False
    """No home ever reaches this threshold, so every higher one has these figures."""


@dataclass(frozen=True, slots=True)
class Found:
    """All that was replayed."""

    hosts: int
    trials: list[Trial]
    random: Figures
    least_outstanding: Figures
    pooled: float
    """Hit rate of one cache as large as all hosts' together."""


class Replays:
    """Replays the requests of a spool."""

    def __init__(self, spool: Spool, lengths: Sequence[int], hosts: int, profile: Profile, rate: float | None) -> None:
        self.hosts = hosts
        times = spool.times()
        self.is_assumed = None in times
        """Whether the log has no times."""
        self.arrivals = fleet.arrive(times, rate, hosts)
        self._spool, self._lengths, self._profile = spool, list(lengths), profile
        self._order = InstanceOrder([f"host-{host}" for host in range(hosts)], range(hosts))

    def run(self, length: int, threshold: int) -> Figures:
        """Replay PREFIX_AWARE."""
        return self._replay(fleet.prefix_aware(self._order, self._lengths.index(length), threshold, self.hosts))

    def random(self) -> Figures:
        return self._replay(fleet.at_random(SEED))

    def least_outstanding(self) -> Figures:
        return self._replay(fleet.least_outstanding(SEED))

    def pooled(self) -> float:
        return fleet.pooled_hit_rate(self._requests(), self.hosts, self._profile)

    def _replay(self, route: fleet.Route) -> Figures:
        return fleet.replay(self._requests(), route, self.hosts, self._profile)

    def _requests(self) -> Iterator[tuple[float, Kept]]:
        order = [number for _, number in self.arrivals]
        times = (at for at, _ in self.arrivals)
        return zip(times, self._spool.read(order, len(self._lengths)), strict=True)


def same_groups(
    lengths: Sequence[int], numbers: Sequence[int], largest: Sequence[float], exact: Sequence[bool]
) -> list[Group]:
    """Return the lengths put together by their number of groups.

    A longer length only ever splits groups, so as many groups are the same groups.
    """
    found: dict[int, list[int]] = {}
    for place, number in enumerate(numbers):
        found.setdefault(number, []).append(place)
    return [Group(tuple(lengths[place] for place in places), number, largest[places[0]], exact[places[0]])
            for number, places in found.items()]  # fmt: skip


def run_all(replays: Replays, groups: Sequence[Group], thresholds: Sequence[int], tick: Callable[[int], None]) -> Found:
    """Replay what is worth it; ``tick`` gets the number of runs that are left after each."""
    highest = max(thresholds)
    left = len(groups) + 3
    trials = []
    for group in groups:
        trials.append(settled(group, thresholds, replays.run(group.lengths[0], highest)))
        left -= 1
        tick(left)
    plan = lower(trials, thresholds, replays.hosts)
    left += len(plan)
    for group, threshold in plan:
        trials.append(Trial(group, threshold, replays.run(group.lengths[0], threshold)))
        left -= 1
        tick(left)
    others = replays.random(), replays.least_outstanding(), replays.pooled()
    tick(0)
    trials.sort(key=lambda trial: (trial.group.lengths, trial.threshold))
    return Found(replays.hosts, trials, *others)


def settled(group: Group, thresholds: Sequence[int], figures: Figures) -> Trial:
    """Return the trial of a run at the highest threshold, at the lowest that has the same figures."""
    if figures.overflow or figures.saturated:
        return Trial(group, max(thresholds), figures)
    enough = [threshold for threshold in thresholds if threshold >= figures.at_home]
    return Trial(group, min(enough, default=max(thresholds)), figures, and_above=bool(enough))


def lower(trials: Sequence[Trial], thresholds: Sequence[int], hosts: int) -> list[tuple[Group, int]]:
    """Return the pairs below those tried that may matter."""
    best = max((trial.figures.hit_rate for trial in trials), default=0.0)
    return [
        (trial.group, threshold)
        for trial in trials
        if hosts > 1 and (trial.figures.busiest * hosts > UNLEVEL or trial.figures.hit_rate >= best - FAR)
        for threshold in thresholds
        if threshold < trial.threshold
    ]

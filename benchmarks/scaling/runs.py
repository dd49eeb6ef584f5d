"""The runs: the announcement's long context, with a change of hosts on the way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.announcement.cells import CLIENTS_PER_HOST, LONG, OPEN, PROFILE, THRESHOLD
from benchmarks.fleet.closed_loop import PREFIX_AWARE, Answered, Change, Clients, Plan, Routing, run
from benchmarks.fleet.conversations import Api
from benchmarks.fleet.figures import Figures, figures
from benchmarks.fleet.parallel import spread
from benchmarks.fleet.strategies import STRATEGIES
from benchmarks.scaling.moves import homes, moved, moved_needlessly
from dataplane.routing.instance_order import SLOTS

FEWER, MORE = 7, 8
CLIENTS = CLIENTS_PER_HOST * FEWER
DIRECTIONS = {"7 to 8": (FEWER, MORE), "8 to 7": (MORE, FEWER)}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run."""

    seeds: tuple[int, ...]
    seconds: float
    """The change is in the middle."""
    warm_up_seconds: float
    """Served, but left out of the figures."""
    settle_seconds: float
    """The time after the change that is looked at by itself."""
    window_seconds: float
    """Of a curve's points."""


WHOLE = Size((1, 2, 3, 4, 5), 1_200, 240, 60, 20)
QUICK = Size((1,), 40, 8, 8, 4)


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    direction: str
    strategy: str
    seed: int
    size: Size


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run says."""

    moved_slots: float
    needlessly: int
    moved_prefixes: float
    """Of the requests in the settling time after the change, those whose key's home had moved; 0 without keys."""
    before: Figures
    settling: Figures
    after: Figures
    hit_rates: list[float]
    ttft_mean_ms: list[float]
    """Both by window."""


Found = dict[tuple[str, str], list[Measured]]
"""(direction, strategy) -> one for each seed, in their order."""


def plan(job: Job) -> Plan:
    """Return what to run. The host that joins or leaves is the last one."""
    before, after = ([f"seed-{job.seed}-host-{number}" for number in range(count)]
                     for count in DIRECTIONS[job.direction])  # fmt: skip
    return Plan(
        start=LONG.kind.start,
        api=Api.NATIVE,
        clients=Clients(CLIENTS, OPEN),
        routing=Routing(job.strategy, LONG.prefix_length, THRESHOLD),
        hosts=tuple(before),
        seconds=job.size.seconds,
        profile=PROFILE,
        changes=(Change(job.size.seconds / 2, tuple(after)),),
    )


def measure(job: Job) -> Measured:
    """Run one job."""
    size, wanted = job.size, plan(job)
    answered = run(wanted, job.seed)
    old, new = wanted.hosts, wanted.changes[0].hosts
    before, after = homes(old), homes(new)
    middle = size.seconds / 2
    fresh = [one for one in answered if middle <= one.submitted_at < middle + size.settle_seconds]
    changed = [before[one.key % SLOTS] != after[one.key % SLOTS] for one in fresh if job.strategy == PREFIX_AWARE]
    return Measured(
        moved_slots=moved(before, after),
        needlessly=moved_needlessly(before, after),
        moved_prefixes=sum(changed) / len(changed) if changed else 0.0,
        before=figures(answered, old, size.warm_up_seconds, middle),
        settling=figures(answered, new, middle, middle + size.settle_seconds),
        after=figures(answered, new, middle + size.settle_seconds, size.seconds),
        hit_rates=_by_window(answered, size, _hit_rate),
        ttft_mean_ms=_by_window(answered, size, _mean_ttft_ms),
    )


def measure_all(size: Size, say: Callable[[str], None], processes: int | None = None) -> Found:
    """Run everything."""
    jobs = [Job(direction, strategy, seed, size)
            for direction in DIRECTIONS for strategy in STRATEGIES for seed in size.seeds]  # fmt: skip
    found: Found = {}
    for job, measured in zip(jobs, spread(measure, jobs, processes=processes), strict=True):
        runs = found.setdefault((job.direction, job.strategy), [])
        runs.append(measured)
        if len(runs) == len(size.seeds):
            say(f"{job.direction}, {job.strategy}: done")
    return found


def _by_window(answered: Sequence[Answered], size: Size, value: Callable[[list[Answered]], float]) -> list[float]:
    """Return ``value`` of what was submitted in each window; an empty one has the value before it."""
    windows: list[list[Answered]] = [[] for _ in range(int(size.seconds / size.window_seconds))]
    for one in answered:
        place = int(one.submitted_at / size.window_seconds)
        if place < len(windows):
            windows[place].append(one)
    values: list[float] = []
    for window in windows:
        values.append(value(window) if window else (values or [0.0])[-1])
    return values


def _hit_rate(of: Sequence[Answered]) -> float:
    return sum(one.cached_tokens for one in of) / sum(one.prompt_tokens for one in of)


def _mean_ttft_ms(of: Sequence[Answered]) -> float:
    return sum(1000 * (one.first_token_at - one.submitted_at) for one in of) / len(of)

"""One endurance run: a data plane under a mixed load for so long, sampled, then left alone. See docs/endurance.md."""

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from contract.routing_table import Endpoint
from tests.dataplane_e2e.stage import Fleet, Stage
from tests.endurance.load import Load
from tests.endurance.samples import Sample, faults, growth, table, take
from tests.fakes.data_plane import DataPlane
from tests.fakes.model_host import Hosts, host_thread
from tests.fakes.routes import Routes
from tests.services import PrivateServers
from tests.waiting import wait_until

HOSTS = 5
STRATEGIES = ("PREFIX_AWARE", "LEAST_OUTSTANDING_REQUESTS", "RANDOM")
"""An endpoint each."""
SETTLED_SHARE = 1 / 6
"""Of a run, at its beginning: caches fill, pools of memory find their size. Five of thirty minutes."""
SAMPLES = 360
"""A run."""
DISTURB_EVERY_SECONDS = 5.0
LEFT_ALONE_SECONDS = 20.0
"""After the load: idle connections to hosts are closed after 4 s."""
SETTINGS = {"STORE_BUDGET_SECONDS": 0.5}
"""So that no pause of a busy machine counts as a slow store."""


@dataclass
class Report:
    """What a run found. ``wrong`` is empty when all is well."""

    before: Sample
    during: list[Sample] = field(default_factory=list)
    after: Sample | None = None
    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    settled: float = 0.0

    def text(self) -> str:
        assert self.after is not None
        grown = ", ".join(f"{share:+.1%}" for share in growth(self.during, self.settled))
        lines = [table(self.before, self.during, self.after), ""]
        lines += [f"{kind:<34}{count:>9,}" for kind, count in self.done.most_common()]
        lines.append(f"{'memory after the first ' + format(self.settled, '.0f') + ' s':<34}{grown:>9}")
        lines.append(f"{'wrong':<34}{len(self.wrong):>9}")
        return "\n".join(lines)


class Site:
    """A Redis, one data plane on it, and endpoints with hosts."""

    def __init__(self, directory: Path, stack: contextlib.ExitStack, workers: int) -> None:
        servers = PrivateServers(directory)
        stack.callback(servers.stop)
        self.thread = stack.enter_context(host_thread())
        redis = servers.redis()
        self.routes = Routes(redis.url)
        self.stage = Stage(redis.url, directory / "stage", self.routes)
        stack.callback(self.stage.close)
        self.plane: DataPlane = self.stage.start(workers=workers, settings=SETTINGS)
        self.fleet = Fleet(self.stage, Hosts(self.thread), "endurance")
        stack.callback(self.fleet.hosts.close)
        self.sites = [self.fleet.deploy(HOSTS, strategy) for strategy in STRATEGIES]

    def pids(self) -> list[int]:
        """Return the workers' process ids."""
        return self.plane.pids()[1:]

    @property
    def hosts_idle(self) -> bool:
        return not any(site.in_flight for site in self.sites)

    def left(self) -> list[str]:
        """Return what is still counted in flight."""
        found = {site.name: self.routes.in_flight(site.endpoint) for site in self.sites}
        return [f"{name}: {counts} still counted in flight" for name, counts in found.items() if counts]

    @contextlib.contextmanager
    def without_one_host(self, dice: Random) -> Iterator[None]:
        """One host refuses new connections."""
        host = dice.choice([host for site in self.sites for host in site.hosts])
        host.refuse()
        try:
            yield
        finally:
            host.start()

    def switch(self, dice: Random) -> None:
        """Publish an endpoint with a host more or less and another threshold, as an update does."""
        number = dice.randrange(len(self.sites))
        site = self.sites[number]
        hosts = dice.sample(site.hosts, dice.randint(3, HOSTS))
        chosen = self.fleet.variant(hosts, strategy=STRATEGIES[number], threshold=dice.randint(2, 40))
        self.routes.put(Endpoint(site.name, site.endpoint.id, site.endpoint.created, (chosen,)))


def run(
    seconds: float, workers: int, rate: float, seed: int, directory: Path, say: Callable[[str], None] = lambda _: None
) -> Report:
    """Run for so long and return what was found. ``say`` is told how it goes, sixty times a run."""
    dice = Random(seed)
    with contextlib.ExitStack() as stack:
        site = Site(directory, stack, workers)
        report = Report(take(0.0, 0, site.pids()), settled=seconds * SETTLED_SHARE)
        load = Load(site.thread, site.plane.port, site.sites, rate, dice)
        with load.running():
            _watch(seconds, site, load, dice, report, say)
        report.done, report.wrong = load.done, load.wrong
        _leave_alone(site, report, load.requests, seconds)
        report.wrong += site.left()
    assert report.after is not None
    report.wrong += faults(report.before, report.during, report.after, report.settled)
    return report


def _watch(seconds: float, site: Site, load: Load, dice: Random, report: Report, say: Callable[[str], None]) -> None:
    began = time.monotonic()
    disturbances = _disturb(site, dice)
    disturb_at = DISTURB_EVERY_SECONDS
    for number in itertools.count(1):
        at = number * seconds / SAMPLES
        time.sleep(max(0.0, began + at - time.monotonic()))
        report.during.append(sample := take(time.monotonic() - began, load.requests, site.pids()))
        for host in site.fleet.hosts.made:
            # They write down every body.
            host.clear()
        if number % (SAMPLES // 60) == 0:
            rss = ", ".join(f"{size / 1e6:.1f}" for size in sample.rss)
            say(f"{sample.at:6.0f} s  {sample.requests:>9,} requests  RSS {rss} MB  descriptors {sample.descriptors}  "
                f"wrong {len(load.wrong)}")  # fmt: skip
        if number == SAMPLES:
            return
        if at >= disturb_at:
            next(disturbances)
            disturb_at += DISTURB_EVERY_SECONDS


def _disturb(site: Site, dice: Random) -> Iterator[None]:
    """By turns a host goes away for a while, comes back, and routes change."""
    while True:
        with site.without_one_host(dice):
            yield
        yield
        site.switch(dice)
        yield


def _leave_alone(site: Site, report: Report, requests: int, seconds: float) -> None:
    """Wait until descriptors are as before, or too long."""

    def is_back() -> bool:
        report.after = take(seconds, requests, site.pids())
        return report.after.descriptors == report.before.descriptors

    with contextlib.suppress(AssertionError):
        wait_until(is_back, LEFT_ALONE_SECONDS)
    wait_until(lambda: site.hosts_idle, LEFT_ALONE_SECONDS, "the hosts work on nothing")

"""A fleet under load while everything around it fails, and what it counts afterwards. See docs/soak.md.

    .venv/bin/python -m tests.fleet.soak --minutes 10 --workers 4 --seed 1

Rounds of some seconds: two lanes of faults, one for the workers and one for Redis and the routes, run beside the load;
then everything is left alone for a lease, and Redis must count what the hosts see. A request that failed is explained
only by what was done to its own worker while it was open; nothing explains one by what was done to Redis or the routes.
"""

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from contract import redis_keys
from contract.routing_table import Endpoint, Strategy, Variant
from tests.dataplane_e2e.stage import Deployed, Fleet, Stage, chat_body, invoke, prefix
from tests.fakes.answers import Exchange, Gate, echo, sse
from tests.fakes.model_host import Hosts, HostThread, ModelHost, host_thread
from tests.fakes.raw_client import ConnectionEnded, RawClient
from tests.fakes.routes import Routes, endpoint, instance, variant
from tests.fleet.load import Load, Shot
from tests.fleet.report import Event, Report
from tests.fleet.stage import LEASE_SECONDS, SETTINGS, expect_exact
from tests.services import PrivateServers
from tests.waiting import wait_until

ROUND_SECONDS = 15.0
KILLED_SHARE = 0.25
"""Of the faults of workers; the others are pauses."""
RATE = 15.0
"""Requests a second for each worker."""
HOSTS = 5
ENDPOINTS = 3
HELD_STREAMS = 2
"""On each endpoint through each worker, open from one round to the next."""
FREEZE_SECONDS = 20.0
"""Once in a run of LONG_MINUTES or more; other freezes are shorter."""
END_SECONDS = 60.0
"""What a run may take beyond its minutes."""
LONG_MINUTES = 5.0
WRONG_MAX = 20
HELD, FIRST, LAST = b"held", b"data: first\n\n", b"data: [DONE]\n\n"


@dataclass
class Held:
    """A stream that is open in the middle."""

    client: RawClient
    plane: int
    opened: float


class Site:
    """One endpoint: its hosts, its present variant, its open streams."""

    def __init__(self, name: str, hosts: list[ModelHost], dice: random.Random) -> None:
        self.name, self.hosts = name, hosts
        self.gate = Gate()
        self.held: list[Held] = []
        self._names = {instance(host).number: host.name for host in hosts}
        self._dice = dice
        self.endpoint = endpoint(name, self._variant())
        for host in hosts:
            host.answer = self._answer

    @property
    def deployed(self) -> Deployed:
        return Deployed(self.endpoint, self.hosts)

    def switch(self, *, exact: int | None = None) -> Endpoint:
        """Take another strategy, threshold and set of instances, as an update brings them; or all, for a last check."""
        found = self.endpoint
        chosen = self._variant() if exact is None else variant([instance(x) for x in self.hosts], threshold=exact)
        self.endpoint = Endpoint(found.name, found.id, found.created, (chosen,))
        return self.endpoint

    def counted(self, routes: Routes) -> dict[str, int]:
        """Return host name -> requests in flight that Redis counts."""
        load = routes.redis.hgetall(redis_keys.load_key(self.endpoint.id))
        return {self._names[int(number)]: int(count) for number, count in load.items() if int(count)}

    def working(self) -> dict[str, int]:
        """Return host name -> requests the host is working on."""
        return {host.name: host.in_flight for host in self.hosts if host.in_flight}

    def shots(self) -> list[Shot]:
        """Return native, chat and streamed requests of some prefixes; one in eight callers leaves."""
        found = []
        for number in range(24):
            leaves = self._dice.uniform(0.001, 0.2) if number % 8 == 7 else None
            text = prefix(number % 6)
            if number % 3 == 0:
                found.append(Shot(self.deployed.invocations, text, leaves_after=leaves))
            else:
                body = chat_body(text.decode(), stream=number % 3 == 2)
                found.append(Shot(self.deployed.chat, body, leaves_after=leaves))
        return found

    def _variant(self) -> Variant:
        hosts = self._dice.sample(self.hosts, self._dice.randint(2, len(self.hosts)))
        strategy = self._dice.choice(list(Strategy))
        return variant([instance(x) for x in hosts], strategy=strategy, threshold=self._dice.randint(1, 16))

    async def _answer(self, exchange: Exchange) -> None:
        body, pause = exchange.delivery.body, self._dice.uniform(0.0, 0.05)
        if body == HELD:
            await sse(FIRST, self.gate, LAST)(exchange)
        elif b'"stream": true' in body:
            await sse(FIRST, *(pause, b"data: x\n\n") * 8, LAST)(exchange)
        else:
            await asyncio.sleep(pause)
            await echo(exchange)


class Soak:
    """One run."""

    def __init__(
        self, directory: Path, thread: HostThread, servers: PrivateServers, workers: int, dice: random.Random
    ) -> None:
        self.report = Report()
        self._dice = dice
        self._redis = servers.redis()
        self._routes = Routes(self._redis.url)
        self._stage = Stage(self._redis.url, directory / "stage", self._routes)
        self._fleet = Fleet(self._stage, Hosts(thread), "soak")
        self._sites = [Site(f"site-{n}", self._fleet.hosts.make(HOSTS), dice) for n in range(ENDPOINTS)]
        self._routes.put(*(site.endpoint for site in self._sites))
        self._planes = [self._stage.start(settings=SETTINGS) for _ in range(workers)]
        shots = [shot for site in self._sites for shot in site.shots()]
        dice.shuffle(shots)
        self._load = Load(thread, self._planes, shots, RATE * workers, self.report.results)

    def close(self) -> None:
        """End everything; what the planes did wrong goes into the report."""
        for plane in self._planes:
            self.report.about_redis += plane.output.count("Redis at ")
            try:
                if plane.stop() != 0 or "Traceback" in plane.output:
                    self._wrong(f"a plane did not end well: {plane.output[-2000:]}")
            finally:
                plane.kill()
        self._fleet.hosts.close()
        self._routes.close()

    # --- rounds ------------------------------------------------------------------------------------------------------

    def round(self, seconds: float, freeze_seconds: float | None = None) -> None:
        """Faults beside the load for so long; then, left alone, the counts must be true."""
        self._open_streams()
        until = time.monotonic() + seconds
        over = threading.Event()
        lane = threading.Thread(target=self._hurt_workers, args=(until, over), name="worker faults")
        with self._load.running():
            lane.start()
            try:
                self._hurt_store(until, freeze_seconds)
            finally:
                over.set()
                lane.join()
        self._settle()
        for site in self._sites:
            self._compare(site)
        self._close_streams()

    def last_check(self) -> None:
        """With nothing open all counts are zero, nothing was corrected, and the threshold is exact over all workers."""
        for site in self._sites:
            self._compare(site)
            if left := site.counted(self._routes):
                self._wrong(f"{site.name}: {left} is left")
        site = self._sites[0]
        self._routes.put(site.switch(exact=4))
        self._stage.settle()
        target = (site.deployed.invocations, prefix(0))
        with self._planes[0].client() as client:
            home = invoke(client, site.deployed, prefix(0))
        try:
            expect_exact(self._fleet, self._planes, site.deployed, target, home, 4)
        except AssertionError as error:
            self._wrong(f"the threshold is not exact: {error}")
        for plane in self._planes:
            self.report.degraded += int(plane.metric("warmroute_route_degraded_total"))
            if corrections := plane.metric("warmroute_in_flight_corrections_total"):
                self._wrong(f"{corrections:.0f} releases found nothing")

    def _settle(self) -> None:
        """Wait until every worker is there and knows the routes; a call of each strikes those that are not."""
        wait_until(lambda: all(plane.is_ready() for plane in self._planes), 20, "every worker is ready")
        self._routes.publish()
        self._stage.settle()
        for plane in self._planes:
            with plane.client() as client:
                for site in self._sites:
                    client.request(site.deployed.invocations, prefix(0))

    def _compare(self, site: Site) -> None:
        self.report.checks += 1
        try:
            wait_until(lambda: site.counted(self._routes) == site.working(), LEASE_SECONDS + 1)
        except AssertionError:
            self._wrong(f"{site.name}: Redis counts {site.counted(self._routes)}, the hosts {site.working()}")

    def _wrong(self, what: str) -> None:
        self.report.wrong.append(what)

    # --- streams that stay open --------------------------------------------------------------------------------------

    def _open_streams(self) -> None:
        for site in self._sites:
            site.gate = Gate()
            for number in range(len(self._planes) * HELD_STREAMS):
                plane = number % len(self._planes)
                client = self._planes[plane].client().ask(site.deployed.stream, HELD)
                client.read_head()
                site.held.append(Held(client, plane, time.monotonic()))

    def _close_streams(self) -> None:
        """Let all of them end. One that was cut is explained only by the death of its worker."""
        for site in self._sites:
            site.gate.open()
            for held in site.held:
                whole = b""
                with contextlib.suppress(ConnectionEnded):
                    whole = b"".join(held.client.chunks())
                held.client.close()
                killed = any(
                    event.kind == "worker killed" and event.plane == held.plane and event.began > held.opened
                    for event in self.report.events
                )
                outcome = "whole" if LAST in whole else "cut, worker killed" if killed else "cut"
                self.report.streams[outcome] += 1
                if outcome == "cut":
                    self._wrong(f"{site.name}: a stream through plane {held.plane} was cut and nothing explains it")
            site.held.clear()

    # --- faults ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _event(self, kind: str, plane: int | None = None) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.report.events.append(Event(kind, plane, began, time.monotonic()))

    def _hurt_workers(self, until: float, over: threading.Event) -> None:
        while not over.wait(self._dice.uniform(0.3, 1.5)) and time.monotonic() < until:
            plane = self._dice.randrange(len(self._planes))
            pids = self._planes[plane].pids()
            if len(pids) < 2:
                # Killed a moment ago, and not started again yet.
                continue
            if self._dice.random() < KILLED_SHARE:
                with self._event("worker killed", plane):
                    os.kill(pids[-1], signal.SIGKILL)
            else:
                with self._event("worker paused", plane):
                    os.kill(pids[-1], signal.SIGSTOP)
                    over.wait(self._dice.uniform(0.1, LEASE_SECONDS * 1.6))
                    os.kill(pids[-1], signal.SIGCONT)

    def _hurt_store(self, until: float, freeze_seconds: float | None) -> None:
        if freeze_seconds is not None:
            self._freeze(freeze_seconds)
        acts = (self._switch, self._switch, self._freeze, self._restart, self._flush, self._flush_scripts)
        while time.monotonic() < until:
            time.sleep(self._dice.uniform(0.2, 1.5))
            self._dice.choice(acts)()

    def _switch(self) -> None:
        with self._event("routes switched"):
            self._routes.put(self._dice.choice(self._sites).switch())

    def _freeze(self, seconds: float | None = None) -> None:
        with self._event("Redis frozen"):
            self._redis.pause()
            time.sleep(self._dice.uniform(0.05, 4.0) if seconds is None else seconds)
            self._redis.resume()

    def _restart(self) -> None:
        with self._event("Redis restarted empty"):
            self._redis.kill()
            time.sleep(self._dice.uniform(0.0, 3.0))
            self._redis.start()
            self._routes.write()

    def _flush(self) -> None:
        with self._event("Redis flushed"):
            self._routes.redis.flushall()
            time.sleep(self._dice.uniform(0.0, 0.5))
            self._routes.write()

    def _flush_scripts(self) -> None:
        with self._event("scripts flushed"):
            self._routes.redis.script_flush()


def run(minutes: float, workers: int, seed: int, directory: Path) -> Report:
    """Run for so long and return what was found."""
    began = time.monotonic()
    servers = PrivateServers(directory)
    with contextlib.ExitStack() as stack:
        stack.callback(servers.stop)
        thread = stack.enter_context(host_thread())
        dice = random.Random(seed)
        soak = Soak(directory, thread, servers, workers, dice)
        stack.callback(soak.close)
        freeze: float | None = FREEZE_SECONDS if minutes >= LONG_MINUTES else None
        while (left := began + minutes * 60 - time.monotonic()) > ROUND_SECONDS / 2:
            soak.round(min(ROUND_SECONDS, left), freeze)
            freeze = None
            if len(soak.report.wrong) > WRONG_MAX:
                break
        soak.last_check()
    soak.report.seconds = time.monotonic() - began
    return soak.report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    def too_late(number: int, frame: object) -> None:
        raise TimeoutError("the run did not end in its time")

    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(int(options.minutes * 60 + END_SECONDS))
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        report = run(options.minutes, options.workers, options.seed, Path(directory))
    explained = report.explain()
    print(report.table(explained))
    for line in report.wrong[:WRONG_MAX]:
        print("WRONG", line)
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

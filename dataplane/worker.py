"""One worker: builds its parts, connects them, serves, drains.

Started by dataplane.main with a listening socket and a control pipe, both inherited; the pipe's end means that the
parent is gone.
"""

import argparse
import asyncio
import logging
import os
import random
import signal
import socket
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from access.addresses import is_metadata_address
from access.files import host_tls, listener_tls, sealing_of
from contract.settings import Settings, load, require
from dataplane.access_log import AccessLog
from dataplane.descriptors import claim
from dataplane.front import Front
from dataplane.guard import Guard
from dataplane.host import Address
from dataplane.host_credentials import HostCredentials
from dataplane.lasting import LASTING, lasting
from dataplane.memory import collect_seldom, give_back_holes, give_back_large_blocks
from dataplane.metrics import Labels, Metrics
from dataplane.parts import Parts
from dataplane.probe import ping
from dataplane.record import Record
from dataplane.routing.routes import Routes
from dataplane.state import store
from dataplane.state.budget import RetryBudget
from dataplane.state.health import Health
from dataplane.state.inflight import InFlight
from dataplane.state.link import State
from dataplane.state.rates import Rates
from dataplane.state.redis_client import RedisClient
from dataplane.state.routes import RouteWatcher
from dataplane.wire.pool import Pool
from dataplane.wire.server import ClientConnection

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 0.1
"""Time limits are kept to within this."""
_PUBLISH_EVERY = 10
_GIVE_BACK_EVERY = 100
DRAIN_TURN_SECONDS = 0.02
SAY_EVERY_SECONDS = 5.0
FRESH_SECONDS = 1.0
"""A connection without a request yet is left open so long: its first request may be on its way."""
LAST_WORDS_SECONDS = 1.0
"""For the ends of cut-off answers to leave."""
BACKLOG = 1024


class _Observer:
    """Reports of the in-flight counts, as metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def store_state(self, state: str) -> None:
        self._metrics.set_all("store_up", {(): float(state == State.UP)})

    def corrected(self, count: int) -> None:
        self._metrics.count("in_flight_corrections_total", amount=count)

    def store_call(self, admits: int) -> None:
        self._metrics.count("store_calls_total")
        if admits:
            self._metrics.count("store_admissions_total", amount=admits)


class Worker:
    """The parts of one worker and their life."""

    def __init__(self, settings: Settings, slot: int, directory: Path | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.settings = settings
        sealing = sealing_of(settings)
        self.guard = Guard(sealing) if settings.auth == "on" and sealing is not None else None
        self.host_credentials = HostCredentials(sealing)
        url = require(settings, "REDIS_URL")
        identity = f"{socket.gethostname()[:32]}-{slot}-{os.urandom(6).hex()}".replace("/", "-")
        self.metrics = Metrics(directory / "metrics" if directory is not None else None, f"{slot}-{os.getpid()}")
        self.log = AccessLog()
        self.health = Health(settings.eject_seconds)
        self.pool = Pool(
            settings.connect_timeout_seconds,
            settings.host_keep_alive_seconds,
            tls=host_tls(settings),
            is_forbidden=is_metadata_address if settings.allow_metadata_hosts == "off" else lambda address: False,
        )
        self._tls = listener_tls(settings)
        self.in_flight = InFlight(
            store.Address.of(url),
            identity,
            settings.lease_seconds,
            settings.store_budget_seconds,
            _Observer(self.metrics),
        )
        self.client = RedisClient(url)
        # A client of its own: what goes wrong with the routes' connections must not hold up requests.
        self.rates_client = RedisClient(url)
        self.rates = Rates(
            self.rates_client,
            settings.store_budget_seconds,
            lambda: self.in_flight.state is State.UP,
            lambda: self.in_flight.live_workers,
        )
        self.routes = RouteWatcher(
            self.client, identity, settings.resync_seconds, settings.lease_seconds, directory, self._applied
        )
        parts = Parts(
            loop=self.loop,
            settings=settings,
            in_flight=self.in_flight,
            pool=self.pool,
            health=self.health,
            host_credentials=self.host_credentials,
            budget=RetryBudget(),
            rates=self.rates,
            metrics=self.metrics,
            log=self.log,
            record=Record(self.metrics, self.log, self.health),
            exchanges={},
            dice=random.Random(),  # noqa: S311 - spreads load, guards nothing
        )
        self.exchanges = parts.exchanges
        self.front = Front(parts, lambda: self.routes.current, self.guard)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, listener: socket.socket) -> None:
        self.log.start()
        self.metrics.set_all("store_up", {(): 0.0})
        await asyncio.gather(self.in_flight.start(), self.routes.start())
        server = await self.loop.create_server(
            lambda: ClientConnection(self.front), sock=listener, backlog=BACKLOG, ssl=self._tls
        )
        self._servers.append(server)
        self._gauge()
        self._keep(lasting(self._sweep(), "keep time limits"))

    async def drain(self, hurry: asyncio.Event) -> None:
        """Take no more, let requests finish within the limit (or until ``hurry``), end the rest in their API's form."""
        self.front.draining = True
        # Whoever waits in the listener's queue is let in before it closes: closing would reset them.
        await asyncio.sleep(DRAIN_TURN_SECONDS)
        for server in self._servers:
            server.close()
        began = said = self.loop.time()
        deadline = began + self.settings.drain_seconds
        while self._close_idle(began + FRESH_SECONDS) and self.loop.time() < deadline and not hurry.is_set():
            await asyncio.sleep(DRAIN_TURN_SECONDS)
            if self.loop.time() - said > SAY_EVERY_SECONDS:
                said = self.loop.time()
                phases = Counter(connection.phase for connection in self.front.connections)
                waiting = ", ".join(f"{count} {phase}" for phase, count in phases.items())
                logger.info("Draining for another %.0f s at most: %s", deadline - said, waiting)
        for exchange in list(self.exchanges):
            exchange.cut("the worker is stopping")
        deadline = self.loop.time() + LAST_WORDS_SECONDS
        while self._close_idle(0.0) and self.loop.time() < deadline and not hurry.is_set():
            await asyncio.sleep(DRAIN_TURN_SECONDS)

    def _close_idle(self, fresh_until: float) -> int:
        """Close the connections without a request; return how many are left."""
        for connection in list(self.front.connections):
            connection.close_if_idle(fresh_too=self.loop.time() >= fresh_until)
        return len(self.front.connections)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(self.in_flight.stop(), self.routes.stop(), self.rates.stop())
        self.pool.close()
        self.metrics.set_all("in_flight", {})
        self.metrics.publish()
        self.log.stop()
        await self.client.aclose()
        await self.rates_client.aclose()

    # --- between the parts -------------------------------------------------------------------------------------------

    def _applied(self, routes: Routes) -> None:
        """A new table: drop what left it, take what it says of health."""
        if self.guard is not None:
            self.guard.apply(routes)
        self.host_credentials.apply(routes)
        instances = routes.instances()
        self.health.forget_all_but(set(instances))
        now = self.loop.time()
        for identity, (instance, _) in instances.items():
            self.health.reported(identity, instance.healthy, now)
        self.pool.keep_only(routes.addresses)
        self.metrics.set_all("routes_generation", {(): float(routes.table.generation)})

    def _spawn(self, work: "asyncio.coroutines.Coroutine[object, object, None]") -> None:  # type: ignore[name-defined]
        self._keep(self.loop.create_task(work))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sweep(self) -> None:
        """Keep the time limits, probe set-aside instances, publish the metrics."""
        for turn in range(sys.maxsize):
            await asyncio.sleep(SWEEP_SECONDS)
            now = self.loop.time()
            for exchange in list(self.exchanges):
                exchange.check(now)
            for connection in [c for c in self.front.connections if c.deadline is not None and c.deadline <= now]:
                connection.overdue()
            self.pool.sweep()
            for identity in self.health.due(now):
                self._spawn(self._probe(identity))
            if turn % _PUBLISH_EVERY == 0:
                self._gauge()
            if turn % _GIVE_BACK_EVERY == 0:
                give_back_holes()

    async def _probe(self, identity: str) -> None:
        routes = self.routes.current
        found = routes.instances().get(identity) if routes is not None else None
        answered = False
        if found is not None:
            instance, variant = found
            credential = self.host_credentials.line(variant.host_authorization) or b""
            answered = await ping(self.pool, Address.of(instance.base_url), variant.ping_path, credential)
        if self.health.probed(identity, answered, self.loop.time()):
            logger.info("Instance %s answers its ping again and takes requests", identity)

    def _gauge(self) -> None:
        opened, _ = self.pool.counts
        self.metrics.set_all("client_connections", {(): len(self.front.connections)})
        self.metrics.set_all("host_connections", {(): opened})
        self.metrics.set_all("workers", {(): 1})
        if self.routes.current is not None:
            self._gauge_instances(self.routes.current)
        self.metrics.publish()

    def _gauge_instances(self, routes: Routes) -> None:
        in_flight: dict[Labels, float] = {}
        available: dict[Labels, float] = {}
        for endpoint in routes.endpoints.values():
            held = self.in_flight.held(endpoint.id)
            for variant in endpoint.variants:
                names = (endpoint.name, variant.name)
                out = sum(instance.identity in self.health.out for instance in variant.instances)
                available[names] = len(variant.instances) - out
                for instance in variant.instances:
                    in_flight[(*names, instance.identity)] = held.get(instance.number, 0)
        self.metrics.set_all("in_flight", in_flight)
        self.metrics.set_all("instances_available", available)


async def serve(settings: Settings, slot: int, directory: Path | None, listener: socket.socket, pipe: int) -> None:
    """Run one worker until a signal or the parent's end."""
    loop = asyncio.get_running_loop()
    stop, hurry = asyncio.Event(), asyncio.Event()

    def ended() -> None:
        """The first signal drains, a second one does not wait for it."""
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    loop.add_reader(pipe, stop.set)

    def fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        loop.default_exception_handler(context)
        if LASTING in context:
            logger.critical("Worker %d drains and ends, so that it is started anew", slot)
            stop.set()

    loop.set_exception_handler(fault)
    worker = Worker(settings, slot, directory)
    await worker.start(listener)
    collect_seldom()
    os.write(pipe, b"1")
    await stop.wait()
    loop.remove_reader(pipe)
    await worker.drain(hurry)
    await worker.stop()


def main() -> None:
    """Entry of a worker process; only dataplane.main starts it."""
    parser = argparse.ArgumentParser()
    for name in ("--slot", "--listener", "--pipe"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    settings = load(os.environ)
    logging.basicConfig(
        level=settings.log_level.upper(),
        format=f"%(asctime)s %(levelname)s worker-{options.slot} %(message)s",
    )
    give_back_large_blocks()
    settings = replace(settings, connections_max=claim(settings.connections_max))
    listener = socket.socket(fileno=options.listener)
    uvloop.run(serve(settings, options.slot, options.data_dir, listener, options.pipe))


if __name__ == "__main__":
    main()

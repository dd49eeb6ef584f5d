"""The requests in flight: chosen and counted in one atomic step in Redis, for all workers.

Callers admit, count and release; each endpoint has a ledger; each ledger talks to the node of the store that serves
its slot. The store's answers are callbacks: no coroutine per request.

What changes here: the ledgers, the links and the topology; only callbacks of the event loop change them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from dataplane.lasting import lasting
from dataplane.routing.admission import Outcome
from dataplane.state import store
from dataplane.state.ledger import Admit, Granted, Ledger, grant
from dataplane.state.link import AGAIN_SECONDS, GIVE_UP_SECONDS, REDIRECTS_MAX, Link, State
from dataplane.state.topology import Topology

logger = logging.getLogger(__name__)

TOPOLOGY_SECONDS = 5.0
"""How often a cluster is asked for its slots when all is well; ten times as often while a node is away."""
_DONE = 0
_OUTCOMES = tuple(Outcome)


class Observer(Protocol):
    """What the in-flight counts report to the metrics."""

    def store_state(self, state: str) -> None: ...
    def corrected(self, count: int) -> None: ...
    def store_call(self, admits: int) -> None: ...


class InFlight:
    """Admit, count and release requests of this worker. All methods return at once; call them on the loop's thread."""

    def __init__(
        self, address: store.Address, worker: str, lease_seconds: float, budget_seconds: float, observer: Observer
    ) -> None:
        self._seed = address
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._budget_seconds = budget_seconds
        self._observer = observer
        self._ledgers: dict[str, Ledger] = {}
        self._sequence = 0
        self._topology: Topology | None = None
        self._trouble = asyncio.Event()
        self._told: State | None = None
        self._links = {address: Link(address, budget_seconds, self)}
        self._places: dict[Ledger, Link] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()

    # --- what callers do ---------------------------------------------------------------------------------------------

    def admit(
        self,
        endpoint_id: str,
        numbers: Sequence[int],
        threshold: int,
        dice: int,
        granted: Granted,
        everything: Callable[[], Sequence[int]] | None = None,
    ) -> None:
        """Choose an instance among ``numbers`` (best first; threshold 0: fewest in flight) and count the request.

        ``granted`` is called once, now or later; the caller owes one ``release`` from then on. ``everything`` gives
        the whole order, as long as ``numbers`` are only its beginning.
        """
        ledger = self._ledger(endpoint_id)
        if not threshold and (few := ledger.idlest_of(numbers, dice)) is not numbers:
            admit = Admit(few, threshold, dice, granted, lambda: numbers)
        else:
            admit = Admit(numbers, threshold, dice, granted, everything)
        link = self._places[ledger]
        if link.state is State.UP:
            ledger.queue.append(admit)
        else:
            ledger.decide_alone(admit)
        link.plan(ledger)

    def count(self, endpoint_id: str, number: int) -> None:
        """Count a request whose instance is already chosen. The caller owes one ``release``."""
        ledger = self._ledger(endpoint_id)
        ledger.hold(number)
        ledger.change(number, 1)
        self._places[ledger].plan(ledger)

    def release(self, endpoint_id: str, number: int) -> None:
        """Give back one request of ``number``."""
        ledger = self._ledgers[endpoint_id]
        ledger.drop(number)
        ledger.change(number, -1)
        self._places[ledger].plan(ledger)

    def held(self, endpoint_id: str) -> dict[int, int]:
        """Return this worker's requests in flight by instance number."""
        ledger = self._ledgers.get(endpoint_id)
        return dict(ledger.held) if ledger else {}

    @property
    def live_workers(self) -> int:
        """How many workers share what each decides alone, as last heard."""
        return max((known.live_workers for known in self._ledgers.values()), default=1)

    @property
    def state(self) -> State:
        """The worst of the nodes that serve endpoints in use; of all, when none is in use."""
        links = set(self._places.values()) or set(self._links.values())
        return max((link.state for link in links), key=list(State).index)

    async def start(self) -> None:
        """Try to connect once, to each node of a cluster, then keep the connections and the leases."""
        seed = self._links[self._seed]
        seed.keep_connected()
        await seed.tried.wait()
        if seed.trouble:
            logger.warning("Redis is not reachable (%s); routing on local counts until it is", seed.trouble)
        await asyncio.gather(*(link.tried.wait() for link in list(self._links.values())))
        self._tasks = [lasting(self._renew(), "renew leases"), lasting(self._watch_topology(), "watch the topology")]

    async def stop(self) -> None:
        """Tell the store the last releases and hang up."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        deadline = self._loop.time() + GIVE_UP_SECONDS
        while self._is_owing() and self._loop.time() < deadline:
            await asyncio.sleep(0.005)
        await asyncio.gather(*(link.close() for link in self._links.values()))

    def _is_owing(self) -> bool:
        return any(
            link.state is State.UP and (ledger.has_news or ledger.sent is not None)
            for ledger, link in self._places.items()
        )

    def _ledger(self, endpoint_id: str) -> Ledger:
        now = self._loop.time()
        ledger = self._ledgers.get(endpoint_id)
        if ledger is None:
            # The best guess for an endpoint that is first used while Redis is away.
            ledger = self._ledgers[endpoint_id] = Ledger(endpoint_id, now, self.live_workers)
            self._place(ledger, self._link_for(ledger))
        ledger.used_at = now
        return ledger

    # --- what links ask (state.link.Owner) ---------------------------------------------------------------------------

    def write_call(self, ledger: Ledger) -> bytes:
        self._sequence += 1
        argument = ledger.write_call(self._worker, self._sequence, int(self._lease_seconds * 1000), self._loop.time())
        self._observer.store_call(len(ledger.sent or ()))
        return argument

    def entered(self, ledger: Ledger, reply: list[int]) -> bool:
        if reply[0] != _DONE:
            return False
        sent, ledger.sent = ledger.sent or [], None
        ledger.refusals, ledger.asked_at = 0, None
        if reply[1]:
            self._observer.corrected(reply[1])
        granted: list[tuple[Admit, int, Outcome]] = []
        for admit, position, outcome in zip(sent, reply[3::2], reply[4::2], strict=False):
            if position < 0:
                if admit.granted is not None:
                    assert admit.everything is not None
                    admit.numbers, admit.everything = admit.everything(), None
                    ledger.queue.append(admit)
            elif admit.granted is None:
                # Its caller was served without the store meanwhile: hand it back.
                ledger.change(admit.numbers[position], -1)
            else:
                number = admit.numbers[position]
                ledger.hold(number)
                granted.append((admit, number, _OUTCOMES[outcome]))
        if reply[2]:
            ledger.learn(reply[2], reply[3 + 2 * len(sent) :])
        for admit, number, chosen in granted:
            grant(admit, number, chosen, degraded=False)
        return True

    def ledgers_of(self, link: Link) -> Iterable[Ledger]:
        return [ledger for ledger, place in self._places.items() if place is link]

    def redirected(self, ledger: Ledger, address: store.Address, *, asking: bool) -> None:
        """The slot is served elsewhere, or (asking) on its way there: follow it now.

        What else has moved, the cluster will say.
        """
        link = self._grow(address)
        if not asking:
            self._place(ledger, link)
            link.ask_topology()
        if link.state is State.UP and ledger.refusals <= REDIRECTS_MAX:
            if asking:
                link.send(ledger, asking=True)
            else:
                link.plan(ledger)
            return
        if link.tried.is_set():
            ledger.decide_waiting()
        else:
            # A node just heard of is connected to within the budget, or else.
            self._loop.call_later(self._budget_seconds, self._decide_unless_up, ledger, link)
        self._loop.call_later(AGAIN_SECONDS, self._places[ledger].plan, ledger)

    def _decide_unless_up(self, ledger: Ledger, link: Link) -> None:
        if link.state is not State.UP:
            ledger.decide_waiting()

    def topology(self, link: Link, slots: list[Any] | None) -> None:
        """Take what a node says of the cluster; ledgers whose slot moved restate at their new node.

        ``slots``: None outside a cluster, empty from a node that knows nothing of its cluster (yet).
        """
        if slots:
            self._topology = Topology.read(link.address, slots)
            # Connected before they are needed, so that an endpoint's first request is counted exactly, too.
            for address in self._topology.nodes:
                self._grow(address)
        for ledger, place in list(self._places.items()):
            node = self._link_for(ledger)
            if node is not place and ledger.sent is None:
                self._place(ledger, node)
                ledger.restate = True
                # Also with nothing held: its keys may have come along with what a lost call did not take back.
                node.send(ledger)

    def state_changed(self) -> None:
        state = self.state
        if state is not self._told:
            self._told = state
            self._observer.store_state(state)
        if state is not State.UP:
            self._trouble.set()

    def _place(self, ledger: Ledger, link: Link) -> None:
        self._places[ledger] = link
        self.state_changed()

    def _link_for(self, ledger: Ledger) -> Link:
        node = self._topology.node_of(ledger.keys[0]) if self._topology is not None else None
        return self._grow(node) if node is not None else self._links[self._seed]

    def _grow(self, address: store.Address) -> Link:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = Link(address, self._budget_seconds, self)
            link.keep_connected()
        return link

    # --- background --------------------------------------------------------------------------------------------------

    async def _watch_topology(self) -> None:
        """Ask any live node who serves what: soon while one is away (a failover moves its slots), else at times."""
        while True:
            self._trouble.clear()
            if self.state is State.UP:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TOPOLOGY_SECONDS):
                        await self._trouble.wait()
            else:
                await asyncio.sleep(TOPOLOGY_SECONDS / 10)
            if self._topology is None:
                continue
            living = next((link for link in self._links.values() if link.state is State.UP), None)
            if living is not None:
                living.ask_topology()
            keep = self._topology.nodes | {self._seed} | {link.address for link in self._places.values()}
            for address in [address for address in self._links if address not in keep]:
                await self._links.pop(address).close()

    async def _renew(self) -> None:
        """Renew the leases of endpoints in use three times a lease; forget endpoints that are not."""
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            now = self._loop.time()
            for endpoint_id, ledger in list(self._ledgers.items()):
                idle = not ledger.held and not ledger.has_news and ledger.sent is None
                if idle and now - ledger.used_at > self._lease_seconds:
                    del self._ledgers[endpoint_id]
                    del self._places[ledger]
                    self.state_changed()
                    continue
                ledger.renew = True
                if ledger.sent is None:
                    self._places[ledger].send(ledger)

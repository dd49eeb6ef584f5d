"""The requests in flight: chosen and counted in one atomic step in Redis, for all workers.

Requests of one turn of the event loop share a call, one call per endpoint is on its way at a time, and the store's
answers are callbacks: no coroutine per request. When the store is slow or away, requests are decided on last known
counts at once and the store is told the truth when it is back.

What changes here: the ledgers, the connection and ``_state``; only callbacks of the event loop change them.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Protocol

import hiredis

from dataplane.routing.admission import Outcome
from dataplane.state import store
from dataplane.state.ledger import Admit, Granted, Ledger, grant

logger = logging.getLogger(__name__)

GIVE_UP_SECONDS = 1.0
"""A call without an answer for so long means the connection is dead. Until then a late answer is still put to use."""
BACKOFF_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
_CONNECT_SECONDS = 1.0
_DONE, _RESTATE = 0, 2
_OUTCOMES = tuple(Outcome)


class State(StrEnum):
    """What this worker thinks of the store."""

    DOWN = "down"
    SLOW = "slow"
    UP = "up"


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
        self._address = address
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._budget_seconds = budget_seconds
        self._observer = observer
        self._ledgers: dict[str, Ledger] = {}
        self._sequence = 0
        self._state = State.DOWN
        self._connection: store.Connection | None = None
        self._unsent: dict[Ledger, None] = {}
        self._watch_planned = False
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
        admit = Admit(numbers, threshold, dice, granted, everything)
        if self._state is State.UP:
            ledger.queue.append(admit)
        else:
            ledger.decide_alone(admit)
        self._plan(ledger)

    def count(self, endpoint_id: str, number: int) -> None:
        """Count a request whose instance is already chosen. The caller owes one ``release``."""
        ledger = self._ledger(endpoint_id)
        ledger.hold(number)
        ledger.change(number, 1)
        self._plan(ledger)

    def release(self, endpoint_id: str, number: int) -> None:
        """Give back one request of ``number``."""
        ledger = self._ledgers[endpoint_id]
        ledger.drop(number)
        ledger.change(number, -1)
        self._plan(ledger)

    def held(self, endpoint_id: str) -> dict[int, int]:
        """Return this worker's requests in flight by instance number."""
        ledger = self._ledgers.get(endpoint_id)
        return dict(ledger.held) if ledger else {}

    @property
    def state(self) -> State:
        return self._state

    async def start(self) -> None:
        """Try to connect once, then keep the connection and the leases in the background."""
        try:
            await self._connect()
        except (OSError, hiredis.HiredisError) as error:
            logger.warning("Redis is not reachable (%s); routing on local counts until it is", _say(error))
        self._tasks = [asyncio.create_task(self._stay_connected()), asyncio.create_task(self._renew())]

    async def stop(self) -> None:
        """Tell the store the last releases and hang up."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        deadline = self._loop.time() + GIVE_UP_SECONDS
        while self._state is State.UP and self._busy() and self._loop.time() < deadline:
            await asyncio.sleep(0.005)
        if self._connection is not None:
            self._connection.close()

    # --- calls to the store ------------------------------------------------------------------------------------------

    def _ledger(self, endpoint_id: str) -> Ledger:
        now = self._loop.time()
        ledger = self._ledgers.get(endpoint_id)
        if ledger is None:
            ledger = self._ledgers[endpoint_id] = Ledger(endpoint_id, now)
        ledger.used_at = now
        return ledger

    def _busy(self) -> bool:
        return any(ledger.has_news or ledger.sent is not None for ledger in self._ledgers.values())

    def _plan(self, ledger: Ledger) -> None:
        """Send the ledger's news at the end of this turn of the loop, or when its call on the way is answered."""
        if ledger.sent is None and self._connection is not None:
            if not self._unsent:
                self._loop.call_soon(self._flush)
            self._unsent[ledger] = None

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, {}
        for ledger in unsent:
            if self._connection is not None and ledger.sent is None and ledger.has_news:
                self._send(ledger)

    def _send(self, ledger: Ledger) -> None:
        assert self._connection is not None
        self._sequence += 1
        argument = ledger.write_call(self._worker, self._sequence, int(self._lease_seconds * 1000), self._loop.time())
        self._observer.store_call(len(ledger.sent or ()))
        self._connection.run_script(ledger.keys, argument, lambda reply: self._answered(ledger, reply))
        if not self._watch_planned:
            self._watch_planned = True
            self._loop.call_later(self._budget_seconds, self._watch)

    def _answered(self, ledger: Ledger, reply: Any) -> None:
        sent, ledger.sent = ledger.sent or [], None
        if isinstance(reply, list) and reply[0] == _DONE:
            self._enter(ledger, sent, reply)
        else:
            # Whatever the store did or did not do with this call, the next one says all of it again.
            ledger.restate = True
            waiting = [admit for admit in sent if admit.granted]
            if isinstance(reply, list) and reply[0] == _RESTATE:
                ledger.queue[:0] = waiting
            else:
                for admit in waiting:
                    ledger.decide_alone(admit)
                self._refused(reply)
                return
        if self._state is State.SLOW and not self._overdue():
            self._change_state(State.UP)
        if ledger.has_news:
            self._plan(ledger)

    def _refused(self, reply: Any) -> None:
        if reply is not None and self._connection is not None:
            logger.error("Redis did not run the admission script (%s); connecting anew", reply)
            self._connection.close()

    def _enter(self, ledger: Ledger, sent: list[Admit], reply: list[int]) -> None:
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

    # --- when the store is slow or away ------------------------------------------------------------------------------

    def _overdue(self) -> list[Ledger]:
        late = self._loop.time() - self._budget_seconds
        return [ledger for ledger in self._ledgers.values() if ledger.sent is not None and ledger.sent_at <= late]

    def _watch(self) -> None:
        """Decide what waited past the budget; hang up on a connection that is dead."""
        self._watch_planned = False
        overdue = self._overdue()
        if overdue and self._state is State.UP:
            self._change_state(State.SLOW)
        for ledger in overdue:
            self._decide_waiting(ledger)
        if any(self._loop.time() - ledger.sent_at > GIVE_UP_SECONDS for ledger in overdue):
            assert self._connection is not None
            self._connection.close()
        elif any(ledger.sent is not None for ledger in self._ledgers.values()):
            self._watch_planned = True
            self._loop.call_later(self._budget_seconds, self._watch)

    def _decide_waiting(self, ledger: Ledger) -> None:
        queue, ledger.queue = ledger.queue, []
        for admit in [*(ledger.sent or ()), *queue]:
            if admit.granted is not None:
                ledger.decide_alone(admit)

    def _lost(self) -> None:
        self._connection = None
        self._unsent = {}
        self._change_state(State.DOWN)
        for ledger in self._ledgers.values():
            ledger.restate = True
            self._decide_waiting(ledger)

    def _change_state(self, state: State) -> None:
        if state is self._state:
            return
        previous, self._state = self._state, state
        self._observer.store_state(state)
        if state is State.UP:
            logger.info("Redis answers again (was %s): exact admission", previous)
        elif previous is State.UP:
            logger.warning(
                "Redis is %s: requests are routed on last known counts and a local share of the threshold; "
                "check the server behind WARMROUTE_REDIS_URL",
                "slow" if state is State.SLOW else "away",
            )

    async def _connect(self) -> None:
        self._connection = await store.connect(self._address, self._lost, _CONNECT_SECONDS)
        for ledger in self._ledgers.values():
            ledger.restate = True
            ledger.sent = None
            self._send(ledger)
        self._change_state(State.UP)

    async def _stay_connected(self) -> None:
        attempt = 0
        while True:
            await asyncio.sleep(BACKOFF_SECONDS[min(attempt, len(BACKOFF_SECONDS) - 1)])
            if self._connection is not None:
                attempt = 0
                continue
            attempt += 1
            try:
                await self._connect()
            except (OSError, hiredis.HiredisError) as error:
                logger.debug("Redis connect failed: %s", _say(error))

    async def _renew(self) -> None:
        """Renew the leases of endpoints in use three times a lease; forget endpoints that are not."""
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            now = self._loop.time()
            for endpoint_id, ledger in list(self._ledgers.items()):
                idle = not ledger.held and not ledger.has_news and ledger.sent is None
                if idle and now - ledger.used_at > self._lease_seconds:
                    del self._ledgers[endpoint_id]
                    continue
                ledger.renew = True
                if self._connection is not None and ledger.sent is None:
                    self._send(ledger)


def _say(error: Exception) -> str:
    return str(error) or type(error).__name__

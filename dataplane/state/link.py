"""One node of the store: the connection to it, the calls on their way, and what this worker thinks of it.

Calls of one turn of the event loop go out together, one per ledger at a time. When the node is slow or away its
ledgers are decided on last known counts at once, and told the truth when it is back. Other nodes go on.

What changes here: ``state``, the connection and the set of ledgers with news; only the event loop's callbacks do.
"""

import asyncio
import logging
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Protocol

import hiredis

from dataplane.state import store
from dataplane.state.ledger import Ledger

logger = logging.getLogger(__name__)

GIVE_UP_SECONDS = 1.0
"""A call without an answer for so long means the connection is dead. Until then a late answer is still put to use."""
BACKOFF_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
CONNECT_SECONDS = 1.0
AGAIN_SECONDS = 0.01
"""Before a call is repeated that met a slot on its way to another node."""


class State(StrEnum):
    """What this worker thinks of a node. Words of the log and of /health/ready."""

    UP = "up"
    SLOW = "slow"
    DOWN = "down"


class Owner(Protocol):
    """What a link asks of the in-flight counts that it serves."""

    def write_call(self, ledger: Ledger) -> bytes: ...
    def entered(self, ledger: Ledger, reply: list[int]) -> bool:
        """Take an answer of the script. False: the call must be made again, with everything restated."""

    def ledgers_of(self, link: "Link") -> Iterable[Ledger]: ...
    def redirected(self, ledger: Ledger, address: store.Address, *, asking: bool) -> None: ...
    def topology(self, link: "Link", slots: list[Any] | None) -> None: ...
    def state_changed(self) -> None: ...


class Link:
    """See the module."""

    def __init__(self, address: store.Address, budget_seconds: float, owner: Owner) -> None:
        self.address = address
        self.state = State.DOWN
        self._budget_seconds = budget_seconds
        self._owner = owner
        self._connection: store.Connection | None = None
        self._unsent: dict[Ledger, None] = {}
        self._watch_planned = False
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    # --- life --------------------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect once. Raises OSError or hiredis.HiredisError."""
        if self._connection is not None:
            return
        self._connection, slots = await store.connect(self.address, self._lost, CONNECT_SECONDS)
        self._change_state(State.UP)
        self._owner.topology(self, slots)
        for ledger in self._owner.ledgers_of(self):
            ledger.restate = True
            self.plan(ledger)

    def keep_connected(self) -> None:
        """Connect anew whenever the connection is lost, from now on."""
        if self._task is None:
            self._task = self._loop.create_task(self._stay_connected())

    async def close(self) -> None:
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()

    def ask_topology(self) -> None:
        """Ask the node who serves which slots; the owner is told."""
        if self._connection is not None:
            self._connection.command(b"CLUSTER", b"SLOTS", reply=self._topology_answered)

    def _topology_answered(self, reply: Any) -> None:
        if isinstance(reply, list):
            self._owner.topology(self, reply)

    async def _stay_connected(self) -> None:
        attempt = 0
        while True:
            await asyncio.sleep(BACKOFF_SECONDS[min(attempt, len(BACKOFF_SECONDS) - 1)])
            if self._connection is not None:
                attempt = 0
                continue
            attempt += 1
            try:
                await self.connect()
            except (OSError, hiredis.HiredisError) as error:
                logger.debug("Redis at %s: %s", self.address.name, error or type(error).__name__)

    # --- calls -------------------------------------------------------------------------------------------------------

    def plan(self, ledger: Ledger) -> None:
        """Send the ledger's news at the end of this turn of the loop, or when its call on the way is answered."""
        if ledger.sent is None and self._connection is not None:
            if not self._unsent:
                self._loop.call_soon(self._flush)
            self._unsent[ledger] = None

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, {}
        for ledger in unsent:
            if ledger.sent is None and ledger.has_news:
                self.send(ledger)

    def send(self, ledger: Ledger, *, asking: bool = False) -> None:
        """Send the ledger's news now. ``asking``: to a node that is just taking the slot over."""
        if self._connection is None:
            return
        argument = self._owner.write_call(ledger)
        if asking:
            self._connection.command(b"ASKING", reply=_ignore)
        self._connection.run_script(ledger.keys, argument, lambda reply: self._answered(ledger, reply))
        if not self._watch_planned:
            self._watch_planned = True
            self._loop.call_later(self._budget_seconds, self._watch)

    def _answered(self, ledger: Ledger, reply: Any) -> None:
        if isinstance(reply, list) and self._owner.entered(ledger, reply):
            if self.state is State.SLOW and not self._overdue():
                self._change_state(State.UP)
            if ledger.has_news:
                self.plan(ledger)
            return
        # Whatever the node did or did not do with this call, the next one says all of it again.
        ledger.take_back()
        if isinstance(reply, list):
            self.plan(ledger)
        elif isinstance(reply, hiredis.HiredisError):
            self._refused(ledger, str(reply))
        else:
            ledger.decide_waiting()

    def _refused(self, ledger: Ledger, said: str) -> None:
        """The script did not run. A slot that has moved is followed; anything else is this node's trouble."""
        word, *rest = said.split(" ")
        if word == "MOVED":
            self._owner.redirected(ledger, self.address.at(rest[1]), asking=False)
        elif word == "ASK":
            self._owner.redirected(ledger, self.address.at(rest[1]), asking=True)
        elif word == "TRYAGAIN":
            self._loop.call_later(AGAIN_SECONDS, self.plan, ledger)
        else:
            ledger.decide_waiting()
            logger.error("Redis at %s did not run the admission script (%s); connecting anew", self.address.name, said)
            if self._connection is not None:
                self._connection.close()

    # --- when the node is slow or away -------------------------------------------------------------------------------

    def _overdue(self) -> list[Ledger]:
        # uvloop's clock and timers keep milliseconds: a timer may be that much early.
        late = self._loop.time() - self._budget_seconds + 0.001
        return [x for x in self._owner.ledgers_of(self) if x.sent is not None and x.sent_at <= late]

    def _watch(self) -> None:
        """Decide what waited past the budget; hang up on a connection that is dead."""
        self._watch_planned = False
        if self._connection is None:
            return
        overdue = self._overdue()
        if overdue:
            self._change_state(State.SLOW)
        for ledger in overdue:
            ledger.decide_waiting()
        if any(self._loop.time() - ledger.sent_at > GIVE_UP_SECONDS for ledger in overdue):
            self._connection.close()
            return
        sent = [x.sent_at for x in self._owner.ledgers_of(self) if x.sent is not None and x not in overdue]
        if sent or overdue:
            self._watch_planned = True
            wait = min(sent) + self._budget_seconds - self._loop.time() if sent else self._budget_seconds
            self._loop.call_later(max(wait, 0.001), self._watch)

    def _lost(self) -> None:
        self._connection = None
        self._unsent = {}
        self._change_state(State.DOWN)
        for ledger in self._owner.ledgers_of(self):
            ledger.restate = True
            ledger.decide_waiting()

    def _change_state(self, state: State) -> None:
        if state is self.state:
            return
        previous, self.state = self.state, state
        self._owner.state_changed()
        if self._closing:
            return
        if state is State.UP:
            logger.info("Redis at %s answers (was %s): exact admission", self.address.name, previous)
        elif previous is State.UP:
            logger.warning(
                "Redis at %s is %s: requests are routed on last known counts and a local share of the threshold; "
                "check the server behind WARMROUTE_REDIS_URL",
                self.address.name,
                "slow" if state is State.SLOW else "away",
            )


def _ignore(reply: Any) -> None:
    pass

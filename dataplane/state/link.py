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

from dataplane.lasting import lasting
from dataplane.state import store
from dataplane.state.ledger import Ledger

logger = logging.getLogger(__name__)

GIVE_UP_SECONDS = 1.0
"""A call without an answer for so long means the connection is dead. Until then a late answer is still put to use."""
BACKOFF_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
CONNECT_SECONDS = 1.0
STEADY_SECONDS = 5.0
"""A connection that lasted so long starts the waits from the beginning. A node that was up for so long before it was
slow is up again with its late answer; otherwise one must come within the budget, so that a node that is always too slow
is not waited for again and again. And the log says no more often that a node is not up."""
AGAIN_SECONDS = 0.01
"""Before a call is repeated that met a slot on its way to another node."""
REDIRECTS_MAX = 4
"""In a row and at once; nodes that send a call in circles do not agree yet on who serves the slot."""


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
        self.tried = asyncio.Event()
        """Set after the first attempt to connect; ``trouble`` says why it failed."""
        self.trouble = ""
        self._connection: store.Connection | None = None
        self._lost_again = asyncio.Event()
        self._unsent: dict[Ledger, None] = {}
        self._on_the_way: dict[Ledger, None] = {}
        """Whose call is at this node; a slot that is moving brings calls of ledgers that have their place elsewhere."""
        self._watch_at: float | None = None
        self._on_trial = False
        """The node did not run the script, or did not answer, when last asked; until it does it is not up, connected
        or not. A server that is full or busy and a proxy that does not know scripts take connections all the time."""
        self._since = 0.0
        self._falls = 0
        """How often in a row it was up for less than STEADY_SECONDS."""
        self._said = State.DOWN
        self._quiet_until = 0.0
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    # --- life --------------------------------------------------------------------------------------------------------

    def keep_connected(self) -> None:
        """Connect now, and anew whenever the connection is lost."""
        if self._task is None:
            self._task = lasting(self._stay_connected(), f"stay connected to Redis at {self.address.name}")

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
            began = self._loop.time()
            try:
                await self._connect()
            except (OSError, hiredis.HiredisError) as error:
                self.trouble = str(error) or type(error).__name__
                for ledger in self._owner.ledgers_of(self):
                    ledger.decide_waiting()
                self._say()
                logger.debug("Redis at %s: %s", self.address.name, self.trouble)
            self.tried.set()
            if self._connection is not None:
                await self._lost_again.wait()
                if self._loop.time() - began > STEADY_SECONDS:
                    attempt = 0
            await asyncio.sleep(BACKOFF_SECONDS[min(attempt, len(BACKOFF_SECONDS) - 1)])
            attempt += 1

    async def _connect(self) -> None:
        self._lost_again.clear()
        self._connection, slots = await store.connect(self.address, self._lost, CONNECT_SECONDS)
        self.trouble = ""
        self._owner.topology(self, slots)
        ledgers = list(self._owner.ledgers_of(self))
        if not (self._on_trial and ledgers):
            self._on_trial = False
            self._change_state(State.UP)
        for ledger in ledgers:
            if ledger.sent is None:
                # Also with nothing held: the node may still count what this worker held when the connection was lost.
                ledger.restate = True
                self.send(ledger)

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
        self._on_the_way[ledger] = None
        if asking:
            self._connection.command(b"ASKING", reply=_ignore)
        self._connection.run_script(ledger.keys, argument, lambda reply: self._answered(ledger, reply))
        if self._watch_at is None:
            self._watch_after(self._budget_seconds)

    def _answered(self, ledger: Ledger, reply: Any) -> None:
        del self._on_the_way[ledger]
        if isinstance(reply, list) and self._owner.entered(ledger, reply):
            self._is_well(ledger)
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
            self._on_trial = True
            ledger.decide_waiting()

    def _is_well(self, ledger: Ledger) -> None:
        """The node ran the script, or said who does."""
        self._on_trial = False
        if self.state is State.UP or self._overdue():
            return
        was_late = self._loop.time() - ledger.sent_at > self._budget_seconds
        if was_late and self._falls > 1:
            self._say()
        else:
            self._change_state(State.UP)

    def _refused(self, ledger: Ledger, said: str) -> None:
        """The script did not run. A slot that has moved is followed; anything else is this node's trouble."""
        ledger.refusals += 1
        if ledger.asked_at is not None and self._loop.time() - ledger.asked_at > self._budget_seconds - AGAIN_SECONDS:
            ledger.decide_waiting()
        word, *rest = said.split(" ")
        if word in ("MOVED", "ASK", "TRYAGAIN"):
            self._is_well(ledger)
        if word == "MOVED":
            self._owner.redirected(ledger, self.address.at(rest[1]), asking=False)
        elif word == "ASK":
            self._owner.redirected(ledger, self.address.at(rest[1]), asking=True)
        elif word == "TRYAGAIN":
            self._loop.call_later(AGAIN_SECONDS, self.plan, ledger)
        else:
            ledger.decide_waiting()
            if self.state is not State.DOWN:
                logger.error(
                    "Redis at %s did not run the admission script (%s); connecting anew until it does",
                    self.address.name,
                    said,
                )
            self._on_trial = True
            if self._connection is not None:
                self._connection.close()

    # --- when the node is slow or away -------------------------------------------------------------------------------

    def _overdue(self) -> list[Ledger]:
        # uvloop's clock and timers keep milliseconds: a timer may be that much early.
        late = self._loop.time() - self._budget_seconds + 0.001
        return [ledger for ledger in self._on_the_way if ledger.sent_at <= late]

    def _watch_after(self, seconds: float) -> None:
        self._watch_at = self._loop.time() + seconds
        self._loop.call_later(seconds, self._watch)

    def _watch(self, *, is_late: bool = False) -> None:
        """Decide what waited past the budget; hang up on a connection that is dead."""
        if self._watch_at is None or self._connection is None:
            self._watch_at = None
            return
        if not is_late and self._loop.time() - self._watch_at > self._budget_seconds / 2:
            # This worker was held up itself: what the node said meanwhile is read first.
            self._loop.call_later(0.001, lambda: self._watch(is_late=True))
            return
        self._watch_at = None
        overdue = self._overdue()
        if overdue and not self._on_trial:
            self._change_state(State.SLOW)
        for ledger in overdue:
            ledger.decide_waiting()
        if any(self._loop.time() - ledger.sent_at > GIVE_UP_SECONDS for ledger in overdue):
            self._connection.close()
            return
        sent = [ledger.sent_at for ledger in self._on_the_way if ledger not in overdue]
        if sent or overdue:
            wait = min(sent) + self._budget_seconds - self._loop.time() if sent else self._budget_seconds
            self._watch_after(max(wait, 0.001))

    def _lost(self) -> None:
        self._connection = None
        self._lost_again.set()
        self._unsent = {}
        self._change_state(State.DOWN)
        for ledger in self._owner.ledgers_of(self):
            ledger.restate = True
            ledger.decide_waiting()

    def _change_state(self, state: State) -> None:
        if state is self.state:
            return
        now = self._loop.time()
        if self.state is State.UP:
            self._falls = 1 if now - self._since > STEADY_SECONDS else self._falls + 1
        self.state, self._since = state, now
        self._owner.state_changed()
        self._say()

    def _say(self) -> None:
        """Log a state that was not logged yet."""
        now, was_up = self._loop.time(), self._said is State.UP
        if self._closing or was_up is (self.state is State.UP) or (was_up and now < self._quiet_until):
            return
        if was_up:
            self._quiet_until = now + STEADY_SECONDS
            logger.warning(
                "Redis at %s is %s: requests are routed on last known counts and a local share of the threshold; "
                "check the server behind WARMROUTE_REDIS_URL",
                self.address.name,
                "slow" if self.state is State.SLOW else "away",
            )
        else:
            logger.info("Redis at %s answers (was %s): exact admission", self.address.name, self._said)
        self._said = self.state


def _ignore(reply: Any) -> None:
    pass

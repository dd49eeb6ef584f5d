"""Workers in virtual time around a real store: the test says when calls and answers arrive, and which are lost.

InFlight, Ledger and the script are the real ones. Only the wire between them (store.connect) and the clock are played.
"""

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import msgspec

from dataplane.routing.admission import Outcome
from dataplane.state import store as real_store
from dataplane.state.inflight import InFlight
from tests.dataplane.state.script import LEASE_MS, Store

BUDGET_SECONDS = 0.02
LEASE_SECONDS = LEASE_MS / 1000
_SETTLE_TURNS = 6


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0
        super().__init__()

    def time(self) -> float:
        return self.now

    def settle(self) -> None:
        """Run what is due, and what that leads to."""
        for _ in range(_SETTLE_TURNS):
            self.call_soon(self.stop)
            self.run_forever()

    def advance(self, seconds: float, step: float = BUDGET_SECONDS / 2) -> None:
        """Let time pass in small steps."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + step)
            self.settle()


@dataclass
class Call:
    """One call of the script on its way."""

    keys: Sequence[bytes]
    argument: bytes
    reply: Callable[[Any], None]

    @property
    def words(self) -> list[Any]:
        words: list[Any] = msgspec.msgpack.decode(self.argument)
        return words


class Wire:
    """The wire of one worker. Calls wait here until the test lets them arrive."""

    def __init__(self, loop: VirtualLoop, name: str = "the store") -> None:
        self.loop = loop
        self.name = name
        self.nodes: dict[str, Wire] = {}
        """The nodes of its cluster, as redirections name them."""
        self.slots: list[Any] | None = None
        """What it says of the cluster when it is connected to."""
        self.is_up = True
        self.calls: deque[Call] = deque()
        self.on_lost: Callable[[], None] | None = None
        self.opened = self.refused = 0
        self.commands: list[bytes | str] = []
        """Names of what was sent, scripts included."""

    def at(self, where: str) -> "Wire":
        return self.nodes[where]

    def command(self, *words: bytes | str, reply: Callable[[Any], None]) -> None:
        self.commands.append(words[0])

    async def connect(self, on_lost: Callable[[], None]) -> "Wire":
        if not self.is_up:
            self.refused += 1
            raise ConnectionRefusedError("refused")
        self.opened += 1
        self.on_lost = on_lost
        return self

    def run_script(self, keys: Sequence[bytes], argument: bytes, reply: Callable[[Any], None]) -> None:
        assert self.on_lost is not None, "a call on a closed connection"
        self.commands.append("EVALSHA")
        self.calls.append(Call(keys, argument, reply))

    def close(self) -> None:
        # As a transport's abort: the end is told in a later turn of the loop.
        self.loop.call_soon(self.lose)

    def lose(self) -> list[Call]:
        """The connection ends. Return the calls that were on their way."""
        on_lost, self.on_lost = self.on_lost, None
        if on_lost is None:
            return []
        calls, self.calls = list(self.calls), deque()
        for call in calls:
            call.reply(None)
        on_lost()
        return calls


class Observer:
    """Remembers what the in-flight counts report."""

    def __init__(self) -> None:
        self.states: list[str] = []
        self.corrections = 0
        self.admits_by_call: list[int] = []

    def store_state(self, state: str) -> None:
        self.states.append(str(state))

    def corrected(self, count: int) -> None:
        self.corrections += count

    def store_call(self, admits: int) -> None:
        self.admits_by_call.append(admits)


class Worker:
    """One worker process, less everything but its in-flight counts."""

    _numbers = itertools.count(1)

    def __init__(self, loop: VirtualLoop, store: Store, *, is_up: bool = True) -> None:
        self.name = f"w{next(self._numbers)}"
        self.loop, self.store = loop, store
        self.wire = Wire(loop)
        self.wire.is_up = is_up
        self.observer = Observer()
        self.holding: list[int] = []
        """Instances of the requests in flight."""
        self.granted: list[tuple[int, Outcome, bool]] = []
        self.waiting = 0
        before = asyncio.all_tasks(loop)
        self.in_flight: InFlight = loop.run_until_complete(self._start())
        self._tasks = asyncio.all_tasks(loop) - before
        loop.settle()

    async def _start(self) -> InFlight:
        in_flight = InFlight(self.wire, self.name, LEASE_SECONDS, BUDGET_SECONDS, self.observer)  # type: ignore[arg-type]
        await in_flight.start()
        return in_flight

    def admit(
        self, order: Sequence[int], threshold: int, dice: int = 0, everything: Sequence[int] | None = None
    ) -> None:
        """One request, to be counted on an instance of ``order``."""
        decided: list[int] = []

        def granted(number: int, outcome: Outcome, degraded: bool) -> None:
            assert not decided, "granted twice"
            decided.append(number)
            self.waiting -= 1
            self.holding.append(number)
            self.granted.append((number, outcome, degraded))

        self.waiting += 1
        whole = None if everything is None else lambda: everything
        self.in_flight.admit(self.store.endpoint_id, tuple(order), threshold, dice, granted, whole)

    def count(self, number: int) -> None:
        self.holding.append(number)
        self.in_flight.count(self.store.endpoint_id, number)

    def release(self, index: int) -> None:
        self.in_flight.release(self.store.endpoint_id, self.holding.pop(index))

    def deliver(self, wire: Wire | None = None) -> tuple[Call, list[int]]:
        """Let the oldest call arrive and its answer come back."""
        call = (wire or self.wire).calls.popleft()
        answer = self.store.run(call.keys, call.argument)
        self.loop.call_soon(call.reply, answer)
        self.loop.settle()
        return call, answer

    def renew(self) -> None:
        """Let the time of the next renewal come."""
        self.loop.now += LEASE_SECONDS / 3
        self.loop.settle()

    def vanish(self) -> list[Call]:
        """SIGKILL. Return the calls that were on their way."""
        for task in self._tasks:
            task.cancel()
        self.wire.on_lost = None
        self.loop.settle()
        calls, self.wire.calls = list(self.wire.calls), deque()
        return calls


@contextlib.contextmanager
def virtual_loop() -> Iterator[VirtualLoop]:
    """Make a loop on which store.connect leads to the Wire that stands for the address."""

    async def connect(wire: Wire, on_lost: Callable[[], None], timeout_seconds: float) -> tuple[Wire, Any]:
        return await wire.connect(on_lost), wire.slots

    loop = VirtualLoop()
    with patch.object(real_store, "connect", connect):
        try:
            yield loop
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.settle()
            loop.close()

"""Ways to admit and release requests in one Redis: the product's, and others to compare with.

A way serves requests in a closed loop: so many clients at a time, each admits a request, releases it, and comes with
the next. All that a way does counts as its cost, the loop included; ``Nothing`` tells what the loop itself costs, and
``Ping`` what a round trip does.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

import msgspec
from redis.asyncio import Redis

from contract import redis_keys
from dataplane.routing.admission import Outcome
from dataplane.routing.instance_order import RANKS, InstanceOrder
from dataplane.state import store
from dataplane.state.inflight import InFlight
from dataplane.state.link import State

ENDPOINT = "benchmark"
KEYS = (redis_keys.load_key(ENDPOINT), redis_keys.ledger_key(ENDPOINT), redis_keys.leases_key(ENDPOINT))
LEASE_SECONDS = 600.0
BUDGET_SECONDS = 10.0
"""Wide, so that no pause of a busy machine counts as a slow store."""
PREFIXES = 2_000
DICE_BITS = 30

Admitted = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Setting:
    """What is served. ``hold_seconds`` 0: each request is released at once."""

    instances: int
    concurrency: int
    by_prefix: bool = True
    """PREFIX_AWARE; else LEAST_OUTSTANDING_REQUESTS."""
    hold_seconds: float = 0.0

    @property
    def threshold(self) -> int:
        """Twice a level share: most requests meet their home under it, some overflow. 0: fewest in flight."""
        return 2 * -(-self.concurrency // self.instances) if self.by_prefix else 0


class Orders:
    """The next request's candidates, as a worker finds them: the order of its key, or all instances."""

    def __init__(self, setting: Setting) -> None:
        dice = Random(1)  # noqa: S311
        self._setting = setting
        self._order = InstanceOrder([f"host-{i}" for i in range(setting.instances)], range(setting.instances))
        self._keys = [dice.getrandbits(64) for _ in range(PREFIXES)]
        self._dice = [dice.getrandbits(DICE_BITS) for _ in range(PREFIXES)]
        self._all = tuple(range(setting.instances))
        self._next = 0

    def next(self) -> tuple[tuple[int, ...], int, Callable[[], Sequence[int]] | None]:
        """Return (candidates, dice, what gives the whole order when the candidates are only its beginning)."""
        self._next = (self._next + 1) % PREFIXES
        if not self._setting.by_prefix:
            return self._all, self._dice[self._next], None
        key = self._keys[self._next]
        everything = (lambda: self._order.all(key)) if len(self._all) > RANKS else None
        return self._order.first(key), 0, everything


class Way(Protocol):
    """Admits and releases. ``admitted`` is called once, later, with the instance."""

    async def start(self, url: str, setting: Setting) -> None: ...
    def admit(self, client: int, admitted: Admitted) -> None: ...
    def release(self, client: int, number: int) -> None: ...
    async def stop(self) -> None:
        """Tell Redis the last releases and hang up."""


class Product:
    """state/inflight.py, as invoke.py uses it."""

    def __init__(self) -> None:
        self._in_flight: InFlight
        self._orders: Orders
        self._threshold = 0

    async def start(self, url: str, setting: Setting) -> None:
        self._orders, self._threshold = Orders(setting), setting.threshold
        address = store.Address.of(url)
        self._in_flight = InFlight(address, "worker", LEASE_SECONDS, BUDGET_SECONDS, _NoMetrics())
        await self._in_flight.start()
        if self._in_flight.state is not State.UP:
            raise ConnectionError("the benchmark's Valkey does not answer")

    def admit(self, client: int, admitted: Admitted) -> None:
        def granted(number: int, outcome: Outcome, degraded: bool) -> None:
            if degraded:
                raise RuntimeError("a decision without the store: this is no measurement of it")
            admitted(number)

        numbers, dice, everything = self._orders.next()
        self._in_flight.admit(ENDPOINT, numbers, self._threshold, dice, granted, everything)

    def release(self, client: int, number: int) -> None:
        self._in_flight.release(ENDPOINT, number)

    async def stop(self) -> None:
        await self._in_flight.stop()


class _Single:
    """One EVALSHA of the same script for each request: it takes the client's last release along."""

    def __init__(self) -> None:
        self._orders: Orders
        self._threshold = 0
        self._sequence = 0
        self._released: dict[int, int] = {}
        self._known: set[str] = set()
        self._encode = msgspec.msgpack.Encoder().encode

    def _argument(self, worker: str, client: int) -> tuple[bytes, tuple[int, ...]]:
        numbers, dice, _ = self._orders.next()
        admit = [self._threshold, dice, 1, *numbers]
        return self._write(worker, client, [admit]), numbers

    def _write(self, worker: str, client: int, admits: list[list[int]]) -> bytes:
        self._sequence += 1
        released = self._released.pop(client, None)
        deltas = [] if released is None else [released, -1]
        held = None
        if worker not in self._known:
            self._known.add(worker)
            held = list[int]()
        lease = int(LEASE_SECONDS * 1000)
        return self._encode([worker, self._sequence, lease, int(held is not None), held, deltas, admits])

    def release(self, client: int, number: int) -> None:
        self._released[client] = number


class Pipelined(_Single):
    """On the product's own connection: hiredis, pipelined, a callback per reply."""

    async def start(self, url: str, setting: Setting) -> None:
        self._orders, self._threshold = Orders(setting), setting.threshold
        self._connection, _ = await store.connect(store.Address.of(url), lambda: None, 5.0)

    def admit(self, client: int, admitted: Admitted) -> None:
        argument, numbers = self._argument("worker", client)
        self._connection.run_script(_BYTE_KEYS, argument, lambda reply: admitted(numbers[_position(reply)]))

    async def stop(self) -> None:
        for client in list(self._released):
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._connection.run_script(_BYTE_KEYS, self._write("worker", client, []), answer.set_result)
            await answer
        self._connection.close()


class Client(_Single):
    """With redis.asyncio: a coroutine per client on the library's pool, as a program written with it would do."""

    async def start(self, url: str, setting: Setting) -> None:
        self._orders, self._threshold = Orders(setting), setting.threshold
        self._redis: Any = Redis.from_url(url, max_connections=setting.concurrency)
        self._sha = await self._redis.script_load(store.SCRIPT)
        self._tasks: set[asyncio.Task[None]] = set()

    def admit(self, client: int, admitted: Admitted) -> None:
        task = asyncio.ensure_future(self._admit(client, admitted))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def _admit(self, client: int, admitted: Admitted) -> None:
        # A worker's calls must arrive in order and a pool's do not, so here each client is a worker of its own.
        argument, numbers = self._argument(f"worker-{client}", client)
        reply = await self._redis.evalsha(self._sha, len(KEYS), *KEYS, argument)
        admitted(numbers[_position(reply)])

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        task.result()

    async def stop(self) -> None:
        for client in list(self._released):
            argument = self._write(f"worker-{client}", client, [])
            await self._redis.evalsha(self._sha, len(KEYS), *KEYS, argument)
        await self._redis.aclose()


class Nothing:
    """No store: the cost of the loop itself and of finding the candidates."""

    async def start(self, url: str, setting: Setting) -> None:
        self._orders = Orders(setting)
        self._loop = asyncio.get_running_loop()

    def admit(self, client: int, admitted: Admitted) -> None:
        numbers, _, _ = self._orders.next()
        self._loop.call_soon(admitted, numbers[0])

    def release(self, client: int, number: int) -> None:
        pass

    async def stop(self) -> None:
        pass


class Ping:
    """A round trip for each request and nothing else: what sending, waking up and receiving cost by themselves."""

    async def start(self, url: str, setting: Setting) -> None:
        self._orders = Orders(setting)
        self._connection, _ = await store.connect(store.Address.of(url), lambda: None, 5.0)

    def admit(self, client: int, admitted: Admitted) -> None:
        numbers, _, _ = self._orders.next()
        self._connection.command(b"PING", reply=lambda _: admitted(numbers[0]))

    def release(self, client: int, number: int) -> None:
        pass

    async def stop(self) -> None:
        self._connection.close()


class _NoMetrics:
    def store_state(self, state: str) -> None:
        pass

    def corrected(self, count: int) -> None:
        raise RuntimeError(f"{count} releases found nothing")

    def store_call(self, admits: int) -> None:
        pass


_BYTE_KEYS = (KEYS[0].encode(), KEYS[1].encode(), KEYS[2].encode())


def _position(reply: Any) -> int:
    if not isinstance(reply, list) or reply[0] != 0:
        raise RuntimeError(f"the script did not admit: {reply}")
    return int(reply[3])


class Clients:
    """``concurrency`` clients in a closed loop over a way. Owner of what is left to do."""

    def __init__(self, way: Way, setting: Setting) -> None:
        self._way = way
        self._setting = setting
        self._loop = asyncio.get_running_loop()
        self._dice = Random(2)  # noqa: S311
        self._left = 0
        self._running = 0
        self._done: asyncio.Future[None]

    async def serve(self, requests: int) -> None:
        """Serve so many requests."""
        self._left = requests
        self._running = self._setting.concurrency
        self._done = self._loop.create_future()
        self._loop.set_exception_handler(self._failed)
        for client in range(self._setting.concurrency):
            self._next(client)
        await self._done

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # A fault in a callback would leave the clients waiting.
        if not self._done.done():
            self._done.set_exception(context.get("exception") or RuntimeError(context["message"]))

    def _next(self, client: int) -> None:
        if self._left == 0:
            self._running -= 1
            if self._running == 0:
                self._done.set_result(None)
            return
        self._left -= 1
        self._way.admit(client, lambda number: self._admitted(client, number))

    def _admitted(self, client: int, number: int) -> None:
        if not self._setting.hold_seconds:
            self._way.release(client, number)
            self._next(client)
            return
        self._loop.call_later(self._setting.hold_seconds * (0.5 + self._dice.random()), self._ended, client, number)

    def _ended(self, client: int, number: int) -> None:
        self._way.release(client, number)
        # A host that has become free is found by another request a little later, not in the same turn of the loop.
        self._loop.call_later(self._setting.hold_seconds * 0.2 * self._dice.random(), self._next, client)

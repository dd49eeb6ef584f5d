"""Calls the admission script in a real Redis, and reads what it left there."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import redis

from contract import redis_keys
from dataplane.state.store import SCRIPT

DONE, STALE, RESTATE = 0, 1, 2
LEASE_MS = 600_000
Counts = dict[int, int]


@dataclass
class Reply:
    """The script's result, taken apart."""

    status: int
    corrections: int
    live_workers: int
    choices: list[tuple[int, int]] = field(default_factory=list)
    """(position, outcome) of each admit."""
    load: Counts = field(default_factory=dict)
    """Of a renewing call: instance -> requests in flight over all workers."""


def flat(counts: Counts) -> list[int]:
    return [value for item in counts.items() for value in item]


def admit(order: Sequence[int], threshold: int, dice: int = 0, *, complete: bool = True) -> list[int]:
    """Return one admit as the script takes it."""
    return [threshold, dice, int(complete), *order]


class Store:
    """The counts of one endpoint of its own."""

    def __init__(self, url: str, endpoint_id: str = "") -> None:
        self.endpoint_id = endpoint_id or uuid.uuid4().hex[:12]
        self.redis: Any = redis.Redis.from_url(url, decode_responses=True)
        self.load_key = redis_keys.load_key(self.endpoint_id)
        self.ledger_key = redis_keys.ledger_key(self.endpoint_id)
        self.leases_key = redis_keys.leases_key(self.endpoint_id)
        self.keys = (self.load_key, self.ledger_key, self.leases_key)
        self._next = 0

    def close(self) -> None:
        self.redis.close()

    def run(self, keys: Sequence[bytes | str], argument: bytes) -> list[int]:
        """Run the script as the workers do; its raw result."""
        result: list[int] = self.redis.eval(SCRIPT, len(keys), *keys, argument)
        return result

    def call(
        self,
        worker: str,
        *,
        sequence: int | None = None,
        lease_ms: int = LEASE_MS,
        renew: bool = False,
        held: Counts | None = None,
        deltas: Counts | None = None,
        admits: Sequence[list[int]] = (),
    ) -> Reply:
        """Make one call. Without ``sequence``, the next one of all workers."""
        if sequence is None:
            self._next += 1
            sequence = self._next
        told = None if held is None else flat(held)
        argument = msgspec.msgpack.encode(
            [worker, sequence, lease_ms, int(renew), told, flat(deltas or {}), list(admits)]
        )
        status, corrections, live, *rest = self.run(self.keys, argument)
        done = 2 * len(admits) if status == DONE else 0
        load = dict(zip(rest[done::2], rest[done + 1 :: 2], strict=True))
        return Reply(status, corrections, live, list(zip(rest[:done:2], rest[1:done:2], strict=True)), load)

    @property
    def load(self) -> Counts:
        return {int(number): int(count) for number, count in self.redis.hgetall(self.load_key).items()}

    @property
    def shares(self) -> dict[str, Counts]:
        """Worker -> instance -> its share, of all workers that the ledger names."""
        found: dict[str, Counts] = {}
        for name, value in self.redis.hgetall(self.ledger_key).items():
            worker, slash, number = name.rpartition("/")
            if slash:
                found.setdefault(worker, {})[int(number)] = int(value)
            else:
                found.setdefault(number, {})
        return found

    @property
    def leases(self) -> set[str]:
        return set(self.redis.zrange(self.leases_key, 0, -1))

    def now_ms(self) -> int:
        seconds, micro = self.redis.time()
        return int(seconds) * 1000 + int(micro) // 1000

    def lapse(self, worker: str) -> None:
        """Let the worker's lease have ended, as if its time had gone by."""
        self.redis.zadd(self.leases_key, {worker: self.now_ms() - 1}, xx=True)

    def age(self, seconds: float) -> None:
        """Let time go by for all leases, without waiting for it."""
        for worker in self.leases:
            self.redis.zincrby(self.leases_key, -round(seconds * 1000), worker)

    def lose_everything(self) -> None:
        """What FLUSHALL or a restart without data does to this endpoint."""
        self.redis.delete(*self.keys)

    def check(self) -> None:
        """The law of the store: an instance's load is the sum of the shares of it, and nothing is below one."""
        total: Counts = {}
        for counts in self.shares.values():
            for number, count in counts.items():
                assert count > 0, f"a share of {count}"
                total[number] = total.get(number, 0) + count
        assert self.load == total

"""Plays the control plane's publisher: puts routing tables into Redis as the contract says."""

import itertools
import uuid
from collections.abc import Sequence

import redis

from contract import redis_keys
from contract.principals import Principal
from contract.routing_table import Endpoint, Instance, RoutingTable, Strategy, Variant, encode
from tests.fakes.model_host import ModelHost
from tests.waiting import wait_until

ACCOUNT = "000000000000"
_numbers = itertools.count(1)
_known: dict[str, int] = {}


def instance(host: ModelHost, *, identity: str = "", healthy: bool = True) -> Instance:
    """Return the instance that a host is. Equal identities have one number, as in the control plane."""
    name = identity or host.url
    if name not in _known:
        _known[name] = next(_numbers)
    return Instance(name, _known[name], host.url, healthy)


def variant(
    instances: Sequence[Instance],
    *,
    name: str = "AllTraffic",
    weight: float = 1.0,
    strategy: Strategy | str = Strategy.PREFIX_AWARE,
    prefix_length: int = 1024,
    threshold: int = 8,
    ping_path: str = "/ping",
) -> Variant:
    """Return a variant over these instances; the two numbers count only with PREFIX_AWARE."""
    prefix_aware = strategy == Strategy.PREFIX_AWARE
    return Variant(
        name,
        weight,
        tuple(instances),
        Strategy(strategy),
        prefix_length if prefix_aware else None,
        threshold if prefix_aware else None,
        ping_path,
        f"{name}-model",
    )


class Routes:
    """The table that the workers of one Redis see."""

    def __init__(self, redis_url: str) -> None:
        self.redis = redis.Redis.from_url(redis_url, decode_responses=False)
        self.epoch = uuid.uuid4().hex
        self.generation = 0
        self.endpoints: dict[str, Endpoint] = {}
        self.principals: dict[str, Principal] = {}

    def close(self) -> None:
        self.redis.close()

    @property
    def table(self) -> RoutingTable:
        endpoints, principals = tuple(self.endpoints.values()), tuple(self.principals.values())
        return RoutingTable(self.epoch, self.generation, ACCOUNT, "us-east-1", endpoints, principals)

    def put(self, *endpoints: Endpoint, notify: bool = True) -> None:
        """Add or replace endpoints by name and publish."""
        self.endpoints.update({endpoint.name: endpoint for endpoint in endpoints})
        self.publish(notify=notify)

    def remove(self, *names: str) -> None:
        """Take endpoints out and publish."""
        for name in names:
            self.endpoints.pop(name, None)
        self.publish()

    def publish(self, *, notify: bool = True) -> None:
        """Write the table as the next generation."""
        self.generation += 1
        self.write()
        if notify:
            self.redis.publish(redis_keys.ROUTES_NOTICE, b"")

    def write(self) -> None:
        """Write the table as it is, with no notice."""
        fields = {"epoch": self.epoch, "generation": str(self.generation), "table": encode(self.table)}
        self.redis.hset(redis_keys.ROUTES, mapping=fields)  # type: ignore[arg-type]

    def applied(self) -> dict[str, int]:
        """Return live worker id -> the generation of this epoch that it says it serves (-1: none)."""
        seconds, micro = self.redis.time()
        live = self.redis.zrangebyscore(redis_keys.WORKERS, seconds * 1000 + micro // 1000, "+inf")
        found = {}
        for worker in live:
            epoch, _, generation = (self.redis.hget(redis_keys.WORKERS_APPLIED, worker) or b"").decode().partition(":")
            found[worker.decode()] = int(generation) if epoch == self.epoch else -1
        return found

    def wait_applied(self, workers: int = 1, limit_seconds: float = 5.0) -> None:
        """Wait until at least ``workers`` are live and all live ones serve what was published last."""

        def is_applied() -> bool:
            found = self.applied()
            return len(found) >= workers and all(generation >= self.generation for generation in found.values())

        wait_until(is_applied, limit_seconds, f"{workers} workers serve generation {self.generation}")

    def in_flight(self, endpoint: Endpoint) -> dict[str, int]:
        """Return identity -> requests in flight over all workers, as Redis holds it."""
        counts = self.redis.hgetall(redis_keys.load_key(endpoint.id))
        known = {item.number: item.identity for one in endpoint.variants for item in one.instances}
        found = {int(number): int(count) for number, count in counts.items()}
        return {known.get(number, f"number {number}"): count for number, count in found.items() if count}


def endpoint(name: str, *variants: Variant, id: str = "", created: int = 1_790_000_000) -> Endpoint:
    """Return an endpoint with an id of its own, as each creation has."""
    return Endpoint(name, id or uuid.uuid4().hex[:12], created, variants)

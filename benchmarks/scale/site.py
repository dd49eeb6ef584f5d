"""What a measurement stands on: Redis, the hosts, one data plane, its routing table; and the load, run to its end."""

import re
import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar
from urllib.request import urlopen
from uuid import uuid4

import msgspec
import redis

from benchmarks.errors import BenchmarkError
from benchmarks.proxy.processes import Cores, Server, on_core
from benchmarks.scale.load import Closed, Steady, Streams
from contract import redis_keys
from contract.routing_table import Endpoint, Instance, RoutingTable, Strategy, Variant, encode
from warmroute.embedded.processes import children
from warmroute.embedded.valkey import Valkey

PREFIX_LENGTH = 1024
STORE_BUDGET_SECONDS = 1.0
"""Wide, so that no pause of a busy machine counts as a slow store: every admission measured is an exact one."""
LIMIT_SECONDS = 120.0
DESCRIPTORS = 12_000
"""4,000 streams are 8,000 of a worker's, and as many of the hosts and the clients together."""

T = TypeVar("T")


@dataclass
class Site:
    """Redis and two processes of hosts, running: the second one for requests that streams must not disturb."""

    directory: Path
    cores: Cores
    redis_url: str
    redis_pid: int
    ports: tuple[int, int]
    _number: int = field(default=0)

    def log(self) -> Path:
        self._number += 1
        return self.directory / f"log-{self._number}"

    @contextmanager
    def data_plane(self, endpoints: Sequence[Endpoint], workers: int = 1) -> Iterator["DataPlane"]:
        """Start one on its own core, with nothing but these endpoints in Redis."""
        table = RoutingTable(uuid4().hex, 1, "000000000000", "us-east-1", tuple(endpoints))
        with redis.Redis.from_url(self.redis_url) as client:
            client.flushall()
            fields = {"epoch": table.epoch, "generation": "1", "table": encode(table)}
            client.hset(redis_keys.ROUTES, mapping=fields)
        data = self.directory / f"data-{self._number}"
        program = [sys.executable, "-m", "warmroute", "dataplane", "--host", "127.0.0.1", "--port", "0"]
        program += ["--workers", str(workers), "--data-dir", str(data)]
        environment = {
            "WARMROUTE_REDIS_URL": self.redis_url,
            "WARMROUTE_STORE_BUDGET_SECONDS": f"{STORE_BUDGET_SECONDS}",
        }
        server = Server("the data plane", program, self.cores.proxy, self.log(), environment)
        try:
            ready = re.compile(r"warmroute dataplane ready on http://\S+:(\d+)")
            server.wait(lambda: ready.search(server.said()) is not None)
            found = ready.search(server.said())
            assert found is not None
            yield DataPlane(int(found[1]), children(server.pid))
        finally:
            server.stop()

    def start(self, plan: Closed | Streams | Steady) -> Server:
        """Start a load."""
        program = [sys.executable, "-m", "benchmarks.scale.load", msgspec.json.encode(plan).decode()]
        return Server("the load", program, self.cores.rest, self.log())

    def result(self, load: Server, kind: type[T]) -> T:
        """Wait for a load's end and return what it found. Raises BenchmarkError when an answer was wrong."""
        try:
            load.wait(lambda: "RESULT " in load.said() and load.said().endswith("\n"), LIMIT_SECONDS)
        finally:
            load.stop()
        return msgspec.json.decode(load.said().rpartition("RESULT ")[2], type=kind)


@dataclass(frozen=True)
class DataPlane:
    """Its port and its workers' process ids."""

    port: int
    workers: list[int]

    def degraded(self) -> int:
        """Return how many requests were decided without Redis."""
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return int(sum(float(n) for n in re.findall(r"^warmroute_route_degraded_total\{.*\} (\S+)$", text, re.M)))


@contextmanager
def site() -> Iterator[Site]:
    """Bring up all but the data plane on the core that is not its. Raises BenchmarkError, EmbeddedError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS:
        raise BenchmarkError(f"{DESCRIPTORS} open files are needed and {hard} allowed (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, DESCRIPTORS), hard))
    cores = Cores.choose()
    with TemporaryDirectory(prefix="benchmark-") as name:
        directory = Path(name)
        valkey = Valkey(directory / "redis", log=directory / "redis.log")
        hosts: list[Server] = []
        try:
            with on_core(cores.rest):
                url = valkey.start()
            for number in range(2):
                program = [sys.executable, "-m", "benchmarks.scale.host"]
                hosts.append(Server("the model hosts", program, cores.rest, directory / f"hosts-{number}"))
            for server in hosts:
                server.wait(lambda server=server: server.said().endswith("\n"))  # type: ignore[misc]
            first, second = (int(server.said()) for server in hosts)
            yield Site(directory, cores, url, valkey.pid, (first, second))
        finally:
            for server in hosts:
                server.stop()
            valkey.stop()
            with suppress(ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def endpoint(
    name: str,
    port: int,
    instances: int,
    strategy: Strategy,
    threshold: int,
    *,
    first: int = 0,
    letter: str = "i",
    is_one_down: bool = False,
) -> Endpoint:
    """Return an endpoint whose instances are numbered from ``first``. ``is_one_down``: the last fails its pings."""
    listed = [
        Instance(f"{letter}{number}", number, f"http://127.0.0.1:{port}/{letter}{number}")
        for number in range(first, first + instances)
    ]
    if is_one_down:
        last = listed[-1]
        listed[-1] = Instance("down", last.number, f"http://127.0.0.1:{port}/down", healthy=False)
    by_prefix = strategy is Strategy.PREFIX_AWARE
    return Endpoint(name, name, 1_790_000_000, (
        Variant("AllTraffic", 1.0, tuple(listed), strategy, PREFIX_LENGTH if by_prefix else None,
                threshold if by_prefix else None),
    ))  # fmt: skip

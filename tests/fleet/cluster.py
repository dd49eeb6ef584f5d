"""A Redis Cluster of real nodes on loopback, which a test may reshard and whose primaries it may kill."""

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from contract import redis_keys
from dataplane.state.topology import SLOTS, slot_of
from tests.fakes.routes import Routes
from tests.services import PrivateServer
from tests.waiting import free_port, wait_until
from warmroute.embedded.valkey import Valkey

NODE_TIMEOUT_MS = 1_000
"""A primary is given up after this; its replica takes over within about as long again."""
PRIMARIES = 3


def cluster_of_one(private_redis: Callable[..., PrivateServer]) -> PrivateServer:
    """Start a cluster of one node that serves every slot."""
    server = private_redis("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    serve_all_slots(server)
    return server


def serve_all_slots(server: PrivateServer) -> None:
    """Let the only node of a cluster serve every slot, and wait until it does."""
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        wait_until(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))


class Node:
    """One node and a connection to it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.bus_port = free_port()
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS)]
        options += ["--cluster-port", str(self.bus_port), "--cluster-config-file", "nodes.conf"]
        # A replica that never had data to copy may take over all the same, and copies without waiting for others.
        options += ["--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"]
        self.server = PrivateServer(Valkey(directory, log=directory / "log", arguments=options))
        self.client = redis.Redis.from_url(self.server.url, decode_responses=True)
        self.port = int(self.client.connection_pool.connection_kwargs["port"])
        self.id = str(self.command("CLUSTER MYID"))
        self.is_running = True

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self, *words: Any) -> Any:
        return self.client.execute_command(*words)

    def is_well(self, nodes: int) -> bool:
        """Return whether it sees that many nodes, all linked, and every slot served."""
        known = self.command("CLUSTER NODES").values()
        return (
            self.command("CLUSTER INFO")["cluster_state"] == "ok"
            and sum(node["connected"] and "fail" not in node["flags"] for node in known) == nodes
        )

    def is_in_step(self) -> bool:
        """Return whether it is a primary, or a replica that follows its primary."""
        role = self.command("ROLE")
        return role[0] == "master" or role[3] == "connected"

    def kill(self) -> None:
        """SIGKILL."""
        self.is_running = False
        self.server.kill()

    def start(self) -> None:
        """Start it again after kill(); it still knows the others."""
        self.server.start()
        self.is_running = True

    def freeze(self) -> None:
        """SIGSTOP."""
        self.is_running = False
        self.server.pause()

    def thaw(self) -> None:
        """SIGCONT."""
        self.server.resume()
        self.is_running = True

    def close(self) -> None:
        self.client.close()
        self.server.stop()


class Cluster:
    """Three primaries with a third of the slots each, and a replica for each of the first ``replicas`` of them."""

    def __init__(self, directory: Path, replicas: int) -> None:
        self._exit = contextlib.ExitStack()
        self.nodes: list[Node] = []
        for number in range(PRIMARIES + replicas):
            self.nodes.append(Node(directory / str(number)))
            self._exit.callback(self.nodes[-1].close)
        first, *others = self.nodes
        for node in others:
            node.command("CLUSTER MEET", "127.0.0.1", first.port, first.bus_port)
        borders = [SLOTS * n // PRIMARIES for n in range(PRIMARIES + 1)]
        for node, (start, end) in zip(self.nodes, itertools.pairwise(borders), strict=False):
            node.command("CLUSTER ADDSLOTSRANGE", start, end - 1)
        wait_until(lambda: all(node.is_well(len(self.nodes)) for node in self.nodes), 20, "the cluster is formed")
        for primary, replica in zip(self.nodes, self.nodes[PRIMARIES:], strict=False):
            replica.command("CLUSTER REPLICATE", primary.id)
        self.wait_well()

    @property
    def url(self) -> str:
        """Names one node."""
        return self.nodes[0].server.url

    @property
    def primaries(self) -> list[Node]:
        """The nodes that are primaries now and live."""
        return [node for node in self.live if node.command("ROLE")[0] == "master"]

    @property
    def live(self) -> list[Node]:
        return [node for node in self.nodes if node.is_running]

    def wait_well(self) -> None:
        """Wait until every running node sees every other one well, and replicas follow."""
        live = self.live
        wait_until(
            lambda: all(node.is_well(len(live)) and node.is_in_step() for node in live), 30, "the cluster is well"
        )

    def primary_of(self, key: str) -> Node:
        """Return the node that serves a key, as the last node sees it."""
        slot = slot_of(key.encode())
        for first, last, primary, *_ in self.live[-1].command("CLUSTER SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.id == primary[2])
        raise AssertionError(f"no node serves slot {slot}")

    def id_at(self, node: Node) -> str:
        """Return an endpoint id whose counts this primary keeps."""
        return next(x for n in itertools.count() if self.primary_of(redis_keys.load_key(x := f"id{n}")) is node)

    def replica_of(self, node: Node) -> Node:
        """Return a replica of a primary."""
        known = self.live[-1].command("CLUSTER NODES").values()
        ids = [found["node_id"] for found in known if found["master_id"] == node.id]
        return next(node for node in self.nodes if node.id in ids)

    def close(self) -> None:
        self._exit.close()


class Move:
    """One slot on its way from a primary to another, step by step as redis-cli --cluster reshard does it."""

    def __init__(self, cluster: Cluster, key: str, target: Node) -> None:
        self._primaries = cluster.primaries
        self.slot = slot_of(key.encode())
        self.source, self.target = cluster.primary_of(key), target

    def begin(self) -> None:
        """From now on keys that the source does not have are asked of the target."""
        self.target.command("CLUSTER SETSLOT", self.slot, "IMPORTING", self.source.id)
        self.source.command("CLUSTER SETSLOT", self.slot, "MIGRATING", self.target.id)

    def migrate(self, count: int = 100) -> list[str]:
        """Move so many of the keys that the source has now; return them."""
        keys: list[str] = self.source.command("CLUSTER GETKEYSINSLOT", self.slot, count)
        for key in keys:
            self.source.command("MIGRATE", "127.0.0.1", self.target.port, key, 0, 1_000)
        return keys

    def end(self) -> None:
        """The target owns the slot."""
        for node in (self.target, self.source, *self._primaries):
            node.command("CLUSTER SETSLOT", self.slot, "NODE", self.target.id)


class ClusterRoutes(Routes):
    """The table that the workers of a cluster see."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.url)
        self.redis.close()
        self.redis = redis.RedisCluster.from_url(cluster.url, socket_timeout=1)  # type: ignore[assignment]
        self._cluster = cluster

    def applied(self) -> dict[str, int]:
        node = self._cluster.primary_of(redis_keys.WORKERS)
        seconds, micro = node.client.time()
        live = node.client.zrangebyscore(redis_keys.WORKERS, seconds * 1000 + micro // 1000, "+inf")
        said = {worker: node.client.hget(redis_keys.WORKERS_APPLIED, worker) or "" for worker in live}
        found = {worker: words.partition(":") for worker, words in said.items()}
        return {name: int(number) if epoch == self.epoch else -1 for name, (epoch, _, number) in found.items()}

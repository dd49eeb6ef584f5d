"""What the tests of this folder act on: data planes, endpoints over fake hosts, and short ways to call them."""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import openai
from botocore.config import Config
from botocore.eventstream import EventStreamBuffer, EventStreamMessage

from contract.routing_table import Endpoint, Strategy, Variant
from tests.fakes.data_plane import DataPlane
from tests.fakes.model_host import Hosts, ModelHost
from tests.fakes.raw_client import ConnectionEnded, Headers, RawClient, Response, request_bytes
from tests.fakes.routes import Routes, endpoint, instance, variant
from tests.waiting import wait_until

PREFIX_ID = "X-Amzn-SageMaker-Prefix-Aware-Id"
EVENTSTREAM = "application/vnd.amazon.eventstream"


def prefix(number: int, length: int = 1024) -> bytes:
    """Return the ``number``-th of many distinct prefixes of at least this length."""
    seed = hashlib.sha256(str(number).encode()).hexdigest().encode()
    return (b"%d " % number + seed * (length // len(seed) + 1))[:length]


def chat_body(text: str, **members: Any) -> bytes:
    """Return a chat body with one user message."""
    return json.dumps({"model": "", "messages": [{"role": "user", "content": text}], **members}).encode()


@dataclass(frozen=True)
class Deployed:
    """One endpoint in the routing table, and the hosts behind it."""

    endpoint: Endpoint
    hosts: list[ModelHost]

    @property
    def name(self) -> str:
        return self.endpoint.name

    @property
    def invocations(self) -> str:
        return f"/endpoints/{self.name}/invocations"

    @property
    def stream(self) -> str:
        return f"/endpoints/{self.name}/invocations-response-stream"

    @property
    def chat(self) -> str:
        return f"/endpoints/{self.name}/openai/v1/chat/completions"

    @property
    def in_flight(self) -> int:
        """Requests that the hosts are working on now."""
        return sum(host.in_flight for host in self.hosts)

    @property
    def delivered(self) -> int:
        """Requests that reached any host."""
        return sum(len(host.deliveries) for host in self.hosts)

    def shares(self) -> dict[str, int]:
        """Return how many requests each host got."""
        return {host.name: len(host.deliveries) for host in self.hosts}

    def busy(self) -> dict[str, int]:
        """Return how many requests each host is working on."""
        return {host.name: host.in_flight for host in self.hosts}

    def host(self, name: str) -> ModelHost:
        return next(host for host in self.hosts if host.name == name)

    def others(self, name: str) -> list[ModelHost]:
        return [host for host in self.hosts if host.name != name]


@dataclass
class Stage:
    """One Redis with its routing table and every data plane that was started on it."""

    redis_url: str
    directory: Path
    routes: Routes
    planes: list[DataPlane] = field(default_factory=list)

    def start(self, **given: Any) -> DataPlane:
        """Start a data plane on this Redis."""
        if self.routes.generation == 0:
            self.routes.publish()
        plane = DataPlane(self.redis_url, self.directory / f"plane-{len(self.planes)}", **given)
        self.planes.append(plane)
        plane.start()
        return plane

    def settle(self) -> None:
        """Wait until every running worker serves the routes that were published last."""
        running = sum(plane.workers for plane in self.planes if plane.process is not None)
        self.routes.wait_applied(running)

    def close(self) -> None:
        """End every data plane, then report everything that any of them did wrong."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.routes.close)
            for plane in self.planes:
                stack.callback(plane.close)


@dataclass
class Fleet:
    """Makes the hosts and endpoints of one test. ``scope`` makes the instances' identities the test's own."""

    stage: Stage
    hosts: Hosts
    scope: str
    deployed: list[Deployed] = field(default_factory=list)

    def deploy(
        self,
        hosts: int | Sequence[ModelHost] = 4,
        strategy: str = "PREFIX_AWARE",
        *,
        threshold: int = 8,
        prefix_length: int = 1024,
        ping_path: str = "/ping",
        name: str = "",
    ) -> Deployed:
        """Put an endpoint with one variant into the table and wait until every worker serves it."""
        made = self.hosts.make(hosts) if isinstance(hosts, int) else list(hosts)
        one = self.variant(
            made, strategy=Strategy(strategy), threshold=threshold, prefix_length=prefix_length, ping_path=ping_path
        )
        return self.deploy_variants([(one, made)], name=name)

    def variant(self, hosts: Sequence[ModelHost], **given: Any) -> Variant:
        """Return a variant over these hosts."""
        return variant([instance(host, identity=f"{self.scope}/{host.name}") for host in hosts], **given)

    def deploy_variants(self, parts: Sequence[tuple[Variant, Sequence[ModelHost]]], *, name: str = "") -> Deployed:
        """Put an endpoint with these variants into the table and wait until every worker serves it."""
        found = endpoint(name or f"e{len(self.deployed) + 1}-{self.digest}", *(one for one, _ in parts))
        deployed = Deployed(found, [host for _, hosts in parts for host in hosts])
        self.deployed.append(deployed)
        self.stage.routes.put(found)
        self.stage.settle()
        return deployed

    def change(self, deployed: Deployed, hosts: Sequence[ModelHost], **given: Any) -> Deployed:
        """Publish the endpoint anew, as an update does: same name and id, one variant over ``hosts``."""
        found = endpoint(deployed.name, self.variant(hosts, **given), id=deployed.endpoint.id)
        changed = Deployed(found, list(hosts))
        self.deployed.append(changed)
        self.stage.routes.put(found)
        self.stage.settle()
        return changed

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.scope.encode()).hexdigest()[:10]

    def expect_idle(self, limit_seconds: float = 3.0) -> None:
        """Fail when any endpoint of this test still counts requests in flight."""
        routes = self.stage.routes

        def left() -> dict[str, dict[str, int]]:
            found = {deployed.name: routes.in_flight(deployed.endpoint) for deployed in self.deployed}
            return {name: counts for name, counts in found.items() if counts}

        wait_until(lambda: not left(), limit_seconds, f"every count is back at zero, left are {left()}")

    def close(self) -> None:
        """Remove this test's endpoints and end its hosts."""
        self.stage.routes.remove(*{deployed.name for deployed in self.deployed})
        self.hosts.close()


def invoke(client: RawClient, deployed: Deployed, body: bytes, headers: Headers = ()) -> str:
    """Invoke and return the name of the host that answered."""
    response = client.request(deployed.invocations, body, headers)
    assert response.status == 200, response
    return str(json.loads(response.body)["host"])


def chat(client: RawClient, deployed: Deployed, body: bytes, headers: Headers = ()) -> str:
    """Send a chat request that is not streamed and return the name of the host that answered."""
    response = client.request(deployed.chat, body, [("Content-Type", "application/json"), *headers])
    assert response.status == 200, response
    return str(json.loads(response.body)["host"])


def homes(client: RawClient, deployed: Deployed, bodies: Iterable[bytes]) -> list[str]:
    """Return the home of each body, asked one after the other."""
    return [invoke(client, deployed, body) for body in bodies]


def bodies_at(client: RawClient, deployed: Deployed, home: str, count: int, length: int = 1024) -> list[bytes]:
    """Return ``count`` bodies with distinct prefixes that have the same home."""
    found = []
    for number in range(10_000):
        body = prefix(number, length)
        if invoke(client, deployed, body) == home:
            found.append(body)
            if len(found) == count:
                return found
    raise AssertionError(f"too few prefixes have their home at {home}")


@contextlib.contextmanager
def asking(plane: DataPlane, targets: Sequence[tuple[str, bytes]]) -> Iterator[list[RawClient]]:
    """Send requests at once, each on a connection of its own, and leave the answers to be read."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(plane.client()) for _ in targets]
        for client, (target, body) in zip(clients, targets, strict=True):
            client.send(request_bytes(target, body, [("Content-Type", "application/json")]))
        yield clients


def frames(data: bytes) -> list[EventStreamMessage]:
    """Return the event-stream frames in ``data``; fails on a wrong checksum or half a frame."""
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    found = list(buffer)
    assert sum(frame.prelude.total_length for frame in found) == len(data)
    return found


def payload(found: Iterable[EventStreamMessage]) -> bytes:
    """Return the joined bytes of the PayloadPart frames."""
    return b"".join(frame.payload for frame in found if frame.headers[":message-type"] == "event")


def read_broken(client: RawClient) -> bytes:
    """Read an OpenAI stream that must not look complete, and return what came before the failure.

    A visible failure is an error event, an end in the middle of the framing, or both; never a clean end after data.
    """
    head = client.read_head()
    assert head.status == 200, head
    parts: list[bytes] = []
    is_clean = True
    try:
        parts.extend(client.chunks())
    except ConnectionEnded:
        is_clean = False
    body, mark, error = b"".join(parts).partition(b'data: {"error":')
    assert b"[DONE]" not in body + error
    assert mark or not is_clean, f"a clean end after {body!r}"
    if mark:
        content = json.loads(b'{"error":' + error)["error"]
        assert isinstance(content["message"], str)
    return body


def runtime(plane: DataPlane, **config: Any) -> Any:
    """Return a boto3 sagemaker-runtime client that tries once."""
    settings = {"retries": {"max_attempts": 0}, "read_timeout": 20, "max_pool_connections": 50, **config}
    return boto3.client(
        "sagemaker-runtime",
        endpoint_url=plane.url,
        region_name="us-east-1",
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="secret",
        config=Config(**settings),
    )


def openai_client(base_url: str, **given: Any) -> openai.OpenAI:
    """Return an OpenAI client that tries once."""
    return openai.OpenAI(base_url=base_url, api_key="unused", **{"max_retries": 0, "timeout": 20.0, **given})


def error_of(response: Response) -> dict[str, Any]:
    """Return the error of an OpenAI envelope, after checking its form."""
    assert response.header("content-type") == "application/json", response
    content = json.loads(response.body)
    assert set(content) == {"error"}, content
    error: dict[str, Any] = content["error"]
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    assert {"param", "code"} <= set(error), error
    return error


def native_error(response: Response) -> tuple[int, str, str]:
    """Return (status, code, message) of a runtime API error, read as botocore reads it."""
    content = json.loads(response.body)
    code = (response.header("x-amzn-errortype") or content.get("__type", "")).partition(":")[0]
    return response.status, code, content.get("Message", "")

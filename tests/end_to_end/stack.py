"""The whole product as processes, and short ways to use it as its users do."""

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import httpx
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.fakes.control_plane import ControlPlane
from tests.fakes.data_plane import DataPlane
from tests.fakes.model_host import ModelHost
from tests.waiting import wait_until

ROLE = "arn:aws:iam::000000000000:role/warmroute"
SETTINGS = {
    "PROBE_SECONDS": 0.2,
    "EJECT_SECONDS": 0.5,
    "RESYNC_SECONDS": 1,
    "LEASE_SECONDS": 1,
    "CONNECT_TIMEOUT_SECONDS": 0.5,
    "PROVISION_TIMEOUT_SECONDS": 20,
}
CREDENTIALS = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "secret", "region_name": "us-east-1"}


def prefix_aware(length: int = 4096, threshold: int = 8) -> dict[str, Any]:
    """Return a RoutingConfig."""
    numbers = {"PrefixLength": length, "ConcurrencyThreshold": threshold}
    return {"RoutingStrategy": "PREFIX_AWARE", "PrefixAwareRoutingConfig": numbers}


LEAST_OUTSTANDING = {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"}


@dataclass
class Stack:
    """Control planes and data planes on one database and one Redis."""

    database_url: str
    redis_url: str
    directory: Path
    settings: dict[str, object] = field(default_factory=lambda: dict(SETTINGS))
    controls: list[ControlPlane] = field(default_factory=list)
    planes: list[DataPlane] = field(default_factory=list)
    clients: list[Any] = field(default_factory=list)

    def start_control(self, *, wait: bool = True) -> ControlPlane:
        """Start a control plane; it migrates the database if that is new."""
        directory = self.directory / f"control-{len(self.controls)}"
        plane = ControlPlane(self.database_url, self.redis_url, directory, settings=self.settings)
        self.controls.append(plane)
        return plane.start(wait=wait)

    def start_plane(self, *, redis_url: str = "", wait: bool = True, **given: Any) -> DataPlane:
        """Start a data plane."""
        directory = self.directory / f"plane-{len(self.planes)}"
        plane = DataPlane(redis_url or self.redis_url, directory, settings=self.settings, **given)
        self.planes.append(plane)
        return plane.start(wait=wait)

    @property
    def control(self) -> ControlPlane:
        return self.controls[0]

    @property
    def plane(self) -> DataPlane:
        return self.planes[0]

    def sagemaker(self, control: ControlPlane | None = None) -> Any:
        """Return a boto3 client of a control plane."""
        client = boto3.client("sagemaker", endpoint_url=(control or self.control).url, **CREDENTIALS)
        self.clients.append(client)
        return client

    def runtime(self, plane: DataPlane | None = None, attempts: int = 1) -> Any:
        """Return a boto3 client of a data plane that tries ``attempts`` times."""
        config = Config(retries={"total_max_attempts": attempts}, max_pool_connections=50, read_timeout=10)
        url = (plane or self.plane).url
        client = boto3.client("sagemaker-runtime", endpoint_url=url, config=config, **CREDENTIALS)
        self.clients.append(client)
        return client

    def close(self) -> None:
        """End everything, then report everything that went wrong."""
        with contextlib.ExitStack() as stack:
            for plane in [*self.controls, *self.planes]:
                stack.callback(plane.close)
            for client in self.clients:
                stack.callback(client.close)


class User:
    """One user of the control plane: names begin with ``scope``, so that users do not meet."""

    def __init__(self, stack: Stack, scope: str) -> None:
        self.stack, self.scope = stack, scope
        self.sagemaker = stack.sagemaker()
        self._made: list[str] = []

    def name(self, name: str) -> str:
        return f"{self.scope}-{name}"

    def model(self, name: str, hosts: Sequence[ModelHost]) -> str:
        """Create a model with these static hosts."""
        environment = {"WARMROUTE_HOSTS": ",".join(host.url for host in hosts)} if hosts else {}
        container = {"Image": "vllm/vllm-openai:latest", "Environment": environment}
        self.sagemaker.create_model(ModelName=self.name(name), PrimaryContainer=container, ExecutionRoleArn=ROLE)
        return self.name(name)

    def config(self, name: str, model: str, count: int, routing: dict[str, Any] | None = None, **more: Any) -> str:
        """Create an endpoint configuration with one variant."""
        variant = {"VariantName": "AllTraffic", "ModelName": model, "InitialInstanceCount": count}
        variant |= {"InstanceType": "ml.g5.xlarge", **more}
        if routing is not None:
            variant["RoutingConfig"] = routing
        self.sagemaker.create_endpoint_config(EndpointConfigName=self.name(name), ProductionVariants=[variant])
        return self.name(name)

    def endpoint(self, name: str, config: str, *, wait: bool = True) -> str:
        """Create an endpoint and wait until it is in service."""
        self.sagemaker.create_endpoint(EndpointName=self.name(name), EndpointConfigName=config)
        self._made.append(self.name(name))
        return self.in_service(self.name(name)) if wait else self.name(name)

    def deploy(self, name: str, hosts: Sequence[ModelHost], routing: dict[str, Any] | None = None) -> str:
        """Create model, configuration and endpoint over all these hosts, and wait until it is in service."""
        model = self.model(f"{name}-m", hosts)
        return self.endpoint(name, self.config(f"{name}-c", model, len(hosts), routing))

    def update(self, endpoint: str, config: str, *, wait: bool = True, **given: Any) -> None:
        """Update an endpoint, and wait until it is in service again."""
        self.sagemaker.update_endpoint(EndpointName=endpoint, EndpointConfigName=config, **given)
        if wait:
            self.in_service(endpoint)

    def in_service(self, endpoint: str) -> str:
        """Wait as boto3's users do."""
        waiter = self.sagemaker.get_waiter("endpoint_in_service")
        waiter.wait(EndpointName=endpoint, WaiterConfig={"Delay": 0.1, "MaxAttempts": 200})
        return endpoint

    def describe(self, endpoint: str) -> dict[str, Any]:
        found: dict[str, Any] = self.sagemaker.describe_endpoint(EndpointName=endpoint)
        return found

    def status(self, endpoint: str) -> str:
        """Return the endpoint's status; empty when there is none of that name."""
        try:
            return str(self.describe(endpoint)["EndpointStatus"])
        except ClientError as error:
            if error.response["Error"]["Code"] != "ValidationException":
                raise
            return ""

    def wait_status(self, endpoint: str, status: str, limit_seconds: float = 15.0) -> dict[str, Any]:
        """Wait until an endpoint has a status; return its description."""
        wait_until(lambda: self.status(endpoint) == status, limit_seconds, f"{endpoint} is {status or 'gone'}")
        return self.describe(endpoint) if status else {}

    def delete(self, endpoint: str) -> None:
        """Delete an endpoint and wait as boto3's users do."""
        self.sagemaker.delete_endpoint(EndpointName=endpoint)
        waiter = self.sagemaker.get_waiter("endpoint_deleted")
        waiter.wait(EndpointName=endpoint, WaiterConfig={"Delay": 0.1, "MaxAttempts": 200})

    def close(self) -> None:
        """Delete this user's endpoints, whatever state a test left them in."""

        def is_gone(name: str) -> bool:
            with contextlib.suppress(ClientError):
                self.sagemaker.delete_endpoint(EndpointName=name)
            return self.status(name) == ""

        for name in self._made:
            wait_until(lambda name=name: is_gone(name), 30.0, f"{name} is deleted")

    def register(self, model: str, host: ModelHost, **given: Any) -> None:
        """Register a host over plain REST, as a host's start script does."""
        body = {"ModelName": model, "BaseUrl": host.url, **given}
        answer = httpx.post(f"{self.stack.control.url}/RegisterModelHost", json=body)
        assert answer.status_code == 200, answer.text


class Traffic:
    """Steady invocations by unmodified boto3 on threads of its own; nothing is retried, every result is kept."""

    def __init__(self, stack: Stack, endpoint: str, *, rate: float = 50.0, prefixes: int = 8) -> None:
        self._stack, self._endpoint, self._rate, self._prefixes = stack, endpoint, rate, prefixes
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.served: list[tuple[float, str]] = []
        """(monotonic time of the answer, host), in order of completion."""
        self.failures: list[str] = []

    def __enter__(self) -> "Traffic":
        planes = self._stack.planes
        for number in range(4):
            client = self._stack.runtime(planes[number % len(planes)])
            self._threads.append(threading.Thread(target=self._run, args=(client, number)))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, client: Any, number: int) -> None:
        period = len(self._threads) / self._rate
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due += period
            number += 1
            body = b"prefix %d " % (number % self._prefixes) * 1_000
            try:
                answer = client.invoke_endpoint(EndpointName=self._endpoint, Body=body)
                host = json.loads(answer["Body"].read())["host"]
                self.served.append((time.monotonic(), host))
            except Exception as failure:  # the test asserts that there was none
                self.failures.append(repr(failure))

    def wait_for(self, count: int, limit_seconds: float = 20.0) -> None:
        """Wait until so many more requests were answered, or one failed."""
        goal = len(self.served) + count
        wait_until(lambda: len(self.served) >= goal or self.failures, limit_seconds, f"{count} more answers")
        assert not self.failures, self.failures[:3]

    def since(self, moment: float) -> Counter[str]:
        """Return host -> answers since a moment."""
        return Counter(host for at, host in list(self.served) if at >= moment)


def invoke(client: Any, endpoint: str, body: bytes) -> str:
    """Invoke by boto3 and return the host's name."""
    answer = client.invoke_endpoint(EndpointName=endpoint, Body=body)
    return str(json.loads(answer["Body"].read())["host"])


@contextlib.contextmanager
def streams(plane: DataPlane, endpoint: str, count: int) -> Iterator[list[Any]]:
    """Open chat streams and leave them open; each has delivered its first event."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(plane.client()) for _ in range(count)]
        for client in clients:
            client.ask(f"/endpoints/{endpoint}/openai/v1/chat/completions", b'{"messages":[],"stream":true}')
            client.until(b"first")
        yield clients

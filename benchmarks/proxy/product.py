"""What the product's workers are told: the endpoints, and who may call them; and how that caller proves who it is."""

import base64
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import redis
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from access.credentials import ENTROPY_BYTES, AccessKey, ApiKey, new_access_key, new_api_key
from access.sealing import Sealing
from access.sigv4 import SERVICE
from contract import redis_keys
from contract.principals import Kind, Principal, Role
from contract.routing_table import Endpoint, Instance, RoutingTable, Strategy, Variant, encode

ACCOUNT, REGION = "000000000000", "us-east-1"
PREFIX_LENGTH = 1024
THRESHOLD = 64
"""Above what a home meets with 32 connections: the counts are exact, and no request leaves its home."""
HOST = "bench"
"""Name of the server in requests; a signature covers it."""

Sign = Callable[[str, bytes], Mapping[str, str]]
"""From target and body to the headers that say who sends them."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Keys of one caller, made for one run."""

    secret_key: str = field(default_factory=lambda: base64.b64encode(os.urandom(32)).decode())
    """WARMROUTE_SECRET_KEY of the workers."""
    access_key: AccessKey = field(default_factory=lambda: new_access_key(os.urandom(ENTROPY_BYTES)))
    api_key: ApiKey = field(default_factory=lambda: new_api_key(os.urandom(ENTROPY_BYTES)))

    @property
    def principals(self) -> tuple[Principal, ...]:
        sealed = Sealing.of(self.secret_key).seal(self.access_key.secret)
        return (
            Principal(self.access_key.id, Kind.ACCESS_KEY, Role.INVOKE, sealed),
            Principal(self.api_key.id, Kind.API_KEY, Role.INVOKE, self.api_key.digest),
        )

    def bearing(self) -> Mapping[str, str]:
        """Return what an OpenAI client sends with every request."""
        return {"Authorization": f"Bearer {self.api_key.key}"}

    def sign(self, target: str, body: bytes) -> Mapping[str, str]:
        """Return what an AWS client adds to one request: botocore's signature of it."""
        headers = {"Host": HOST, "Content-Type": "application/json"}
        request = AWSRequest("POST", f"http://{HOST}{target}", headers, body)
        SigV4Auth(Credentials(self.access_key.id, self.access_key.secret), SERVICE, REGION).add_auth(request)
        return {name: request.headers[name] for name in ("X-Amz-Date", "Authorization")}


def endpoint_name(strategy: Strategy) -> str:
    return f"bench-{strategy.lower().replace('_', '-')}"


def publish(redis_url: str, host_ports: tuple[int, ...], caller: Caller) -> None:
    """Put a routing table into Redis: an endpoint for each strategy, all on the same hosts."""
    urls = [f"http://127.0.0.1:{port}" for port in host_ports]
    instances = tuple(Instance(url, number, url) for number, url in enumerate(urls, 1))
    endpoints = []
    for strategy in Strategy:
        by_prefix = strategy is Strategy.PREFIX_AWARE
        variant = Variant("AllTraffic", 1.0, instances, strategy, PREFIX_LENGTH if by_prefix else None,
                          THRESHOLD if by_prefix else None)  # fmt: skip
        endpoints.append(Endpoint(endpoint_name(strategy), endpoint_name(strategy), 1, (variant,)))
    table = RoutingTable("benchmark", 1, ACCOUNT, REGION, tuple(endpoints), caller.principals)
    with redis.Redis.from_url(redis_url) as client:
        client.hset(redis_keys.ROUTES, mapping={"epoch": "benchmark", "generation": 1, "table": encode(table)})

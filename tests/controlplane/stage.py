"""What tests of the control plane are made of: calls of operations, reconcilers step by step, and ways to wait."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import redis as redis_library
from sqlalchemy import select, text

from access.sealing import Sealing
from contract import redis_keys
from contract.routing_table import RoutingTable, decode
from controlplane.background.probe_hosts import ProbeHosts
from controlplane.background.publish_routes import PublishRoutes
from controlplane.background.redis_link import RedisLink
from controlplane.background.settle_endpoints import SettleEndpoints
from controlplane.errors import ValidationException
from controlplane.operations.context import NOBODY, Caller, Context
from controlplane.operations.registry import OPERATIONS
from controlplane.shapes.parse import parse
from controlplane.snapshot import Limits
from controlplane.store.session import Database
from controlplane.store.tables import Binding
from tests.fakes.model_host import ModelHost
from tests.waiting import wait_until_async

ACCOUNT, REGION = "123456789012", "us-east-1"

Call = Callable[..., Awaitable[dict[str, Any]]]


SEALING = Sealing([b"a key for the tests, of 32 bytes."[:32]])


def caller(database: Database, who: Caller = NOBODY) -> Call:
    """Return ``call(operation, **members)``: one operation as a replica of the API runs it, its answer as JSON."""
    return caller_at(database, None, who)


def caller_at(database: Database, now: datetime | None, who: Caller = NOBODY) -> Call:
    """Return a ``call`` for which it is always ``now``."""

    async def call(operation: str, **members: Any) -> dict[str, Any]:
        entry = OPERATIONS[operation]
        request = parse(entry.input, members)
        moment = now or datetime.now(UTC)
        async with database.transaction() as session:
            answer = await entry.run(Context(session, ACCOUNT, REGION, moment, who, SEALING), request)
        return answer.to_wire() if answer else {}

    return call


class Replica:
    """One control plane's reconcilers without their driver, to be run step by step."""

    def __init__(
        self,
        database: Database,
        redis_url: str,
        limits: Limits,
        publishing: Database | None = None,
        probe_seconds: float = 0.05,
    ) -> None:
        """``publishing``: the database as the publisher sees it, if not as the others do."""
        self.database = database
        self.limits = limits
        self.link = RedisLink(redis_url)
        self.settle = SettleEndpoints(database, self.link, limits)
        self.publish = PublishRoutes(publishing or database, self.link, ACCOUNT, REGION)
        self.prober = ProbeHosts(database, probe_seconds, lambda: None, sealing=SEALING)

    async def turn(self) -> None:
        """One run of everything but the prober."""
        await self.settle.run()
        await self.publish.run()
        await self.settle.run()

    async def probe(self) -> None:
        """Send the probes that are due, and store what they found."""
        await self.prober.run()
        await asyncio.gather(*self.prober.under_way)
        await self.prober.run()

    async def close(self) -> None:
        await self.prober.close()
        await self.link.close()


def table_in(redis: redis_library.Redis) -> RoutingTable | None:
    """Return the routing table that Redis holds."""
    data = redis.hget(redis_keys.ROUTES, "table")
    return decode(data) if data else None


def report(redis: redis_library.Redis, worker: str, serves: str, lease_seconds: float = 60.0) -> None:
    """Say for a worker what it serves, as the data plane does."""
    seconds, microseconds = redis.time()
    redis.zadd(redis_keys.WORKERS, {worker: seconds * 1000 + microseconds // 1000 + int(lease_seconds * 1000)})
    redis.hset(redis_keys.WORKERS_APPLIED, worker, serves)


async def status_of(call: Call, name: str) -> str | None:
    """Return an endpoint's status, None once it is gone."""
    try:
        return str((await call("DescribeEndpoint", EndpointName=name))["EndpointStatus"])
    except ValidationException:
        return None


async def wait_for(call: Call, name: str, status: str | None, limit_seconds: float = 15.0) -> dict[str, Any]:
    """Wait until the endpoint is ``status``; return what DescribeEndpoint says then. None: until it is gone."""

    async def reached() -> bool:
        return await status_of(call, name) == status

    await wait_until_async(reached, limit_seconds, f"endpoint {name} is {status}")
    return await call("DescribeEndpoint", EndpointName=name) if status else {}


async def errors_of(database: Database, *needed: str) -> None:
    """Wait until the probes of hosts have found these errors, as parts of them."""

    async def found() -> bool:
        async with database.transaction() as session:
            errors = (await session.execute(text("SELECT error FROM host_health WHERE error IS NOT NULL"))).scalars()
            told = " ".join(errors)
            return all(each in told for each in needed)

    await wait_until_async(found, 15, f"probes found {needed}")


async def end_of_patience(database: Database) -> None:
    """Make it as if the running deployments had begun an hour ago."""
    async with database.transaction() as session:
        await session.execute(text("UPDATE deployment SET started_at = started_at - interval '1 hour'"))


async def create_model(call: Call, name: str, *urls: str, **environment: str) -> None:
    await call(
        "CreateModel",
        ModelName=name,
        PrimaryContainer={"Environment": {"WARMROUTE_HOSTS": ",".join(urls), **environment} if urls else environment},
    )


async def create_config(call: Call, name: str, *variants: dict[str, Any]) -> None:
    """Variants without a ModelName are of model ``m``, without a VariantName they are ``v``."""
    full = [{"VariantName": "v", "ModelName": "m", **variant} for variant in variants or ({},)]
    await call("CreateEndpointConfig", EndpointConfigName=name, ProductionVariants=full)


async def in_service(call: Call, *variants: dict[str, Any], config: str = "c1", name: str = "e") -> dict[str, Any]:
    """Create an endpoint and its configuration; return what DescribeEndpoint says once it is InService."""
    await create_config(call, config, *variants)
    await call("CreateEndpoint", EndpointName=name, EndpointConfigName=config)
    return await wait_for(call, name, "InService")


def variant_of(found: dict[str, Any], name: str = "v") -> dict[str, Any]:
    """Return one variant of what DescribeEndpoint said."""
    return next(each for each in found["ProductionVariants"] if each["VariantName"] == name)


def counts(found: dict[str, Any], name: str = "v") -> tuple[float, float, int, int]:
    """Return current and desired weight, current and desired instance count of a variant."""
    each = variant_of(found, name)
    return (each["CurrentWeight"], each["DesiredWeight"], each["CurrentInstanceCount"], each["DesiredInstanceCount"])


def instances(table: RoutingTable | None, name: str = "e") -> dict[str, bool]:
    """URL -> healthy, of the endpoint's instances in the table; empty if it is not there."""
    found = [endpoint for endpoint in table.endpoints if endpoint.name == name] if table else []
    return {
        each.base_url: each.healthy for endpoint in found for variant in endpoint.variants for each in variant.instances
    }


def urls(hosts: list[ModelHost]) -> list[str]:
    return [host.url for host in hosts]


async def routes_are(redis: redis_library.Redis, wanted: dict[str, bool]) -> None:
    await wait_until_async(lambda: instances(table_in(redis)) == wanted, 15, f"routes are {wanted}")


async def bound(database: Database) -> int:
    async with database.transaction() as session:
        return len((await session.execute(select(Binding))).all())

"""Numbering and publishing: new only if different, never backwards, and written again when Redis lost it."""

import asyncio
import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest
import redis as redis_library
from sqlalchemy import text

from contract import redis_keys
from contract.routing_table import Strategy, encode
from controlplane.background.publish_routes import PublishRoutes, routing_table
from controlplane.endpoint_status import SERVING, Status
from controlplane.operations.context import Caller
from controlplane.store.fleet import BoundHostRows, EndpointRows, Fleet
from controlplane.store.notices import CHANNEL
from controlplane.store.session import Database
from controlplane.store.tables import Binding, Deployment, Endpoint, EndpointVariant, Host, HostHealth
from tests.controlplane.stage import (
    ACCOUNT,
    REGION,
    SEALING,
    Call,
    Replica,
    caller,
    create_config,
    create_model,
    table_in,
)
from tests.fakes.model_host import Hosts
from tests.waiting import wait_until

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def variant(stage: str = "ACTIVE", **values: Any) -> EndpointVariant:
    defaults: dict[str, Any] = {
        "endpoint_id": "id1",
        "stage": stage,
        "name": "v",
        "position": 0,
        "model_id": 1,
        "model_name": "m",
        "ping_path": "/ping",
        "instance_count": 1,
        "weight": 1.0,
        "routing_strategy": "RANDOM",
        "sent": {},
        "started_at": NOW,
    }
    return EndpointVariant(**{**defaults, **values})


def host(number: int, active: str | None = "v", pending: str | None = None, **healthy: bool) -> BoundHostRows:
    """``healthy``: by ping path without its slash."""
    return BoundHostRows(
        Host(id=number, identity=f"h{number}", base_url=f"http://h{number}", seen_at=NOW),
        Binding(host_id=number, endpoint_id="id1", active_variant=active, pending_variant=pending),
        {
            f"/{path}": HostHealth(host_id=number, path=f"/{path}", healthy=up, changed_at=NOW, next_probe_at=NOW)
            for path, up in healthy.items()
        },
    )


def rows(status: str = "InService", *hosts: BoundHostRows, **parts: Any) -> Fleet:
    endpoint = Endpoint(
        id="id1", name="E", status=status, config_name="c", sent_config={}, created_at=NOW, modified_at=NOW
    )
    defaults = {"deployment": None, "active": (variant(),), "pending": (), "hosts": hosts, "published": None}
    return Fleet((EndpointRows(endpoint=endpoint, **{**defaults, **parts}),))


def deployment(*, promoted: bool) -> Deployment:
    return Deployment(
        endpoint_id="id1", kind="UPDATE", config_name="c", sent_config={}, promoted=promoted, started_at=NOW
    )


def test_the_table_says_all_that_traffic_needs() -> None:
    prefix = variant(
        routing_strategy="PREFIX_AWARE", prefix_length=4096, concurrency_threshold=8, weight=0.25, ping_path="/health"
    )
    found = rows("InService", host(2, ping=True, health=False), host(1, health=True), active=(prefix,))
    table = routing_table(found, "epoch", 7, "1", "r")
    assert (table.epoch, table.generation, table.account_id, table.region) == ("epoch", 7, "1", "r")
    (endpoint,) = table.endpoints
    assert (endpoint.name, endpoint.id, endpoint.created) == ("E", "id1", int(NOW.timestamp()))
    (found_variant,) = endpoint.variants
    assert found_variant.strategy is Strategy.PREFIX_AWARE
    assert (found_variant.prefix_length, found_variant.concurrency_threshold) == (4096, 8)
    assert (found_variant.name, found_variant.weight, found_variant.ping_path) == ("v", 0.25, "/health")
    assert [(each.identity, each.number, each.base_url, each.healthy) for each in found_variant.instances] == [
        ("h1", 1, "http://h1", True),
        ("h2", 2, "http://h2", False),
    ]


@pytest.mark.parametrize("status", Status)
def test_only_what_may_be_invoked_is_in_the_table(status: Status) -> None:
    table = routing_table(rows(status, host(1)), "epoch", 1, "1", "r")
    assert bool(table.endpoints) == (status in SERVING)


def test_a_creation_joins_the_table_when_it_is_promoted() -> None:
    parts: dict[str, Any] = {"active": (), "pending": (variant("PENDING"),)}
    for promoted in (False, True):
        found = rows("Creating", host(1, None, "v"), deployment=deployment(promoted=promoted), **parts)
        assert bool(routing_table(found, "epoch", 1, "1", "r").endpoints) == promoted


def test_promotion_turns_all_at_once() -> None:
    pending = variant("PENDING", weight=5.0)
    hosts = (host(1, "v", None), host(2, "v", "v"), host(3, None, "v"))
    numbers, weights = [], []
    for promoted in (False, True):
        found = rows("Updating", *hosts, pending=(pending,), deployment=deployment(promoted=promoted))
        (each,) = routing_table(found, "epoch", 1, "1", "r").endpoints[0].variants
        numbers.append([instance.number for instance in each.instances])
        weights.append(each.weight)
    assert numbers == [[1, 2], [2, 3]]
    assert weights == [1.0, 5.0]


async def serving(call: Call, replica: Replica, name: str = "e") -> None:
    """An endpoint in service whose host nobody has to answer for."""
    await create_model(call, f"m-{name}", f"http://10.0.0.{len(name)}:1")
    await create_config(call, f"c-{name}", {"ModelName": f"m-{name}"})
    await call("CreateEndpoint", EndpointName=name, EndpointConfigName=f"c-{name}")
    await replica.turn()
    async with replica.database.transaction() as session:
        await session.execute(text("UPDATE host_health SET healthy = true"))
    await replica.turn()


async def test_a_number_is_new_only_if_the_table_is(call: Call, replica: Replica, redis: redis_library.Redis) -> None:
    await serving(call, replica)
    first = table_in(redis)
    assert first is not None
    for _ in range(3):
        await replica.publish.run()
    assert table_in(redis) == first
    await call("DeleteEndpoint", EndpointName="e")
    await replica.publish.run()
    second = table_in(redis)
    assert second is not None
    assert (second.epoch, second.generation, second.endpoints) == (first.epoch, first.generation + 1, ())


async def test_a_table_that_redis_lost_is_written_again(
    call: Call, replica: Replica, redis: redis_library.Redis
) -> None:
    await serving(call, replica)
    table = table_in(redis)
    with redis.pubsub() as channel:
        channel.subscribe(redis_keys.ROUTES_NOTICE)
        wait_until(lambda: channel.get_message(timeout=1))
        redis.flushdb()
        await replica.publish.run()
        notice = wait_until(lambda: channel.get_message(timeout=1))
    assert notice["data"] == b""
    assert table is not None
    assert table_in(redis) == table
    assert redis.hgetall(redis_keys.ROUTES)[b"generation"] == str(table.generation).encode()
    assert redis.hgetall(redis_keys.ROUTES)[b"epoch"] == table.epoch.encode()


async def test_nothing_is_published_when_redis_holds_it(
    call: Call, replica: Replica, redis: redis_library.Redis
) -> None:
    await serving(call, replica)
    with redis.pubsub() as channel:
        channel.subscribe(redis_keys.ROUTES_NOTICE)
        wait_until(lambda: channel.get_message(timeout=1))
        await replica.publish.run()
        assert channel.get_message(timeout=0.1) is None


async def test_a_late_publisher_does_not_turn_time_back(replica: Replica, redis: redis_library.Redis) -> None:
    await replica.link.publish("epoch", 5, b"five")
    assert not await replica.link.publish("epoch", 4, b"four")
    assert not await replica.link.publish("epoch", 5, b"another five")
    assert redis.hget(redis_keys.ROUTES, "table") == b"five"
    assert await replica.link.publish("epoch", 6, b"six")
    assert await replica.link.publish("another epoch", 1, b"one")
    assert redis.hget(redis_keys.ROUTES, "table") == b"one"


async def test_a_database_restored_from_a_backup_overtakes_what_workers_have(
    call: Call, replica: Replica, redis: redis_library.Redis
) -> None:
    await serving(call, replica)
    async with replica.database.transaction() as session:
        epoch = (await session.execute(text("SELECT epoch FROM publication"))).scalar_one()
    redis.hset(redis_keys.ROUTES, mapping={"epoch": epoch, "generation": "1000", "table": b"from the lost future"})
    await replica.publish.run()
    table = table_in(redis)
    assert table is not None
    assert table.generation == 1001
    assert [each.name for each in table.endpoints] == ["e"]


async def test_another_databases_table_is_replaced_and_told(
    call: Call, replica: Replica, redis: redis_library.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    redis.hset(redis_keys.ROUTES, mapping={"epoch": "theirs", "generation": "1000", "table": b"x"})
    await serving(call, replica)
    table = table_in(redis)
    assert table is not None
    assert table.generation < 1000
    told = [record.message for record in caplog.records if "another database" in record.message]
    assert len(told) == 1


async def test_publishers_at_once_number_every_change_once(
    call: Call, database: Database, redis: redis_library.Redis, redis_url: str, replica: Replica
) -> None:
    await serving(call, replica)
    replicas = [replica, *(Replica(database, redis_url, replica.limits) for _ in range(3))]
    start = table_in(redis)
    assert start is not None
    seen = set()
    for number in range(1, 9):
        async with database.transaction() as session:
            await session.execute(text("UPDATE endpoint_variant SET weight = :weight"), {"weight": float(number)})
        await asyncio.gather(*(each.publish.run() for each in replicas))
        table = table_in(redis)
        assert table is not None
        assert table.endpoints[0].variants[0].weight == float(number)
        seen.add(table.generation)
    assert seen == set(range(start.generation + 1, start.generation + 8)) | {start.generation}
    for each in replicas[1:]:
        await each.close()


async def test_revisions_are_noted_with_the_generation_that_holds_them(
    call: Call, replica: Replica, database: Database
) -> None:
    await serving(call, replica)
    async with database.transaction() as session:
        query = text(
            "SELECT e.revision, p.revision, p.generation, (SELECT generation FROM publication)"
            " FROM endpoint e JOIN published_endpoint p ON p.endpoint_id = e.id"
        )
        ((revision, published, generation, latest),) = (await session.execute(query)).all()
    assert revision == published >= 1
    assert generation == latest
    await call("DeleteEndpoint", EndpointName="e")
    await replica.turn()
    await replica.turn()
    async with database.transaction() as session:
        assert (await session.execute(text("SELECT count(*) FROM published_endpoint"))).scalar_one() == 0


# --- who may call -----------------------------------------------------------------------------------------------------


async def test_the_table_tells_whose_an_endpoint_is_and_how_its_hosts_know_us(
    database: Database, redis: redis_library.Redis, replica: Replica, hosts: Hosts
) -> None:
    call = caller(database, Caller("k", "search"))
    host = hosts.one()
    await create_model(call, "m", host.url, WARMROUTE_HOST_AUTHORIZATION="Bearer canary")
    await create_config(call, "c")
    await call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    await replica.settle.run()
    await replica.probe()
    await replica.turn()
    table = table_in(redis)
    assert table is not None
    (endpoint,) = table.endpoints
    assert endpoint.tenant == "search"
    assert SEALING.open(endpoint.variants[0].host_authorization) == "Bearer canary"
    assert table.principals == ()
    assert b"canary" not in encode(table)
    assert {ping.header("authorization") for ping in host.pings} == {b"Bearer canary"}


async def test_with_auth_the_table_holds_the_keys_that_are_good(
    database: Database, redis: redis_library.Redis, replica: Replica, call: Call
) -> None:
    publish = PublishRoutes(database, replica.link, ACCOUNT, REGION, with_principals=True)
    one = await call(
        "CreateAccessKey", Role="invoke", Tenant="t", Endpoints=["a-*"], RequestsPerSecond=2, ConcurrentRequests=3
    )
    two = await call("CreateAccessKey", Role="reader", Kind="api-key")
    await publish.run()
    table = table_in(redis)
    assert table is not None
    first, second = table.principals
    assert (first.id, second.id) == (one["AccessKeyId"], two["AccessKeyId"])
    assert (first.role, first.tenant, first.endpoints) == ("invoke", "t", ("a-*",))
    assert (first.requests_per_second, first.concurrent_requests) == (2, 3)
    assert SEALING.open(first.secret) == one["SecretAccessKey"]
    assert second.secret == hashlib.sha256(two["ApiKey"].encode()).digest()
    generation = table.generation
    await call("UpdateAccessKey", AccessKeyId=one["AccessKeyId"], Enabled=False)
    await call("RotateAccessKey", AccessKeyId=two["AccessKeyId"], GraceSeconds=0)
    await publish.run()
    table = table_in(redis)
    assert table is not None
    assert table.generation == generation + 1
    (left,) = table.principals
    assert left.id not in (one["AccessKeyId"], two["AccessKeyId"]), "the successor alone"


async def test_a_key_that_changes_wakes_the_publisher_at_once(database: Database, call: Call) -> None:
    heard = asyncio.Event()
    connection = await database.listen()
    await connection.add_listener(CHANNEL, lambda *_: heard.set())
    made = await call("CreateAccessKey", Role="reader")
    for operation, members in (("UpdateAccessKey", {"Enabled": False}), ("DeleteAccessKey", {})):
        await asyncio.wait_for(heard.wait(), 5)
        heard.clear()
        await call(operation, AccessKeyId=made["AccessKeyId"], **members)
    await asyncio.wait_for(heard.wait(), 5)
    await connection.close()

"""The life of endpoints on real rows, real hosts and a real Redis: failures, roll-backs, replacements, outages."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis as redis_library
from sqlalchemy import text

from controlplane.background.driver import Driver
from controlplane.background.settle_endpoints import SettleEndpoints
from controlplane.snapshot import Limits
from controlplane.store.session import Database
from tests.controlplane.stage import (
    Call,
    Replica,
    bound,
    counts,
    create_config,
    create_model,
    end_of_patience,
    errors_of,
    in_service,
    instances,
    report,
    routes_are,
    status_of,
    table_in,
    urls,
    wait_for,
)
from tests.fakes.answers import Answer
from tests.fakes.model_host import Hosts
from tests.fleet.cluster import cluster_of_one
from tests.waiting import wait_until_async

SICK = Answer(status=503)


async def test_hosts_that_never_answer_fail_the_creation_and_are_free_again(
    call: Call, hosts: Hosts, plane: Driver, database: Database, redis: redis_library.Redis
) -> None:
    dead, sick = hosts.make(2)
    dead.refuse()
    sick.ping = SICK
    await create_model(call, "m", dead.url, sick.url)
    await create_config(call, "c1", {"InitialInstanceCount": 2})
    await call("CreateEndpoint", EndpointName="e", EndpointConfigName="c1")
    await errors_of(database, "no connection", "answered 503")
    await end_of_patience(database)
    found = await wait_for(call, "e", "Failed")
    reason = found["FailureReason"]
    assert reason.startswith("The primary container for production variant v did not pass the ping health check.")
    assert f"{dead.url}: no connection (Connect" in reason
    assert f"{sick.url}: answered 503" in reason
    assert "PendingDeploymentSummary" not in found
    assert await bound(database) == 0
    assert instances(table_in(redis)) == {}
    await call("DeleteEndpoint", EndpointName="e")
    await wait_for(call, "e", None)


async def test_no_host_is_in_the_routes_before_its_first_good_probe(
    call: Call, hosts: Hosts, plane: Driver, redis: redis_library.Redis
) -> None:
    ready, loading = hosts.make(2)
    loading.ping = SICK
    await create_model(call, "m", ready.url, loading.url)
    await create_config(call, "c1", {"InitialInstanceCount": 2})
    await call("CreateEndpoint", EndpointName="e", EndpointConfigName="c1")
    await wait_until_async(lambda: len(loading.pings) >= 3)
    assert instances(table_in(redis)) == {}
    found = await call("DescribeEndpoint", EndpointName="e")
    assert found["PendingDeploymentSummary"]["ProductionVariants"][0]["CurrentInstanceCount"] == 1
    loading.ping = Answer()
    await wait_for(call, "e", "InService")
    assert instances(table_in(redis)) == {ready.url: True, loading.url: True}


async def test_a_healthy_spare_takes_the_place_of_a_dead_host_while_creating(
    call: Call, hosts: Hosts, plane: Driver, redis: redis_library.Redis, database: Database
) -> None:
    dead, *good = hosts.make(3)
    dead.refuse()
    await create_model(call, "m", dead.url, *urls(good))
    await in_service(call, {"InitialInstanceCount": 2})
    assert instances(table_in(redis)) == dict.fromkeys(urls(good), True)
    assert await bound(database) == 2


async def test_a_failed_update_returns_to_the_old_configuration_which_served_throughout(
    call: Call, hosts: Hosts, plane: Driver, redis: redis_library.Redis, database: Database
) -> None:
    old, new = hosts.make(2)
    await create_model(call, "m", old.url)
    await create_model(call, "m2", new.url)
    await in_service(call)
    table = table_in(redis)
    new.refuse()
    await create_config(call, "c2", {"ModelName": "m2"})
    await call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
    await errors_of(database, "no connection")
    assert await status_of(call, "e") == "Updating"
    await end_of_patience(database)
    found = await wait_for(call, "e", "InService")
    assert found["EndpointConfigName"] == "c1"
    assert found["FailureReason"].startswith("The primary container for production variant v did not pass")
    assert new.url in found["FailureReason"]
    assert counts(found) == (1.0, 1.0, 1, 1)
    assert table_in(redis) == table
    assert await bound(database) == 1
    new.start()
    await call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
    found = await wait_for(call, "e", "InService")
    assert found["EndpointConfigName"] == "c2"
    assert "FailureReason" not in found
    assert instances(table_in(redis)) == {new.url: True}


async def test_traffic_stays_on_the_old_host_until_the_new_one_is_healthy(
    call: Call, hosts: Hosts, plane: Driver, redis: redis_library.Redis
) -> None:
    old, new = hosts.make(2)
    new.ping = SICK
    await create_model(call, "m", old.url)
    await create_model(call, "m2", new.url)
    await in_service(call)
    await create_config(call, "c2", {"ModelName": "m2"})
    await call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
    await wait_until_async(lambda: len(new.pings) >= 3)
    assert instances(table_in(redis)) == {old.url: True}
    new.ping = Answer()
    await wait_for(call, "e", "InService")
    assert instances(table_in(redis)) == {new.url: True}


async def test_old_hosts_are_kept_until_every_live_worker_follows(
    call: Call, hosts: Hosts, plane: Driver, redis: redis_library.Redis, database: Database
) -> None:
    old, new = hosts.make(2)
    await create_model(call, "m", old.url)
    await create_model(call, "m2", new.url)
    await in_service(call)
    first = table_in(redis)
    assert first is not None
    report(redis, "follows", f"{first.epoch}:{first.generation}")
    report(redis, "lags", f"{first.epoch}:{first.generation}")
    await create_config(call, "c2", {"ModelName": "m2"})
    await call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
    await routes_are(redis, {new.url: True})
    second = table_in(redis)
    assert second is not None
    report(redis, "follows", f"{second.epoch}:{second.generation}")
    runs = plane.states["settle_endpoints"].runs
    await wait_until_async(lambda: plane.states["settle_endpoints"].runs > runs + 2)
    assert await status_of(call, "e") == "Updating"
    assert await bound(database) == 2
    # It dies without a word: only its lease tells.
    report(redis, "lags", f"{first.epoch}:{first.generation}", lease_seconds=0)
    await wait_for(call, "e", "InService")
    assert await bound(database) == 1
    assert redis.hgetall("warmroute:{routes}:applied").keys() == {b"follows"}


async def test_a_creation_waits_for_workers_that_serve_other_routes(
    call: Call, hosts: Hosts, plane: Driver, redis: redis_library.Redis
) -> None:
    await create_model(call, "m", hosts.one().url)
    report(redis, "w", "another-database:99")
    await create_config(call, "c1")
    await call("CreateEndpoint", EndpointName="e", EndpointConfigName="c1")
    await wait_until_async(lambda: len(instances(table_in(redis))) == 1)
    assert await status_of(call, "e") == "Creating"
    table = table_in(redis)
    assert table is not None
    report(redis, "w", f"{table.epoch}:{table.generation}")
    await wait_for(call, "e", "InService")


async def test_a_deleted_endpoint_is_out_of_the_routes_at_once_and_gone_when_workers_follow(
    call: Call, hosts: Hosts, plane: Driver, redis: redis_library.Redis, database: Database
) -> None:
    await create_model(call, "m", hosts.one().url)
    await in_service(call)
    table = table_in(redis)
    assert table is not None
    report(redis, "w", f"{table.epoch}:{table.generation}")
    await call("DeleteEndpoint", EndpointName="e")
    await routes_are(redis, {})
    assert await status_of(call, "e") == "Deleting"
    assert await bound(database) == 1
    table = table_in(redis)
    assert table is not None
    report(redis, "w", f"{table.epoch}:{table.generation}")
    await wait_for(call, "e", None)
    assert await bound(database) == 0


async def test_a_host_that_dies_is_flagged_and_comes_back_by_itself(
    call: Call, hosts: Hosts, plane: Driver, redis: redis_library.Redis
) -> None:
    first, second = hosts.make(2)
    await create_model(call, "m", first.url, second.url)
    await in_service(call, {"InitialInstanceCount": 2})
    second.ping = SICK
    await routes_are(redis, {first.url: True, second.url: False})
    found = await call("DescribeEndpoint", EndpointName="e")
    assert found["EndpointStatus"] == "InService"
    assert counts(found)[2:] == (1, 2)
    first.ping = SICK
    await routes_are(redis, {first.url: False, second.url: False})
    assert counts(await call("DescribeEndpoint", EndpointName="e"))[2:] == (0, 2)
    first.ping = second.ping = Answer()
    await routes_are(redis, {first.url: True, second.url: True})


async def test_a_dead_host_is_replaced_by_a_spare_which_is_probed_first(
    call: Call, hosts: Hosts, plane: Driver, redis: redis_library.Redis, database: Database
) -> None:
    serving, spare = hosts.make(2)
    spare.ping = SICK
    await create_model(call, "m", serving.url, spare.url)
    await in_service(call)
    assert not spare.pings
    serving.ping = SICK
    await wait_until_async(lambda: len(spare.pings) >= 2)
    assert instances(table_in(redis)) == {serving.url: False}
    spare.ping = Answer()
    await routes_are(redis, {spare.url: True})

    async def only_one() -> bool:
        return await bound(database) == 1

    await wait_until_async(only_one)


async def test_an_update_probes_a_spare_that_was_claimed_before_it_on_the_path_of_its_own_model(
    call: Call, hosts: Hosts, plane: Driver, redis: redis_library.Redis
) -> None:
    serving, spare = hosts.make(2)
    spare.ping = SICK
    await create_model(call, "m", serving.url, spare.url)
    await create_model(call, "m2", spare.url, WARMROUTE_PING_PATH="/health")
    await in_service(call)
    serving.ping = SICK
    await wait_until_async(lambda: len(spare.pings) >= 2)
    await create_config(call, "c2", {"ModelName": "m2"})
    await call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
    assert (await wait_for(call, "e", "InService"))["EndpointConfigName"] == "c2"
    assert instances(table_in(redis)) == {spare.url: True}


async def test_a_strategy_is_switched_although_one_host_is_dead(
    call: Call, hosts: Hosts, plane: Driver, redis: redis_library.Redis
) -> None:
    first, second = hosts.make(2)
    await create_model(call, "m", first.url, second.url)
    await in_service(call, {"InitialInstanceCount": 2})
    second.ping = SICK
    await routes_are(redis, {first.url: True, second.url: False})
    routing = {"RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"}}
    await create_config(call, "c2", {"InitialInstanceCount": 2, **routing})
    await call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
    assert (await wait_for(call, "e", "InService"))["EndpointConfigName"] == "c2"
    assert instances(table_in(redis)) == {first.url: True, second.url: False}


async def test_traffic_is_led_away_from_a_variant_whose_hosts_are_dead(
    call: Call, hosts: Hosts, plane: Driver, redis: redis_library.Redis
) -> None:
    dead, alive = hosts.make(2)
    await create_model(call, "m", dead.url)
    await create_model(call, "m2", alive.url)
    await in_service(call, {}, {"VariantName": "w", "ModelName": "m2"})
    dead.ping = SICK
    await routes_are(redis, {dead.url: False, alive.url: True})
    desired = [{"VariantName": "v", "DesiredWeight": 0.0}]
    await call("UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=desired)
    assert counts(await wait_for(call, "e", "InService")) == (0.0, 0.0, 0, 1)


@pytest.mark.parametrize("kind", ["server", "cluster"])
async def test_while_redis_is_away_nothing_is_lost_and_its_return_ends_the_wait(
    call: Call, hosts: Hosts, database: Database, limits: Limits, private_redis: Callable[..., Any], kind: str
) -> None:
    server = private_redis() if kind == "server" else cluster_of_one(private_redis)
    replica = Replica(database, server.url, limits)
    driver = Driver([replica.settle, replica.prober, replica.publish], database.listen)
    running = asyncio.create_task(driver.run())
    try:
        await create_model(call, "m", hosts.one().url)
        await in_service(call)
        server.kill()
        await create_config(call, "c2", {"RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"}})
        await call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
        await wait_until_async(lambda: driver.states["publish_routes"].failing_for is not None)
        assert driver.states["publish_routes"].is_outage
        assert await status_of(call, "e") == "Updating"
        assert driver.states["settle_endpoints"].failing_for is None
        server.start()
        assert (await wait_for(call, "e", "InService"))["EndpointConfigName"] == "c2"
    finally:
        driver.stop()
        await asyncio.wait_for(running, 10)
        await replica.close()


async def test_an_endpoint_whose_rows_make_no_sense_does_not_hold_up_the_others(
    call: Call, database: Database, replica: Replica
) -> None:
    # Nobody answers at these addresses: once it has been out for so long, a host is replaced by another.
    replica.settle = SettleEndpoints(database, replica.link, Limits(provision_seconds=60, eject_seconds=60))
    await create_model(call, "m", "http://10.0.0.1:1", "http://10.0.0.2:1")
    await create_config(call, "c")
    for name in ("broken", "whole"):
        await call("CreateEndpoint", EndpointName=name, EndpointConfigName="c")
    async with database.transaction() as session:
        for table in ("deployment", "endpoint_variant"):
            gone = f"DELETE FROM {table} t USING endpoint e WHERE e.id = t.endpoint_id AND e.name = 'broken'"
            await session.execute(text(gone))
    with pytest.raises(AssertionError) as caught:
        await replica.settle.run()
    assert caught.value.__notes__ == ["while settling endpoint broken"]
    async with database.transaction() as session:
        query = text("SELECT name FROM binding JOIN endpoint ON endpoint.id = endpoint_id")
        assert (await session.execute(query)).scalars().all() == ["whole"]

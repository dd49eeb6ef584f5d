"""Pools under endpoints: hosts that come, go and move, models that are deleted, endpoints that want the same host."""

from typing import Any

import redis as redis_library
from sqlalchemy import select, text

from controlplane.background.driver import Driver
from controlplane.store.session import Database
from controlplane.store.tables import HostHealth
from tests.controlplane.stage import (
    Call,
    Replica,
    counts,
    create_config,
    create_model,
    in_service,
    instances,
    routes_are,
    table_in,
    urls,
    wait_for,
)
from tests.fakes.model_host import Hosts, ModelHost
from tests.waiting import wait_until_async


async def test_registered_hosts_come_and_go(
    call: Call, hosts: Hosts, plane: Driver, redis: redis_library.Redis
) -> None:
    first, second, third = hosts.make(3)
    await create_model(call, "m")

    async def register(host: ModelHost, **members: Any) -> None:
        await call("RegisterModelHost", ModelName="m", BaseUrl=host.url, HostName=host.name, **members)

    await register(first)
    await create_config(call, "c1", {"InitialInstanceCount": 2})
    await call("CreateEndpoint", EndpointName="e", EndpointConfigName="c1")
    await register(second)
    await wait_for(call, "e", "InService")
    (found,) = [host for host in (await call("ListModelHosts", ModelName="m"))["Hosts"] if host["HostName"] == "h1"]
    assert (found["EndpointName"], found["VariantName"], found["Healthy"]) == ("e", "v", True)
    await call("DeregisterModelHost", ModelName="m", HostName="h1")
    await routes_are(redis, {second.url: True})
    assert counts(await call("DescribeEndpoint", EndpointName="e"))[2:] == (1, 2)
    await register(third, TtlSeconds=2)
    await routes_are(redis, {second.url: True, third.url: True})
    # It is not registered again within its time to live.
    await routes_are(redis, {second.url: True})


async def test_a_host_that_moves_is_probed_at_its_new_url(
    call: Call, hosts: Hosts, plane: Driver, redis: redis_library.Redis
) -> None:
    before, after = hosts.make(2)
    await create_model(call, "m")
    await call("RegisterModelHost", ModelName="m", BaseUrl=before.url, HostName="pod")
    await in_service(call)
    table = table_in(redis)
    await call("RegisterModelHost", ModelName="m", BaseUrl=after.url, HostName="pod")
    await routes_are(redis, {after.url: True})
    moved = table_in(redis)
    assert table is not None
    assert moved is not None
    ids = [each.endpoints[0].variants[0].instances[0].number for each in (table, moved)]
    assert ids[0] == ids[1]
    assert after.pings


async def test_an_endpoint_outlives_its_model_and_another_model_of_that_name_is_not_its_own(
    call: Call, hosts: Hosts, plane: Driver, redis: redis_library.Redis
) -> None:
    first, second = hosts.make(2)
    await create_model(call, "m", first.url)
    await in_service(call)
    await call("DeleteEndpointConfig", EndpointConfigName="c1")
    await call("DeleteModel", ModelName="m")
    await create_model(call, "m", second.url)
    runs = plane.states["settle_endpoints"].runs
    await wait_until_async(lambda: plane.states["settle_endpoints"].runs > runs + 2)
    assert instances(table_in(redis)) == {first.url: True}
    found = await call("DescribeEndpoint", EndpointName="e")
    assert (found["EndpointStatus"], found["EndpointConfigName"]) == ("InService", "c1")
    desired = [{"VariantName": "v", "DesiredWeight": 3.0}]
    await call("UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=desired)
    assert counts(await wait_for(call, "e", "InService")) == (3.0, 3.0, 1, 1)


async def test_a_host_serves_one_endpoint_at_a_time(
    call: Call, hosts: Hosts, plane: Driver, redis: redis_library.Redis
) -> None:
    only = hosts.one()
    await create_model(call, "m", only.url)
    await create_model(call, "m2", only.url)
    await in_service(call)
    await create_config(call, "c2", {"ModelName": "m2"})
    await call("CreateEndpoint", EndpointName="e2", EndpointConfigName="c2")

    async def told() -> bool:
        found = await call("DescribeEndpoint", EndpointName="e2")
        status = found["PendingDeploymentSummary"]["ProductionVariants"][0]["VariantStatus"][0]
        return f'{only.url} is in use by endpoint "e"' in status["StatusMessage"]

    await wait_until_async(told)
    assert instances(table_in(redis)) == {only.url: True}
    await call("DeleteEndpoint", EndpointName="e")
    await wait_for(call, "e2", "InService")
    assert instances(table_in(redis), "e2") == {only.url: True}


async def test_probes_of_replaced_hosts_stop(
    call: Call, hosts: Hosts, plane: Driver, redis: redis_library.Redis, database: Database
) -> None:
    sets = [hosts.make(2), hosts.make(2)]
    for number, members in enumerate(sets):
        await create_model(call, f"m{number}", *urls(members))
        await create_config(call, f"c{number}", {"ModelName": f"m{number}", "InitialInstanceCount": 2})
    await call("CreateEndpoint", EndpointName="e", EndpointConfigName="c0")
    await wait_for(call, "e", "InService")
    for number in range(1, 6):
        await call("UpdateEndpoint", EndpointName="e", EndpointConfigName=f"c{number % 2}")
        await wait_for(call, "e", "InService")
    await wait_until_async(lambda: instances(table_in(redis)) == dict.fromkeys(urls(sets[1]), True))
    async with database.transaction() as session:
        assert len((await session.execute(select(HostHealth))).all()) == 2
    for host in hosts.made:
        host.clear()
    await wait_until_async(lambda: all(len(host.pings) >= 3 for host in sets[1]))
    # One that was under way when its host was replaced may have arrived.
    assert all(len(host.pings) <= 1 for host in sets[0])


async def test_registrations_do_not_run_out_while_no_control_plane_could_renew_them(
    call: Call, database: Database, replica: Replica
) -> None:
    await create_model(call, "m")
    await call("RegisterModelHost", ModelName="m", BaseUrl="http://10.0.0.1:1", TtlSeconds=60)
    await replica.turn()

    async def away(seconds: int) -> None:
        async with database.transaction() as session:
            await session.execute(text(f"UPDATE heartbeat SET beat_at = beat_at - interval '{seconds} seconds'"))
            await session.execute(text(f"UPDATE model_host SET expires_at = expires_at - interval '{seconds} seconds'"))

    await away(3600)
    await replica.turn()
    assert len((await call("ListModelHosts", ModelName="m"))["Hosts"]) == 1
    async with database.transaction() as session:
        await session.execute(text("UPDATE model_host SET expires_at = now() - interval '1 second'"))
        await session.execute(text("UPDATE heartbeat SET beat_at = beat_at - interval '2 seconds'"))
    await replica.turn()
    async with database.transaction() as session:
        assert (await session.execute(text("SELECT count(*) FROM model_host"))).scalar_one() == 0

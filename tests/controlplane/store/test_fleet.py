"""The fleet read whole, or one endpoint of it."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import text

from controlplane.store import fleet
from controlplane.store.session import Database
from tests.controlplane.stage import Call, create_config, create_model


async def prepare(call: Call, database: Database) -> dict[str, str]:
    """Endpoints a and b, each with a host of the model's three; return their ids."""
    await create_model(call, "m", *(f"http://10.0.0.{number}:1" for number in (3, 1, 2)))
    await create_config(call, "c", {"VariantName": "second"}, {"VariantName": "first"})
    for name in ("b", "a"):
        await call("CreateEndpoint", EndpointName=name, EndpointConfigName="c")
    async with database.transaction() as session:
        ids = {name: id_ for id_, name in (await session.execute(text("SELECT id, name FROM endpoint"))).all()}
        for name, url in (("a", "http://10.0.0.3:1"), ("b", "http://10.0.0.1:1")):
            await session.execute(
                text(
                    "INSERT INTO binding (host_id, endpoint_id, pending_variant)"
                    " SELECT id, :endpoint, 'first' FROM host WHERE identity = :url"
                ),
                {"endpoint": ids[name], "url": url},
            )
    return ids


async def test_everything_is_with_its_endpoint_and_in_order(call: Call, database: Database) -> None:
    ids = await prepare(call, database)
    async with database.transaction() as session:
        found = await fleet.load(session, pools_at=datetime.now(UTC))
    assert [rows.endpoint.name for rows in found.endpoints] == ["a", "b"]
    for rows in found.endpoints:
        assert rows.deployment is not None
        assert rows.deployment.kind == "CREATE"
        assert rows.active == ()
        # In the order of the configuration, not of the names.
        assert [variant.name for variant in rows.pending] == ["second", "first"]
    assert [[bound.host.identity for bound in rows.hosts] for rows in found.endpoints] == [
        ["http://10.0.0.3:1"],
        ["http://10.0.0.1:1"],
    ]
    (pool,) = found.pools.values()
    # In the order of WARMROUTE_HOSTS, which is that of preference.
    assert [(member.identity[-3], member.endpoint_name, member.endpoint_id) for member in pool] == [
        ("3", "a", ids["a"]),
        ("1", "b", ids["b"]),
        ("2", None, None),
    ]


async def test_one_endpoint_alone(call: Call, database: Database) -> None:
    ids = await prepare(call, database)
    async with database.transaction() as session:
        found = await fleet.load(session, ids["b"], pools_at=datetime.now(UTC))
        nothing = await fleet.load(session, "gone")
    ((rows,), (pool,)) = found.endpoints, found.pools.values()
    assert rows.endpoint.id == ids["b"]
    assert [bound.host.identity for bound in rows.hosts] == ["http://10.0.0.1:1"]
    assert len(pool) == 3
    assert nothing == fleet.Fleet((), {})


async def test_an_empty_pool_and_a_deleted_model_are_two_things(call: Call, database: Database) -> None:
    await create_model(call, "empty")
    await create_model(call, "gone")
    await create_config(call, "c", {"ModelName": "empty"}, {"VariantName": "w", "ModelName": "gone"})
    await call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    await call("DeleteModel", ModelName="gone")
    async with database.transaction() as session:
        found = await fleet.load(session, pools_at=datetime.now(UTC))
    assert list(found.pools.values()) == [()]


async def test_pools_are_those_of_the_moment(call: Call, database: Database) -> None:
    await create_model(call, "m")
    await call("RegisterModelHost", ModelName="m", BaseUrl="http://10.0.0.1:1", TtlSeconds=5)
    await create_config(call, "c")
    await call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    now = datetime.now(UTC)
    sizes = []
    for moment in (now, now + timedelta(seconds=6)):
        async with database.transaction() as session:
            (pool,) = (await fleet.load(session, pools_at=moment)).pools.values()
            sizes.append(len(pool))
    assert sizes == [1, 0]

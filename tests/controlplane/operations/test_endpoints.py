"""Endpoints as callers see them, with the reconcilers at work on real hosts."""

import asyncio
from typing import Any

import pytest
import redis as redis_library
from sqlalchemy import text

from controlplane.background.driver import Driver
from controlplane.errors import ValidationException
from controlplane.store.session import Database
from tests.controlplane.stage import (
    Call,
    caller,
    counts,
    create_config,
    create_model,
    in_service,
    status_of,
    table_in,
    variant_of,
    wait_for,
)
from tests.fakes.model_host import Hosts

ARN = "arn:aws:sagemaker:us-east-1:123456789012:endpoint/e"
PREFIX = {
    "RoutingStrategy": "PREFIX_AWARE",
    "PrefixAwareRoutingConfig": {"PrefixLength": 4096, "ConcurrencyThreshold": 8},
}


async def test_in_service_all_is_as_asked_for(
    call: Call, model: None, plane: Driver, redis: redis_library.Redis
) -> None:
    found = await in_service(call, {"InitialInstanceCount": 3, "InitialVariantWeight": 0.8, "RoutingConfig": PREFIX})
    assert "PendingDeploymentSummary" not in found
    assert "FailureReason" not in found
    assert found["EndpointConfigName"] == "c1"
    assert counts(found) == (0.8, 0.8, 3, 3)
    assert variant_of(found)["RoutingConfig"] == PREFIX
    table = table_in(redis)
    assert table is not None
    (endpoint,) = table.endpoints
    (variant,) = endpoint.variants
    assert (endpoint.name, variant.strategy, variant.prefix_length, variant.concurrency_threshold, variant.weight) == (
        "e",
        "PREFIX_AWARE",
        4096,
        8,
        0.8,
    )
    assert len(variant.instances) == 3
    assert all(instance.healthy for instance in variant.instances)


@pytest.mark.parametrize(
    ("operation", "members"),
    [
        ("DescribeEndpoint", {}),
        ("DeleteEndpoint", {}),
        ("UpdateEndpoint", {"EndpointConfigName": "c1"}),
        ("UpdateEndpointWeightsAndCapacities", {"DesiredWeightsAndCapacities": [{"VariantName": "v"}]}),
    ],
)
async def test_an_unknown_endpoint_is_named_by_its_arn(call: Call, operation: str, members: dict[str, Any]) -> None:
    with pytest.raises(ValidationException) as caught:
        await call(operation, EndpointName="e", **members)
    assert caught.value.message == f'Could not find endpoint "{ARN}".'


async def test_a_missing_configuration_or_model_leaves_no_endpoint(call: Call) -> None:
    with pytest.raises(ValidationException, match='Could not find endpoint configuration "arn:aws:'):
        await call("CreateEndpoint", EndpointName="e", EndpointConfigName="ghost")
    await create_model(call, "m")
    await create_config(call, "c1")
    await call("DeleteModel", ModelName="m")
    with pytest.raises(ValidationException, match='Could not find model "arn:aws:'):
        await call("CreateEndpoint", EndpointName="e", EndpointConfigName="c1")
    assert (await call("ListEndpoints"))["Endpoints"] == []


async def test_a_second_create_in_any_case_is_refused_and_changes_nothing(call: Call, model: None) -> None:
    await create_config(call, "c1")
    await call("CreateEndpoint", EndpointName="e", EndpointConfigName="c1")
    before = await call("DescribeEndpoint", EndpointName="e")
    with pytest.raises(ValidationException, match=f'Cannot create already existing endpoint "{ARN}"'):
        await call("CreateEndpoint", EndpointName="E", EndpointConfigName="c1")
    assert await call("DescribeEndpoint", EndpointName="e") == before


@pytest.mark.parametrize("status", ["Creating", "Updating", "RollingBack", "Deleting", "SystemUpdating", "Failed"])
async def test_what_a_busy_or_failed_endpoint_refuses(call: Call, model: None, database: Database, status: str) -> None:
    await create_config(call, "c1")
    await call("CreateEndpoint", EndpointName="e", EndpointConfigName="c1")
    async with database.transaction() as session:
        await session.execute(text("UPDATE endpoint SET status = :status"), {"status": status})
    refusals = []
    for operation, members in (
        ("UpdateEndpoint", {"EndpointConfigName": "c1"}),
        ("UpdateEndpointWeightsAndCapacities", {"DesiredWeightsAndCapacities": [{"VariantName": "v"}]}),
        ("DeleteEndpoint", {}),
    ):
        try:
            await call(operation, EndpointName="e", **members)
        except ValidationException as error:
            refusals.append(error.message)
    if status == "Failed":
        assert len(refusals) == 2
        assert await status_of(call, "e") == "Deleting"
        assert all(message.startswith(f'Cannot update failed endpoint "{ARN}"') for message in refusals)
    else:
        assert refusals == [f'Cannot update in-progress endpoint "{ARN}".'] * 3
        assert await status_of(call, "e") == status


async def test_an_update_to_the_configuration_in_force_changes_no_route(
    call: Call, model: None, plane: Driver, redis: redis_library.Redis
) -> None:
    before = await in_service(call, {"InitialInstanceCount": 3})
    table = table_in(redis)
    await call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c1")
    after = await wait_for(call, "e", "InService")
    assert table_in(redis) == table
    assert before.pop("LastModifiedTime") < after.pop("LastModifiedTime")
    assert before == after


async def test_live_weights_and_counts_are_retained_as_asked(call: Call, model: None, plane: Driver) -> None:
    await in_service(call, {"InitialInstanceCount": 1})
    desired = [{"VariantName": "v", "DesiredInstanceCount": 3, "DesiredWeight": 4.0}]
    await call("UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=desired)
    assert counts(await wait_for(call, "e", "InService")) == (4.0, 4.0, 3, 3)
    await create_config(call, "c2", {"InitialInstanceCount": 1}, {"VariantName": "new", "InitialVariantWeight": 2.0})

    async def update(**members: Any) -> dict[str, Any]:
        await call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", **members)
        return await wait_for(call, "e", "InService")

    found = await update(RetainAllVariantProperties=True)
    assert counts(found) == (4.0, 4.0, 3, 3)
    # A variant that is new has nothing to retain.
    assert counts(found, "new") == (2.0, 2.0, 1, 1)
    excluded = [{"VariantPropertyType": "DesiredWeight"}]
    found = await update(RetainAllVariantProperties=True, ExcludeRetainedVariantProperties=excluded)
    assert counts(found) == (1.0, 1.0, 3, 3)
    assert counts(await update()) == (1.0, 1.0, 1, 1)


async def test_retained_weights_of_zero_stay_and_excluded_ones_do_not(call: Call, model: None, plane: Driver) -> None:
    both = ({"VariantName": "a", "InitialVariantWeight": 1.0}, {"VariantName": "b", "InitialVariantWeight": 3.0})
    await in_service(call, *both)
    desired = [{"VariantName": "a", "DesiredWeight": 0.0}, {"VariantName": "b", "DesiredWeight": 1.0}]
    await call("UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=desired)
    await wait_for(call, "e", "InService")
    await create_config(call, "c2", {"VariantName": "a"}, {"VariantName": "b"})
    await call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", RetainAllVariantProperties=True)
    found = await wait_for(call, "e", "InService")
    assert (counts(found, "a")[0], counts(found, "b")[0]) == (0.0, 1.0)
    await create_config(call, "c3", {"VariantName": "a"})
    with pytest.raises(ValidationException, match=r"'retainAllVariantProperties'.*greater than 0"):
        await call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c3", RetainAllVariantProperties=True)
    assert await status_of(call, "e") == "InService"


async def test_weights_and_counts_change_for_all_of_a_list_or_for_none(call: Call, model: None, plane: Driver) -> None:
    before = await in_service(call, {"VariantName": "v1"}, {"VariantName": "v2"})

    async def refused(*names: str, **members: Any) -> str:
        desired = [{"VariantName": name, "DesiredWeight": 5.0, **members} for name in names]
        with pytest.raises(ValidationException) as caught:
            await call("UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=desired)
        return caught.value.message

    assert await refused("v1", "ghost", "v2") == (
        'The variant name(s) "ghost" is/are not present within endpoint configuration "c1".'
    )
    assert await refused("v1", "v2", "v1") == 'The variant name "v1" was non-unique within the request.'
    assert "greater than 0" in await refused("v1", "v2", DesiredWeight=0.0)
    assert await call("DescribeEndpoint", EndpointName="e") == before


async def test_only_what_is_mentioned_changes(call: Call, model: None, plane: Driver, database: Database) -> None:
    await in_service(call, {"VariantName": "v1"}, {"VariantName": "v2"})
    desired = [{"VariantName": "v1", "DesiredWeight": 7.0}]
    await call("UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=desired)
    await wait_for(call, "e", "InService")
    # Another replica, which has nothing of it in its memory.
    replica = Database(database.url)
    found = await caller(replica)("DescribeEndpoint", EndpointName="e")
    assert counts(found, "v1") == (7.0, 7.0, 1, 1)
    assert counts(found, "v2") == (1.0, 1.0, 1, 1)
    assert found["EndpointConfigName"] == "c1"
    await replica.dispose()


async def test_of_two_weight_calls_that_cross_none_is_lost(
    call: Call, model: None, plane: Driver, database: Database
) -> None:
    await in_service(call, {"VariantName": "v1"}, {"VariantName": "v2"})
    replica = Database(database.url)
    doors = [call, caller(replica)]
    for number in range(2, 7):
        results = await asyncio.gather(
            *(
                door(
                    "UpdateEndpointWeightsAndCapacities",
                    EndpointName="e",
                    DesiredWeightsAndCapacities=[{"VariantName": name, "DesiredWeight": float(number)}],
                )
                for door, name in zip(doors, ("v1", "v2"), strict=True)
            ),
            return_exceptions=True,
        )
        found = await wait_for(call, "e", "InService")
        for name, result in zip(("v1", "v2"), results, strict=True):
            if isinstance(result, dict):
                assert counts(found, name)[0] == float(number)
            else:
                assert isinstance(result, ValidationException)
                assert "in-progress" in result.message
        assert any(isinstance(result, dict) for result in results)
    await replica.dispose()


async def test_a_deployment_config_is_remembered_and_retained(call: Call, model: None, plane: Driver) -> None:
    policy = {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0},
            "TerminationWaitInSeconds": 0,
        }
    }
    await create_config(call, "c1")
    await call("CreateEndpoint", EndpointName="e", EndpointConfigName="c1", DeploymentConfig=policy)
    assert (await wait_for(call, "e", "InService"))["LastDeploymentConfig"] == policy
    await call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c1", RetainDeploymentConfig=True)
    assert (await wait_for(call, "e", "InService"))["LastDeploymentConfig"] == policy
    await call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c1")
    assert "LastDeploymentConfig" not in await wait_for(call, "e", "InService")


async def test_both_configurations_of_an_update_must_exist(call: Call, model: None, plane: Driver) -> None:
    await in_service(call)
    with pytest.raises(ValidationException, match=r"Could not find endpoint configuration .*/ghost"):
        await call("UpdateEndpoint", EndpointName="e", EndpointConfigName="ghost")
    await create_config(call, "c2")
    await call("DeleteEndpointConfig", EndpointConfigName="c1")
    with pytest.raises(ValidationException, match=r"Could not find endpoint configuration .*/c1"):
        await call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
    assert await status_of(call, "e") == "InService"


async def test_deleting_an_endpoint_leaves_what_others_use_and_frees_its_name_and_hosts(
    call: Call, hosts: Hosts, plane: Driver, redis: redis_library.Redis
) -> None:
    await create_model(call, "m", *(host.url for host in hosts.make(2)))
    first = await in_service(call)
    await call("CreateEndpoint", EndpointName="e2", EndpointConfigName="c1")
    await wait_for(call, "e2", "InService")
    await call("AddTags", ResourceArn=first["EndpointArn"], Tags=[{"Key": "k", "Value": "v"}])
    old = table_in(redis)
    await call("DeleteEndpoint", EndpointName="e")
    await wait_for(call, "e", None)
    assert await status_of(call, "e2") == "InService"
    assert (await call("DescribeEndpointConfig", EndpointConfigName="c1"))["EndpointConfigName"] == "c1"
    await call("CreateEndpoint", EndpointName="e", EndpointConfigName="c1")
    await wait_for(call, "e", "InService")
    assert (await call("ListTags", ResourceArn=first["EndpointArn"]))["Tags"] == []
    new = table_in(redis)
    assert old is not None
    assert new is not None
    ids = [{each.name: each.id for each in table.endpoints} for table in (old, new)]
    assert ids[0]["e2"] == ids[1]["e2"]
    # Counts of the old endpoint are kept under its own id.
    assert ids[0]["e"] != ids[1]["e"]


async def test_two_deletes_at_once_are_never_a_fault(call: Call, model: None, plane: Driver) -> None:
    await in_service(call)
    results = await asyncio.gather(
        *(call("DeleteEndpoint", EndpointName="e") for _ in range(4)), return_exceptions=True
    )
    assert any(result == {} for result in results)
    assert all(result == {} or isinstance(result, ValidationException) for result in results)
    await wait_for(call, "e", None)


async def test_a_retry_of_a_lost_answer_is_refused_and_made_nothing_twice(
    call: Call, model: None, plane: Driver, redis: redis_library.Redis
) -> None:
    await in_service(call)
    with pytest.raises(ValidationException, match="already existing"):
        await call("CreateEndpoint", EndpointName="e", EndpointConfigName="c1")
    table = table_in(redis)
    assert table is not None
    assert [len(each.variants[0].instances) for each in table.endpoints] == [1]

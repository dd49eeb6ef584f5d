"""What DescribeEndpoint tells while something is under way."""

import redis as redis_library

from controlplane.background.driver import Driver
from controlplane.store.session import Database
from tests.controlplane.stage import (
    Call,
    counts,
    create_config,
    end_of_patience,
    in_service,
    report,
    table_in,
    variant_of,
    wait_for,
)
from tests.fakes.model_host import Hosts
from tests.waiting import wait_until_async

ARN = "arn:aws:sagemaker:us-east-1:123456789012:endpoint/e"
PREFIX = {
    "RoutingStrategy": "PREFIX_AWARE",
    "PrefixAwareRoutingConfig": {"PrefixLength": 4096, "ConcurrencyThreshold": 8},
}


async def test_an_endpoint_is_there_at_once_and_says_what_it_waits_for(call: Call, model: None) -> None:
    await create_config(
        call, "c1", {"InitialInstanceCount": 2, "InstanceType": "ml.g5.xlarge", "RoutingConfig": PREFIX}
    )
    assert await call("CreateEndpoint", EndpointName="E", EndpointConfigName="c1") == {"EndpointArn": ARN}
    found = await call("DescribeEndpoint", EndpointName="E")
    pending = found.pop("PendingDeploymentSummary")
    created = found.pop("CreationTime")
    assert found == {
        "EndpointName": "E",
        "EndpointArn": ARN,
        "EndpointConfigName": "c1",
        "EndpointStatus": "Creating",
        "LastModifiedTime": created,
    }
    assert pending == {
        "EndpointConfigName": "c1",
        "StartTime": created,
        "ProductionVariants": [
            {
                "VariantName": "v",
                "CurrentWeight": 0.0,
                "DesiredWeight": 1.0,
                "CurrentInstanceCount": 0,
                "DesiredInstanceCount": 2,
                "InstanceType": "ml.g5.xlarge",
                "RoutingConfig": PREFIX,
                "VariantStatus": [
                    {
                        "Status": "Creating",
                        "StatusMessage": 'Instances are being taken from the pool of model "m".',
                        "StartTime": created,
                    }
                ],
            }
        ],
    }


async def test_an_update_shows_the_old_configuration_until_the_new_one_serves(
    call: Call, model: None, hosts: Hosts, plane: Driver, redis: redis_library.Redis
) -> None:
    await in_service(call, {"InitialInstanceCount": 2, "RoutingConfig": PREFIX})
    old = table_in(redis)
    assert old is not None
    # A worker that stays behind holds the update up after its promotion.
    report(redis, "w1", f"{old.epoch}:{old.generation}")
    await create_config(call, "c2", {"InitialInstanceCount": 4, "RoutingConfig": {"RoutingStrategy": "RANDOM"}})
    answer = await call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
    assert answer == {"EndpointArn": ARN}

    async def promoted() -> bool:
        table = table_in(redis)
        return table is not None and table.generation > old.generation

    await wait_until_async(promoted)
    found = await call("DescribeEndpoint", EndpointName="e")
    assert (found["EndpointStatus"], found["EndpointConfigName"]) == ("Updating", "c1")
    assert variant_of(found)["RoutingConfig"] == PREFIX
    pending = found["PendingDeploymentSummary"]
    assert pending["EndpointConfigName"] == "c2"
    (variant,) = pending["ProductionVariants"]
    assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (4, 4)
    assert variant["VariantStatus"][0]["Status"] == "ActivatingTraffic"
    assert "every worker" in variant["VariantStatus"][0]["StatusMessage"]
    new = table_in(redis)
    assert new is not None
    report(redis, "w1", f"{new.epoch}:{new.generation}")
    found = await wait_for(call, "e", "InService")
    assert found["EndpointConfigName"] == "c2"
    assert variant_of(found)["RoutingConfig"] == {"RoutingStrategy": "RANDOM"}
    # The hosts of the old variant were carried over: same numbers, and the endpoint's counts go on.
    before, after = old.endpoints[0], new.endpoints[0]
    assert before.id == after.id
    kept = {instance.number for instance in before.variants[0].instances}
    assert kept < {instance.number for instance in after.variants[0].instances}


async def test_what_a_weight_call_waits_for_is_told(call: Call, model: None, plane: Driver, database: Database) -> None:
    await in_service(call, {"InitialInstanceCount": 1})
    desired = [{"VariantName": "v", "DesiredInstanceCount": 9}]
    await call("UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=desired)

    async def told() -> bool:
        found = await call("DescribeEndpoint", EndpointName="e")
        status = variant_of(found).get("VariantStatus", [{}])[0]
        return "can give 4 of the 9 hosts needed" in status.get("StatusMessage", "")

    await wait_until_async(told)
    await end_of_patience(database)
    found = await wait_for(call, "e", "InService")
    assert counts(found) == (1.0, 1.0, 1, 1)
    assert "can give 4 of the 9 hosts needed" in found["FailureReason"]
    desired = [{"VariantName": "v", "DesiredInstanceCount": 4}]
    await call("UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=desired)
    found = await wait_for(call, "e", "InService")
    assert counts(found) == (1.0, 1.0, 4, 4)
    assert "FailureReason" not in found

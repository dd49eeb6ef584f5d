"""Endpoint configurations: immutable, echoed as sent, and nothing half-written."""

import asyncio
import json
from typing import Any

import pytest

from controlplane.errors import ValidationException
from controlplane.store.session import Database
from tests.controlplane.stage import Call, caller

PREFIX = {"PrefixLength": 2048, "ConcurrencyThreshold": 8}


def variant(name: str = "v", **members: Any) -> dict[str, Any]:
    return {"VariantName": name, "ModelName": "m", **members}


@pytest.fixture(autouse=True)
async def model(call: Call) -> None:
    await call("CreateModel", ModelName="m")


async def test_describe_gives_back_what_was_sent_number_by_number(call: Call) -> None:
    variants = [
        variant("big", InitialVariantWeight=0.8, InstanceType="ml.g5.xlarge", InitialInstanceCount=3),
        variant("small", InitialVariantWeight=1e-7, RoutingConfig={"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"}),
        variant(
            "warm",
            InitialVariantWeight=123456.789,
            RoutingConfig={"RoutingStrategy": "PREFIX_AWARE", "PrefixAwareRoutingConfig": PREFIX},
        ),
    ]
    created = await call("CreateEndpointConfig", EndpointConfigName="C", ProductionVariants=variants)
    arn = "arn:aws:sagemaker:us-east-1:123456789012:endpoint-config/c"
    assert created == {"EndpointConfigArn": arn}
    found = await call("DescribeEndpointConfig", EndpointConfigName="C")
    assert json.dumps(found) == json.dumps(await call("DescribeEndpointConfig", EndpointConfigName="C"))
    assert found.pop("CreationTime") > 0
    assert found == {"EndpointConfigName": "C", "EndpointConfigArn": arn, "ProductionVariants": variants}


async def test_what_was_never_sent_is_absent_or_awss_default(call: Call) -> None:
    await call("CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=[variant()])
    found = await call("DescribeEndpointConfig", EndpointConfigName="c")
    assert found["ProductionVariants"] == [{**variant(), "InitialVariantWeight": 1.0}]


async def test_a_second_create_is_refused_and_changes_nothing(call: Call) -> None:
    def config(length: int) -> list[dict[str, Any]]:
        routing = {"RoutingStrategy": "PREFIX_AWARE", "PrefixAwareRoutingConfig": {**PREFIX, "PrefixLength": length}}
        return [variant(RoutingConfig=routing)]

    await call("CreateEndpointConfig", EndpointConfigName="c1", ProductionVariants=config(2048))
    with pytest.raises(ValidationException, match=r'^Cannot create already existing endpoint configuration "arn:'):
        await call("CreateEndpointConfig", EndpointConfigName="C1", ProductionVariants=config(4096))
    found = await call("DescribeEndpointConfig", EndpointConfigName="c1")
    assert found["ProductionVariants"][0]["RoutingConfig"]["PrefixAwareRoutingConfig"]["PrefixLength"] == 2048


async def test_one_of_many_who_create_a_name_at_once_succeeds(call: Call, database: Database) -> None:
    replica = Database(database.url)
    doors = [call, caller(replica)]
    for number in range(5):
        name = f"c{number}"
        tries = (
            doors[index % 2]("CreateEndpointConfig", EndpointConfigName=name, ProductionVariants=[variant()])
            for index in range(16)
        )
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(result, dict) for result in results) == 1
        assert sum(isinstance(result, ValidationException) for result in results) == 15
    for door in doors:
        assert len((await door("ListEndpointConfigs"))["EndpointConfigs"]) == 5
    await replica.dispose()


async def test_an_unknown_model_is_refused_and_nothing_is_written(call: Call) -> None:
    with pytest.raises(ValidationException, match=r'^Could not find model "arn:aws:.*:model/ghost"'):
        await call(
            "CreateEndpointConfig",
            EndpointConfigName="c",
            ProductionVariants=[variant("a"), variant("b", ModelName="ghost")],
        )
    assert (await call("ListEndpointConfigs"))["EndpointConfigs"] == []


@pytest.mark.parametrize("operation", ["DescribeEndpointConfig", "DeleteEndpointConfig"])
async def test_an_unknown_config_is_named_by_its_arn(call: Call, operation: str) -> None:
    with pytest.raises(ValidationException, match=r'^Could not find endpoint configuration "arn:aws:.*/nope"'):
        await call(operation, EndpointConfigName="nope")


async def test_a_deleted_config_leaves_its_name_free(call: Call) -> None:
    await call("CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=[variant("old")])
    await call("DeleteEndpointConfig", EndpointConfigName="C")
    await call("CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=[variant("new")])
    found = await call("DescribeEndpointConfig", EndpointConfigName="c")
    assert [each["VariantName"] for each in found["ProductionVariants"]] == ["new"]


async def test_tags_given_at_creation_are_there(call: Call) -> None:
    tags = [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": ""}]
    created = await call("CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=[variant()], Tags=tags)
    assert (await call("ListTags", ResourceArn=created["EndpointConfigArn"]))["Tags"] == tags

"""Tags: upsert, list, delete, on every kind of resource."""

import asyncio
from typing import Any

import pytest

from controlplane.errors import ResourceLimitExceeded, ValidationException
from tests.controlplane.stage import Call

PREFIX = "arn:aws:sagemaker:us-east-1:123456789012:"


@pytest.fixture(autouse=True)
async def resources(call: Call) -> None:
    await call("CreateModel", ModelName="m")
    variants = [{"VariantName": "v", "ModelName": "m"}]
    await call("CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=variants)
    await call("CreateEndpoint", EndpointName="e", EndpointConfigName="c", Tags=[{"Key": "born", "Value": "with"}])


def tags(**values: str) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in values.items()]


@pytest.mark.parametrize("resource", ["model/m", "endpoint-config/c", "endpoint/e"])
async def test_tags_of_every_kind_of_resource(call: Call, resource: str) -> None:
    arn = PREFIX + resource
    born = tags(born="with") if resource == "endpoint/e" else []
    assert (await call("ListTags", ResourceArn=arn))["Tags"] == born
    added = await call("AddTags", ResourceArn=arn, Tags=tags(a="1", b="2"))
    assert added["Tags"] == tags(a="1", b="2") + born
    assert (await call("AddTags", ResourceArn=arn, Tags=tags(b="3")))["Tags"] == tags(a="1", b="3") + born
    assert await call("DeleteTags", ResourceArn=arn, TagKeys=["a", "never there", "born"]) == {}
    assert await call("ListTags", ResourceArn=arn) == {"Tags": tags(b="3")}


@pytest.mark.parametrize(
    "arn",
    [
        PREFIX + "model/ghost",
        PREFIX + "training-job/x",
        "arn:aws:sagemaker:eu-west-1:123456789012:model/m",
        "arn:aws:sagemaker:us-east-1:999999999999:model/m",
    ],
)
@pytest.mark.parametrize(
    ("operation", "members"),
    [("ListTags", {}), ("AddTags", {"Tags": tags(a="1")}), ("DeleteTags", {"TagKeys": ["a"]})],
)
async def test_an_arn_that_names_nothing_here(call: Call, arn: str, operation: str, members: dict[str, Any]) -> None:
    with pytest.raises(ValidationException, match=f'Could not find resource "{arn}"'):
        await call(operation, ResourceArn=arn, **members)


async def test_a_resource_has_at_most_fifty_tags_and_a_refused_call_sets_none(call: Call) -> None:
    arn = PREFIX + "model/m"
    await call("AddTags", ResourceArn=arn, Tags=[{"Key": f"k{number:02}", "Value": ""} for number in range(49)])
    with pytest.raises(ResourceLimitExceeded, match="would have 51"):
        await call("AddTags", ResourceArn=arn, Tags=tags(k00="new", x="1", y="2"))
    found = (await call("ListTags", ResourceArn=arn))["Tags"]
    assert len(found) == 49
    assert found[0] == {"Key": "k00", "Value": ""}


async def test_calls_at_once_do_not_pass_the_limit_together(call: Call) -> None:
    arn = PREFIX + "model/m"
    batches = [[{"Key": f"k{batch}-{number}", "Value": ""} for number in range(20)] for batch in range(5)]
    tries = (call("AddTags", ResourceArn=arn, Tags=batch) for batch in batches)
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(result, dict) for result in results) == 2
    assert len((await call("ListTags", ResourceArn=arn))["Tags"]) == 40

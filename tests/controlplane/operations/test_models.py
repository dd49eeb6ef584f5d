"""Models: echoed as sent, one name whatever its case, and a pool of their static hosts."""

import pytest

from controlplane.errors import ServiceUnavailable, ValidationException
from tests.controlplane.stage import Call

HOSTS = "http://10.0.0.1:8000, http://10.0.0.2:8000/"
CONTAINER = {"Image": "vllm", "Environment": {"WARMROUTE_HOSTS": HOSTS, "OTHER": "x"}, "ModelDataUrl": "s3://b/k"}


async def test_describe_gives_back_what_was_sent(call: Call) -> None:
    sent = {
        "PrimaryContainer": CONTAINER,
        "ExecutionRoleArn": "arn:aws:iam::123456789012:role/Role",
        "EnableNetworkIsolation": False,
    }
    created = await call("CreateModel", ModelName="Llama", Tags=[{"Key": "k", "Value": "v"}], **sent)
    arn = "arn:aws:sagemaker:us-east-1:123456789012:model/llama"
    assert created == {"ModelArn": arn}
    found = await call("DescribeModel", ModelName="Llama")
    assert found.pop("CreationTime") > 0
    assert found == {"ModelName": "Llama", "ModelArn": arn, **sent}


async def test_a_name_is_taken_whatever_its_case(call: Call) -> None:
    await call("CreateModel", ModelName="Llama")
    with pytest.raises(ValidationException, match=r'^Cannot create already existing model "arn:aws:.*:model/llama"'):
        await call("CreateModel", ModelName="llama")
    assert (await call("DescribeModel", ModelName="LLAMA"))["ModelName"] == "Llama"


@pytest.mark.parametrize("operation", ["DescribeModel", "DeleteModel", "ListModelHosts"])
async def test_an_unknown_model_is_named_by_its_arn(call: Call, operation: str) -> None:
    with pytest.raises(ValidationException, match=r'^Could not find model "arn:aws:.*:model/nope"'):
        await call(operation, ModelName="nope")


async def test_static_hosts_are_the_pool(call: Call) -> None:
    await call("CreateModel", ModelName="m", PrimaryContainer=CONTAINER)
    found = await call("ListModelHosts", ModelName="m")
    assert found["Hosts"] == [
        {"HostName": url, "BaseUrl": url, "Source": "Environment"}
        for url in ("http://10.0.0.1:8000", "http://10.0.0.2:8000")
    ]


async def test_a_listed_container_is_served_as_the_primary_one(call: Call) -> None:
    await call("CreateModel", ModelName="m", Containers=[CONTAINER])
    assert len((await call("ListModelHosts", ModelName="m"))["Hosts"]) == 2


async def test_a_static_host_that_is_known_by_another_name_is_refused_and_nothing_is_left(call: Call) -> None:
    await call("CreateModel", ModelName="old")
    await call("RegisterModelHost", ModelName="old", BaseUrl="http://10.0.0.2:8000", HostName="pod-2")
    path = "primaryContainer.environment.WARMROUTE_HOSTS"
    with pytest.raises(ValidationException, match=f"'{path}'.*Entry 2 is already known as HostName \"pod-2\""):
        await call("CreateModel", ModelName="new", PrimaryContainer=CONTAINER)
    assert [each["ModelName"] for each in (await call("ListModels"))["Models"]] == ["old"]
    await call("DeregisterModelHost", ModelName="old", HostName="pod-2")
    await call("CreateModel", ModelName="new", PrimaryContainer=CONTAINER)


async def test_a_deleted_model_leaves_its_name_its_tags_and_its_hosts_free(call: Call) -> None:
    arn = (await call("CreateModel", ModelName="m", PrimaryContainer=CONTAINER, Tags=[{"Key": "k", "Value": "v"}]))[
        "ModelArn"
    ]
    assert await call("DeleteModel", ModelName="M") == {}
    await call("CreateModel", ModelName="m", PrimaryContainer=CONTAINER)
    assert (await call("ListTags", ResourceArn=arn))["Tags"] == []


async def test_two_deletes_at_once_are_one_success(call: Call) -> None:
    import asyncio

    await call("CreateModel", ModelName="m", PrimaryContainer=CONTAINER)
    results = await asyncio.gather(*(call("DeleteModel", ModelName="m") for _ in range(8)), return_exceptions=True)
    assert sum(result == {} for result in results) == 1
    refused = [result for result in results if result != {}]
    assert {type(result) for result in refused} <= {ValidationException, ServiceUnavailable}
    assert all(isinstance(result, ValidationException) for result in refused)

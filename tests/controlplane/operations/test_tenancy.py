"""What belongs to one tenant is not there for another, and what it may not touch stays as it is."""

from typing import Any

import pytest
from sqlalchemy import text

from controlplane.errors import ValidationException
from controlplane.operations.context import Caller
from controlplane.store.session import Database
from tests.controlplane.stage import ACCOUNT, REGION, SEALING, Call, caller

URL = "http://10.0.0.1:8000"
VARIANT = {"VariantName": "v", "ModelName": "m", "InitialInstanceCount": 1}
ARN = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}"


@pytest.fixture
def ours(database: Database) -> Call:
    return caller(database, Caller("key-a", "a"))


@pytest.fixture
def theirs(database: Database) -> Call:
    return caller(database, Caller("key-b", "b"))


async def furnish(call: Call, suffix: str = "", **environment: str) -> None:
    model = {"Environment": {"WARMROUTE_HOSTS": URL, **environment}}
    await call("CreateModel", ModelName="m" + suffix, PrimaryContainer=model)
    variant = {**VARIANT, "ModelName": "m" + suffix}
    await call("CreateEndpointConfig", EndpointConfigName="c" + suffix, ProductionVariants=[variant])
    await call("CreateEndpoint", EndpointName="e" + suffix, EndpointConfigName="c" + suffix)


TOUCHES: list[tuple[str, dict[str, Any]]] = [
    ("DescribeModel", {"ModelName": "m"}),
    ("DeleteModel", {"ModelName": "m"}),
    ("ListModelHosts", {"ModelName": "m"}),
    ("RegisterModelHost", {"ModelName": "m", "BaseUrl": "http://10.0.0.2"}),
    ("DeregisterModelHost", {"ModelName": "m", "HostName": URL}),
    ("CreateEndpointConfig", {"EndpointConfigName": "d", "ProductionVariants": [VARIANT]}),
    ("DescribeEndpointConfig", {"EndpointConfigName": "c"}),
    ("DeleteEndpointConfig", {"EndpointConfigName": "c"}),
    ("CreateEndpoint", {"EndpointName": "f", "EndpointConfigName": "c"}),
    ("DescribeEndpoint", {"EndpointName": "e"}),
    ("UpdateEndpoint", {"EndpointName": "e", "EndpointConfigName": "c"}),
    (
        "UpdateEndpointWeightsAndCapacities",
        {"EndpointName": "e", "DesiredWeightsAndCapacities": [{"VariantName": "v", "DesiredWeight": 1.0}]},
    ),
    ("DeleteEndpoint", {"EndpointName": "e"}),
    ("AddTags", {"ResourceArn": f"{ARN}:endpoint/e", "Tags": [{"Key": "k", "Value": "v"}]}),
    ("ListTags", {"ResourceArn": f"{ARN}:model/m"}),
    ("DeleteTags", {"ResourceArn": f"{ARN}:endpoint-config/c", "TagKeys": ["k"]}),
]


@pytest.mark.parametrize(("operation", "members"), TOUCHES, ids=[operation for operation, _ in TOUCHES])
async def test_another_tenants_things_do_not_exist(
    ours: Call, theirs: Call, operation: str, members: dict[str, Any]
) -> None:
    with pytest.raises(ValidationException, match="Could not find") as absent:
        await theirs(operation, **members)
    await furnish(ours)
    with pytest.raises(ValidationException, match="Could not find") as hidden:
        await theirs(operation, **members)
    assert str(hidden.value) == str(absent.value), "nothing tells the two cases apart"


async def test_lists_show_ones_own(call: Call, ours: Call, theirs: Call) -> None:
    await furnish(ours)
    for operation, member in (
        ("ListModels", "Models"),
        ("ListEndpointConfigs", "EndpointConfigs"),
        ("ListEndpoints", "Endpoints"),
    ):
        assert len((await ours(operation))[member]) == 1
        assert (await theirs(operation))[member] == []
        assert len((await call(operation))[member]) == 1, "the installation sees everything"


async def test_a_tenants_endpoint_uses_its_own_things_whoever_asks(
    database: Database, call: Call, ours: Call, theirs: Call
) -> None:
    """The installation's key sees all; a name that changed hands must not lead prompts to another's hosts."""
    await furnish(ours)
    await ours("DeleteModel", ModelName="m")
    await theirs("CreateModel", ModelName="m", PrimaryContainer={})
    await theirs("CreateEndpointConfig", EndpointConfigName="d", ProductionVariants=[VARIANT])
    with pytest.raises(ValidationException, match="Could not find model"):
        await call("CreateEndpoint", EndpointName="f", EndpointConfigName="c")
    async with database.transaction() as session:
        await session.execute(text("DELETE FROM deployment"))
        await session.execute(text("UPDATE endpoint SET status = 'InService'"))
    with pytest.raises(ValidationException, match="Could not find endpoint configuration"):
        await call("UpdateEndpoint", EndpointName="e", EndpointConfigName="d")


async def test_names_are_one_in_the_whole_installation(ours: Call, theirs: Call) -> None:
    await furnish(ours)
    with pytest.raises(ValidationException, match="already existing model"):
        await theirs("CreateModel", ModelName="m", PrimaryContainer={})


async def test_a_host_in_use_is_nobody_elses(ours: Call, theirs: Call) -> None:
    """Whoever could move another tenant's host to an address of its own would be sent that tenant's prompts."""
    await ours("CreateModel", ModelName="m", PrimaryContainer={})
    await ours("RegisterModelHost", ModelName="m", HostName="gpu-1", BaseUrl=URL)
    await theirs("CreateModel", ModelName="n", PrimaryContainer={})
    with pytest.raises(ValidationException, match="another tenant") as by_name:
        await theirs("RegisterModelHost", ModelName="n", HostName="gpu-1", BaseUrl="http://10.6.6.6")
    with pytest.raises(ValidationException, match="another tenant") as by_url:
        await theirs("RegisterModelHost", ModelName="n", HostName="mine", BaseUrl=URL)
    with pytest.raises(ValidationException, match="another tenant") as in_list:
        await theirs("CreateModel", ModelName="o", PrimaryContainer={"Environment": {"WARMROUTE_HOSTS": URL}})
    assert not any("gpu-1" in str(said.value) for said in (by_url, in_list))
    assert by_name
    (host,) = (await ours("ListModelHosts", ModelName="m"))["Hosts"]
    assert host["BaseUrl"] == URL


async def test_a_static_host_in_use_is_nobody_elses(ours: Call, theirs: Call) -> None:
    await furnish(ours)
    with pytest.raises(ValidationException, match="another tenant"):
        await theirs("CreateModel", ModelName="n", PrimaryContainer={"Environment": {"WARMROUTE_HOSTS": URL}})


async def test_a_host_that_nobody_uses_may_change_hands(ours: Call, theirs: Call) -> None:
    await ours("CreateModel", ModelName="m", PrimaryContainer={})
    await ours("RegisterModelHost", ModelName="m", HostName="gpu-1", BaseUrl=URL)
    await ours("DeregisterModelHost", ModelName="m", HostName="gpu-1")
    await theirs("CreateModel", ModelName="n", PrimaryContainer={})
    await theirs("RegisterModelHost", ModelName="n", HostName="gpu-1", BaseUrl=URL)
    assert [host["HostName"] for host in (await theirs("ListModelHosts", ModelName="n"))["Hosts"]] == ["gpu-1"]


async def test_patterns_limit_the_endpoints_that_are_listed(database: Database, call: Call) -> None:
    await call("CreateModel", ModelName="m", PrimaryContainer={})
    await call("CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=[VARIANT])
    for name in ("chat-1", "chat-22", "achat-1", "other", "chat"):
        await call("CreateEndpoint", EndpointName=name, EndpointConfigName="c")

    async def seen(*patterns: str) -> set[str]:
        found = await caller(database, Caller("k", "", patterns))("ListEndpoints", MaxResults=100)
        return {endpoint["EndpointName"] for endpoint in found["Endpoints"]}

    assert await seen("chat-*") == {"chat-1", "chat-22"}
    assert await seen("chat-?", "other") == {"chat-1", "other"}
    assert await seen("none") == set()
    assert len(await seen()) == 5


async def test_an_endpoint_keeps_the_hosts_credential_sealed(database: Database, call: Call) -> None:
    await furnish(call, WARMROUTE_HOST_AUTHORIZATION="Bearer canary-7")
    described = await call("DescribeModel", ModelName="m")
    assert described["PrimaryContainer"]["Environment"] == {
        "WARMROUTE_HOSTS": URL,
        "WARMROUTE_HOST_AUTHORIZATION": "***",
    }
    async with database.transaction() as session:
        rows = (await session.execute(text("SELECT host_authorization FROM endpoint_variant"))).scalars().all()
        whole = (await session.execute(text("SELECT m::text || v::text FROM model m, endpoint_variant v"))).scalars()
        assert "canary" not in " ".join(whole)
    assert [SEALING.open(row) for row in rows] == ["Bearer canary-7"]


@pytest.mark.parametrize("url", ["http://169.254.169.254", "http://[fe80::1]:80", "http://metadata.google.internal/x"])
async def test_metadata_services_are_no_hosts(call: Call, url: str) -> None:
    with pytest.raises(ValidationException, match="WARMROUTE_ALLOW_METADATA_HOSTS"):
        await call("CreateModel", ModelName="m", PrimaryContainer={"Environment": {"WARMROUTE_HOSTS": url}})
    await call("CreateModel", ModelName="m", PrimaryContainer={})
    with pytest.raises(ValidationException, match="WARMROUTE_ALLOW_METADATA_HOSTS"):
        await call("RegisterModelHost", ModelName="m", BaseUrl=url)

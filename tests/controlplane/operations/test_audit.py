"""The audit: every attempt to change something, by whom and how it ended, and no secret in it."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from controlplane.api.app import build_app
from controlplane.operations.audit import record, resource_of
from controlplane.operations.context import Caller
from controlplane.store import audit
from controlplane.store.session import Database
from tests.controlplane.stage import ACCOUNT, REGION, SEALING

VARIANT = {"VariantName": "v", "ModelName": "m", "InitialInstanceCount": 1}


@pytest.fixture
async def client(database: Database) -> AsyncIterator[httpx.AsyncClient]:
    app = build_app(
        database=database,
        account_id=ACCOUNT,
        region=REGION,
        is_ready=lambda: (True, ""),
        metrics=str,
        sealing=SEALING,
    )
    transport = httpx.ASGITransport(app=app, client=("192.0.2.7", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


async def kept(database: Database, **equal: str) -> list[tuple[str, str, str]]:
    async with database.transaction() as session:
        rows = await audit.latest(session, equal=equal, after=None, before=None, limit=100)
    return [(row.operation, row.resource, row.outcome) for row in reversed(rows)]


async def test_changes_and_refusals_are_kept_and_reads_are_not(client: httpx.AsyncClient, database: Database) -> None:
    async def post(name: str, **members: Any) -> httpx.Response:
        return await client.post(f"/{name}", json=members)

    await post("CreateModel", ModelName="m")
    await post("CreateModel", ModelName="m")
    await post("CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=[VARIANT])
    await post("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    await post("CreateEndpoint", EndpointName="not a name", EndpointConfigName="c")
    await post("DeleteEndpoint", EndpointName=["e"])
    await post("DescribeEndpoint", EndpointName="e")
    await post("ListEndpoints")
    await post("Nonsense", EndpointName="e")
    made = (await post("CreateAccessKey", Role="reader")).json()
    answer = await post("RegisterModelHost", ModelName="m", BaseUrl="http://10.0.0.1", HostName="h")
    assert answer.status_code == 200
    assert await kept(database) == [
        ("CreateModel", "m", "OK"),
        ("CreateModel", "m", "ValidationException"),
        ("CreateEndpointConfig", "c", "OK"),
        ("CreateEndpoint", "e", "OK"),
        ("CreateEndpoint", "", "ValidationException"),
        ("DeleteEndpoint", "", "SerializationException"),
        ("CreateAccessKey", made["AccessKeyId"], "OK"),
        ("RegisterModelHost", "h", "OK"),
    ]
    async with database.transaction() as session:
        rows = await audit.latest(session, equal={"resource": "h"}, after=None, before=None, limit=1)
        whole = " ".join((await session.execute(text("SELECT audit_record::text FROM audit_record"))).scalars())
    assert (rows[0].source, rows[0].principal, rows[0].tenant) == ("192.0.2.7", "", "")
    assert rows[0].request_id == answer.headers["x-amzn-requestid"]
    assert abs(rows[0].at - datetime.now(UTC)) < timedelta(minutes=1)
    assert made["SecretAccessKey"] not in whole


async def test_a_renewal_is_no_change(client: httpx.AsyncClient, database: Database) -> None:
    await client.post("/CreateModel", json={"ModelName": "m"})
    for _ in range(3):
        request = {"ModelName": "m", "BaseUrl": "http://10.0.0.1", "HostName": "h", "TtlSeconds": 60}
        assert (await client.post("/RegisterModelHost", json=request)).status_code == 200
    assert await kept(database, operation="RegisterModelHost") == [("RegisterModelHost", "h", "OK")]


async def test_secrets_of_a_refused_request_are_not_kept(client: httpx.AsyncClient, database: Database) -> None:
    request = {"ModelName": "m", "BaseUrl": "http://user:canary@h", "HostName": "http://user:canary@h"}
    await client.post("/RegisterModelHost", json=request)
    await client.post("/CreateModel", json={"ModelName": "Bearer canary"})
    await client.post("/CreateModel", content=json.dumps({"ModelName": "\ud83d\0"}))
    async with database.transaction() as session:
        whole = " ".join((await session.execute(text("SELECT audit_record::text FROM audit_record"))).scalars())
    assert len(await kept(database)) == 3
    assert "canary" not in whole


async def test_filters_and_the_end_of_records(database: Database) -> None:
    now = datetime(2026, 5, 1, tzinfo=UTC)
    async with database.transaction() as session:
        for day, who in ((0, "a"), (1, "b"), (2, "a")):
            record(session, now + timedelta(days=day), Caller(who), "DeleteModel", "OK", {"ModelName": f"m{day}"})
    async with database.transaction() as session:
        found = await audit.latest(session, equal={"principal": "a"}, after=None, before=None, limit=9)
        assert [row.resource for row in found] == ["m2", "m0"]
        between = {"after": now + timedelta(days=1), "before": now + timedelta(days=2)}
        assert [row.resource for row in await audit.latest(session, equal={}, **between, limit=9)] == ["m1"]
        assert await audit.forget(session, now + timedelta(days=2)) == 2
    assert await kept(database) == [("DeleteModel", "m2", "OK")]


@pytest.mark.parametrize(
    ("members", "resource"),
    [
        ({"EndpointName": "e", "EndpointConfigName": "c"}, "e"),
        ({"ModelName": "m", "HostName": "http://h:1"}, "http://h:1"),
        ({"ResourceArn": "arn:aws:sagemaker:r:0:model/m"}, "arn:aws:sagemaker:r:0:model/m"),
        ({"ModelName": "m", "HostName": "http://u:p@h"}, ""),
        ({"ModelName": 5}, ""),
        ({}, ""),
    ],
)
def test_the_resource_is_the_most_particular_name(members: dict[str, Any], resource: str) -> None:
    assert resource_of(members) == resource

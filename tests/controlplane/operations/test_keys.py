"""Keys of principals: shown once, kept sealed or hashed, limited to what their maker may do."""

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from controlplane.errors import AccessDeniedException, ValidationException
from controlplane.operations import keys
from controlplane.operations.context import Caller, Context
from controlplane.store.session import Database
from tests.controlplane.stage import ACCOUNT, REGION, SEALING, Call, caller, caller_at

NOW = datetime(2026, 5, 1, tzinfo=UTC)


async def listed(call: Call, **members: Any) -> dict[str, dict[str, Any]]:
    return {key["AccessKeyId"]: key for key in (await call("ListAccessKeys", **members))["AccessKeys"]}


async def test_an_access_key_is_shown_once_and_kept_sealed(call: Call, migrated_url: str) -> None:
    made = await call("CreateAccessKey", Role="operator", Tenant="search", Endpoints=["chat-*"], Description="CI")
    secret = made.pop("SecretAccessKey")
    assert len(secret) == 40
    assert await listed(call) == {made["AccessKeyId"]: made}
    assert made["AccessKeyId"].startswith("AKWR")
    assert (made["Kind"], made["Role"], made["Tenant"], made["Enabled"]) == ("access-key", "operator", "search", True)
    with psycopg.connect(migrated_url) as connection:
        (row,) = connection.execute("SELECT secret, access_key::text FROM access_key").fetchall()
    assert SEALING.open(bytes(row[0])) == secret
    assert secret not in row[1]
    assert secret.encode().hex() not in row[1]


async def test_an_api_key_is_kept_as_a_digest(call: Call, migrated_url: str) -> None:
    made = await call("CreateAccessKey", Role="invoke", Kind="api-key", RequestsPerSecond=2.5, ConcurrentRequests=3)
    assert "SecretAccessKey" not in made
    assert made["ApiKey"].startswith(made["AccessKeyId"] + "-")
    assert (made["RequestsPerSecond"], made["ConcurrentRequests"]) == (2.5, 3)
    with psycopg.connect(migrated_url) as connection:
        (row,) = connection.execute("SELECT secret FROM access_key").fetchall()
    assert bytes(row[0]) == hashlib.sha256(made["ApiKey"].encode()).digest()


async def test_pages_of_keys_are_whole(call: Call) -> None:
    made = {(await call("CreateAccessKey", Role="reader"))["AccessKeyId"] for _ in range(5)}
    seen, token = [], {}
    while True:
        answer = await call("ListAccessKeys", MaxResults=2, **token)
        seen += [key["AccessKeyId"] for key in answer["AccessKeys"]]
        if "NextToken" not in answer:
            break
        token = {"NextToken": answer["NextToken"]}
    assert seen == sorted(made)


async def test_a_disabled_key_is_no_principal_until_it_is_enabled(call: Call, database: Database) -> None:
    made = await call("CreateAccessKey", Role="reader")
    for enabled in (False, True):
        answer = await call("UpdateAccessKey", AccessKeyId=made["AccessKeyId"], Enabled=enabled)
        assert answer["Enabled"] is enabled
        assert "SecretAccessKey" not in answer
        async with database.transaction() as session:
            found = await keys.principal(session, made["AccessKeyId"], NOW)
        assert (found is not None) is enabled


async def test_rotation_leaves_the_old_key_a_grace_period(database: Database) -> None:
    call = caller_at(database, NOW)
    old = await call(
        "CreateAccessKey", Role="invoke", Tenant="t", Endpoints=["a", "b-*"], RequestsPerSecond=5, ConcurrentRequests=2
    )
    new = await call("RotateAccessKey", AccessKeyId=old["AccessKeyId"], GraceSeconds=60)
    same = ("Role", "Tenant", "Endpoints", "Kind", "RequestsPerSecond", "ConcurrentRequests", "Enabled")
    assert [new[name] for name in same] == [old[name] for name in same]
    assert new["SecretAccessKey"] != old["SecretAccessKey"]
    assert new["PreviousAccessKeyId"] == old["AccessKeyId"]
    assert new["PreviousExpiresAt"] == (NOW + timedelta(seconds=60)).timestamp()
    for seconds, is_valid in ((59, True), (60, False)):
        async with database.transaction() as session:
            found = await keys.principal(session, old["AccessKeyId"], NOW + timedelta(seconds=seconds))
        assert (found is not None) is is_valid
    with pytest.raises(ValidationException, match="was rotated before"):
        await call("RotateAccessKey", AccessKeyId=old["AccessKeyId"])


async def test_a_disabled_key_is_not_rotated_back_into_use(call: Call) -> None:
    made = await call("CreateAccessKey", Role="reader")
    await call("UpdateAccessKey", AccessKeyId=made["AccessKeyId"], Enabled=False)
    with pytest.raises(ValidationException, match="is disabled"):
        await call("RotateAccessKey", AccessKeyId=made["AccessKeyId"])


async def test_a_deleted_key_is_gone(call: Call) -> None:
    made = await call("CreateAccessKey", Role="reader")
    await call("DeleteAccessKey", AccessKeyId=made["AccessKeyId"])
    assert await listed(call) == {}
    for operation, members in (
        ("DeleteAccessKey", {}),
        ("UpdateAccessKey", {"Enabled": True}),
        ("RotateAccessKey", {}),
    ):
        with pytest.raises(ValidationException, match="Could not find access key"):
            await call(operation, AccessKeyId=made["AccessKeyId"], **members)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"Role": "root"}, r"enum value set: \[admin, operator, reader, invoke\]"),
        ({"Role": "invoke", "Endpoints": ["a/b"]}, "regular expression"),
        ({"Role": "invoke", "Endpoints": [""]}, "length"),
        ({"Role": "invoke", "RequestsPerSecond": 0}, "greater than 0"),
        ({"Role": "invoke", "ConcurrentRequests": 0}, "greater than or equal to 1"),
        ({"Role": "invoke", "Tenant": "a b"}, "regular expression"),
        ({"Role": "invoke", "Description": "a\nb"}, "regular expression"),
    ],
)
async def test_what_is_no_key_is_refused_by_name(call: Call, members: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationException, match=said):
        await call("CreateAccessKey", **members)
    assert await listed(call) == {}


async def test_an_administrator_of_a_tenant_stays_in_it(database: Database, call: Call) -> None:
    theirs = await call("CreateAccessKey", Role="invoke", Tenant="b")
    ours = caller(database, Caller("AKWR", "a"))
    made = await ours("CreateAccessKey", Role="invoke")
    assert made["Tenant"] == "a"
    assert list(await listed(ours)) == [made["AccessKeyId"]]
    assert await listed(ours, Tenant="b") == {}
    with pytest.raises(AccessDeniedException, match="own tenant"):
        await ours("CreateAccessKey", Role="invoke", Tenant="b")
    for operation, members in (
        ("DeleteAccessKey", {}),
        ("UpdateAccessKey", {"Enabled": False}),
        ("RotateAccessKey", {}),
    ):
        with pytest.raises(ValidationException, match="Could not find access key"):
            await ours(operation, AccessKeyId=theirs["AccessKeyId"], **members)
    assert len(await listed(call)) == 2
    assert list(await listed(call, Tenant="b")) == [theirs["AccessKeyId"]]


async def test_a_key_makes_none_that_reaches_further(database: Database, call: Call) -> None:
    whole = await call("CreateAccessKey", Role="invoke")
    limited = caller(database, Caller("AKWR", "", ("chat-*", "x")))
    await limited("CreateAccessKey", Role="invoke", Endpoints=["chat-*"])
    for patterns in ([], ["*"], ["chat-*", "other"]):
        with pytest.raises(AccessDeniedException, match="own endpoint patterns"):
            await limited("CreateAccessKey", Role="invoke", Endpoints=patterns)
    with pytest.raises(AccessDeniedException, match="own endpoint patterns"):
        await limited("DeleteAccessKey", AccessKeyId=whole["AccessKeyId"])


async def test_without_a_secret_key_no_access_key_is_made(database: Database) -> None:
    from controlplane.operations.registry import OPERATIONS
    from controlplane.shapes.parse import parse

    entry = OPERATIONS["CreateAccessKey"]
    with pytest.raises(ValidationException, match="WARMROUTE_SECRET_KEY"):
        async with database.transaction() as session:
            await entry.run(Context(session, ACCOUNT, REGION, NOW), parse(entry.input, {"Role": "admin"}))

"""The command line's way in, on a real database: the first key, sealing anew, and failures in one sentence."""

import psycopg
import pytest

from access.sealing import Sealing
from contract.settings import Settings, load
from controlplane import local
from tests.access.stage import secret_key

OLD, NEW = secret_key(b"o"), secret_key(b"n")


def settings(url: str, key: str = OLD) -> Settings:
    return load({"WARMROUTE_DATABASE_URL": url, "WARMROUTE_SECRET_KEY": key})


def sealed(url: str) -> list[bytes]:
    with psycopg.connect(url) as connection:
        keys = connection.execute("SELECT secret FROM access_key WHERE kind = 'access-key'").fetchall()
        models = connection.execute("SELECT host_authorization FROM model").fetchall()
    return [bytes(row[0]) for row in (*keys, *models)]


def test_the_first_key_needs_no_key_and_is_in_the_audit(migrated_url: str) -> None:
    made = local.call(settings(migrated_url), "CreateAccessKey", Role="admin")
    assert [key["AccessKeyId"] for key in local.call(settings(migrated_url), "ListAccessKeys")["AccessKeys"]] == [
        made["AccessKeyId"]
    ]
    with pytest.raises(local.Refused, match="Could not find access key"):
        local.call(settings(migrated_url), "DeleteAccessKey", AccessKeyId="AKWRNOBODYNOBODYNOBO")
    refused, done = local.audit_records(settings(migrated_url), {}, None, None, 10)
    assert (done["principal"], done["source"], done["operation"], done["resource"], done["outcome"]) == (
        *("command line", "local", "CreateAccessKey"),
        made["AccessKeyId"],
        "OK",
    )
    assert (refused["operation"], refused["outcome"]) == ("DeleteAccessKey", "ValidationException")
    assert local.audit_records(settings(migrated_url), {"outcome": "OK"}, None, None, 10) == [done]


def test_secrets_are_sealed_anew_under_the_first_key(migrated_url: str) -> None:
    made = local.call(settings(migrated_url), "CreateAccessKey", Role="admin")
    local.call(settings(migrated_url), "CreateAccessKey", Role="invoke", Kind="api-key")
    environment = {"WARMROUTE_HOST_AUTHORIZATION": "Bearer x"}
    local.call(settings(migrated_url), "CreateModel", ModelName="m", PrimaryContainer={"Environment": environment})
    assert local.reseal(settings(migrated_url, f"{NEW},{OLD}")) == 2
    assert [Sealing.of(NEW).open(one) for one in sealed(migrated_url)] == [made["SecretAccessKey"], "Bearer x"]


def test_what_does_not_open_is_left_as_it_is(migrated_url: str) -> None:
    local.call(settings(migrated_url), "CreateAccessKey", Role="admin")
    before = sealed(migrated_url)[:1]
    with pytest.raises(local.Refused, match="does not open under any"):
        local.reseal(settings(migrated_url, NEW))
    assert sealed(migrated_url)[:1] == before
    with pytest.raises(local.Refused, match="no key to seal with"):
        local.reseal(load({"WARMROUTE_DATABASE_URL": migrated_url}))


def test_a_database_of_another_version_is_told_apart(database_url: str) -> None:
    with pytest.raises(local.Refused, match="run `warmroute migrate`"):
        local.call(settings(database_url), "ListAccessKeys")


def test_a_database_that_is_away_is_told_without_its_password() -> None:
    with pytest.raises(local.Refused, match="WARMROUTE_DATABASE_URL: database unavailable") as caught:
        local.call(settings("postgresql://u:canary@127.0.0.1:1/d"), "ListAccessKeys")
    assert "canary" not in str(caught.value)

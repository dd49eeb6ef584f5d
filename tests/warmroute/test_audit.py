"""``warmroute audit`` as an operator types it, on a real database."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.access.stage import secret_key
from warmroute.cli import main


@pytest.fixture(autouse=True)
def environment(migrated_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMROUTE_DATABASE_URL", migrated_url)
    monkeypatch.setenv("WARMROUTE_SECRET_KEY", secret_key(b"k"))


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out.splitlines()


def test_records_are_listed_with_filters(capsys: pytest.CaptureFixture[str]) -> None:
    for role in ("reader", "invoke"):
        said(capsys, "keys", "create", "--role", role)
    assert main(["keys", "delete", "AKWRNOBODYNOBODYNOBO"]) == 2
    capsys.readouterr()
    heads, *rows = said(capsys, "audit")
    assert heads.split() == ["at", "principal", "source", "operation", "resource", "outcome", "request_id"]
    assert [row.split()[4] for row in rows] == ["CreateAccessKey", "CreateAccessKey", "DeleteAccessKey"]
    (refused,) = said(capsys, "audit", "--outcome", "ValidationException", "--json")
    record = json.loads(refused)
    assert (record["operation"], record["resource"]) == ("DeleteAccessKey", "AKWRNOBODYNOBODYNOBO")
    assert len(said(capsys, "audit", "--limit", "1", "--json")) == 1
    assert said(capsys, "audit", "--request-id", record["request_id"], "--json") == [refused]
    assert said(capsys, "audit", "--principal", "nobody", "--json") == []
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert said(capsys, "audit", "--after", tomorrow, "--json") == []
    assert len(said(capsys, "audit", "--before", tomorrow, "--json")) == 3


def test_a_time_of_no_form_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["audit", "--after", "yesterday"])
    assert "is no time in ISO 8601" in capsys.readouterr().err

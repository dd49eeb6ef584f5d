"""``warmroute keys`` as an operator types it, on a real database."""

import json
from pathlib import Path

import pytest

from tests.access.stage import secret_key
from warmroute.cli import build_parser, main


@pytest.fixture
def environment(migrated_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMROUTE_DATABASE_URL", migrated_url)
    monkeypatch.setenv("WARMROUTE_SECRET_KEY", secret_key(b"k"))


def keys(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["keys", *arguments]) == code
    said = capsys.readouterr()
    return said.err if code else said.out


@pytest.mark.usefixtures("environment")
def test_the_life_of_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    limits = ("--requests-per-second", "2.5", "--concurrent-requests", "3", "--description", "nightly")
    said = keys(
        capsys, "create", "--role", "invoke", "--endpoint", "chat-*", "--endpoint", "x", "--tenant", "t", *limits
    )
    lines = dict(line.split(maxsplit=1) for line in said.splitlines())
    identity, secret = lines["AccessKeyId"], lines["SecretAccessKey"].split()[0]
    assert lines["SecretAccessKey"].endswith("(shown this once)")
    assert (lines["Endpoints"], lines["RequestsPerSecond"], lines["ConcurrentRequests"]) == ("chat-*, x", "2.5", "3")
    listed = keys(capsys, "list")
    assert secret not in listed
    assert listed.splitlines()[1].split() == [identity, "invoke", "t", "chat-*,x", "enabled", "nightly"]
    keys(capsys, "disable", identity)
    assert " disabled " in keys(capsys, "list")
    keys(capsys, "enable", identity)
    new = json.loads(keys(capsys, "rotate", identity, "--grace-seconds", "60", "--json"))
    assert new["PreviousAccessKeyId"] == identity
    assert {" rotated ", " enabled "} <= {
        f" {key} " for line in keys(capsys, "list").splitlines()[1:] for key in line.split()
    }
    keys(capsys, "delete", identity)
    assert [key["AccessKeyId"] for key in json.loads(keys(capsys, "list", "--json"))] == [new["AccessKeyId"]]
    assert json.loads(keys(capsys, "reseal", "--json")) == {"Sealed": 1}


@pytest.mark.usefixtures("environment")
def test_an_api_key_for_openai_clients(capsys: pytest.CaptureFixture[str]) -> None:
    made = json.loads(keys(capsys, "create", "--role", "invoke", "--kind", "api-key", "--json"))
    assert made["ApiKey"].startswith("sk-")
    assert made["ApiKey"] not in keys(capsys, "list", "--json")


@pytest.mark.usefixtures("environment")
def test_mistakes_are_told_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Could not find access key" in keys(capsys, "delete", "AKWRNOBODYNOBODYNOBO", code=2)
    assert "regular expression" in keys(capsys, "create", "--role", "invoke", "--endpoint", "a/b", code=2)


def test_what_it_needs_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WARMROUTE_DATABASE_URL", raising=False)
    assert "WARMROUTE_DATABASE_URL is not set" in keys(capsys, "list", code=2)


@pytest.mark.usefixtures("environment")
def test_a_key_file_that_is_not_there_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("WARMROUTE_SECRET_KEY")
    monkeypatch.setenv("WARMROUTE_SECRET_KEY_FILE", str(tmp_path / "none"))
    assert "WARMROUTE_SECRET_KEY_FILE cannot be read" in keys(capsys, "create", "--role", "admin", code=2)


@pytest.mark.parametrize("words", [["--data-dir", "d", "list"], ["list", "--data-dir", "d"], ["list"]])
def test_the_directory_of_a_running_up_may_stand_before_or_after_the_action(words: list[str]) -> None:
    options = build_parser().parse_args(["keys", *words])
    assert options.data_dir == (Path("d") if "d" in words else None)

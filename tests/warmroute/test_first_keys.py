"""``warmroute up`` with AUTH on: keys made once, kept for their owner's eyes, and calls that work as pasted."""

import json
import os
import re
import stat
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError

from contract.settings import Settings
from controlplane import local
from tests.access.stage import secret_key as a_key
from tests.warmroute.test_up import ROOT, Start
from tests.warmroute.test_up import pasted_calls as pasted_calls
from tests.warmroute.test_up import shell_path as shell_path
from tests.warmroute.test_up import start as start
from warmroute.faults import Fault
from warmroute.first_keys import ADMIN_KEY, DEMO_KEY, SECRET_KEY, first_keys, of_running, secret_key


def test_up_makes_its_keys_once_and_its_calls_are_signed(start: Start, shell_path: str) -> None:
    up = start("--hosts", "1", "--workers", "1", AUTH="on").ready()
    files = {name: (up.data_dir / name).read_text() for name in (SECRET_KEY, ADMIN_KEY, DEMO_KEY)}
    assert {stat.S_IMODE((up.data_dir / name).stat().st_mode) for name in files} == {0o600}
    for call in pasted_calls(up.text):
        environment = {"PATH": shell_path, "HOME": "/nonexistent"}
        done = subprocess.run(["bash", "-c", call], cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, (call, done.stderr)
        assert "error" not in done.stdout, done.stdout
        assert done.stdout.strip()
    (identity, secret) = re.findall(r"AccessKeyId (\S+)  SecretAccessKey (\S+)  \(shown this once\)", up.text)[0]
    client = boto3.client(
        "sagemaker",
        endpoint_url=up.control,
        region_name="us-east-1",
        aws_access_key_id=identity,
        aws_secret_access_key=secret,
    )
    assert client.describe_endpoint(EndpointName="demo")["EndpointStatus"] == "InService"
    with pytest.raises(ClientError, match="UnrecognizedClientException"):
        up.client("sagemaker").list_endpoints()
    for url in (f"{up.control}/metrics", f"{up.data}/metrics", f"{up.data}/v1/models"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url, timeout=10)
        with refused.value as answer:
            assert answer.code in (401, 403)
    found = of_running(up.data_dir, Settings())
    listed = local.call(found, "ListAccessKeys")["AccessKeys"]
    assert {key["Role"] for key in listed} == {"admin", "invoke"}
    local.call(found, "CreateAccessKey", Role="reader")
    assert local.audit_records(found, {"operation": "CreateEndpoint"}, None, None, 9)[0]["principal"] == identity
    with pytest.raises(Fault, match="WARMROUTE_DATABASE_URL is set, too"):
        of_running(up.data_dir, Settings(database_url="postgresql://h/d"))
    assert up.end() == 0

    with pytest.raises(Fault, match="no `warmroute up` with a Postgres of its own runs on"):
        of_running(up.data_dir, Settings())

    again = start("--hosts", "1", "--workers", "1", AUTH="on").ready()
    assert secret not in again.text
    assert {name: (up.data_dir / name).read_text() for name in files} == files
    logs = "".join(log.read_text(errors="replace") for log in (up.data_dir / "logs").iterdir())
    assert not any(word in logs for word in (secret, files[DEMO_KEY].strip(), files[SECRET_KEY].strip()))


def test_a_secret_key_of_ones_own_is_left_alone(tmp_path: Path) -> None:
    assert secret_key(tmp_path, Settings(secret_key=a_key(b"k"))) == {}
    assert secret_key(tmp_path, Settings(secret_key_file="/f")) == {}
    assert list(tmp_path.iterdir()) == []
    made = secret_key(tmp_path, Settings())
    assert made == secret_key(tmp_path, Settings()) == {"SECRET_KEY_FILE": str(tmp_path / SECRET_KEY)}


def test_keys_that_cannot_be_made_or_read_are_told_in_one_sentence(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "WARMROUTE_DATABASE_URL": "postgresql://u:canary@127.0.0.1:1/d"}
    with pytest.raises(Fault, match="the first keys could not be made: WARMROUTE_DATABASE_URL") as caught:
        first_keys(tmp_path, Settings(), environment | {"WARMROUTE_SECRET_KEY": a_key(b"k")}, "demo")
    assert "canary" not in str(caught.value)
    (tmp_path / ADMIN_KEY).write_text("nonsense")
    (tmp_path / DEMO_KEY).write_text("key")
    with pytest.raises(Fault, match=r"aws-credentials holds no key; delete it"):
        first_keys(tmp_path, Settings(), {}, "demo")


def test_a_key_that_was_made_is_read_back(tmp_path: Path) -> None:
    (tmp_path / ADMIN_KEY).write_text("[default]\naws_access_key_id = AKWR\naws_secret_access_key = a%b=c/+\n")
    (tmp_path / DEMO_KEY).write_text("key\n")
    found = first_keys(tmp_path, Settings(region="eu-west-1"), {}, "demo")
    assert (found.admin.id, found.admin.secret, found.admin.region) == ("AKWR", "a%b=c/+", "eu-west-1")
    assert (found.demo, found.is_new) == ("key", False)
    assert "a%b" not in json.dumps(repr(found))

"""The life of an endpoint as its users live it: boto3, the AWS CLI and the openai client, unmodified."""

import base64
import gzip
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import botocore
import openai
import pytest
from botocore.exceptions import ClientError

from tests.end_to_end.stack import LEAST_OUTSTANDING, ROLE, Stack, Traffic, User, invoke, prefix_aware, streams
from tests.fakes.answers import echo, sse
from tests.fakes.model_host import Hosts
from tests.waiting import wait_until

PREFIXES = [b"%d " % number * 1_024 for number in range(120)]


def test_boto3_from_create_to_delete_with_live_switches(stack: Stack, user: User, hosts: Hosts) -> None:
    """Create, invoke, stream, switch the strategy and back under 50 requests a second, delete: no request fails."""
    fleet = hosts.make(4)
    sagemaker, runtime = user.sagemaker, stack.runtime()
    model = user.model("m", fleet)
    warm = user.config("warm", model, 4, prefix_aware(4096, 8))
    even = user.config("even", model, 4, LEAST_OUTSTANDING)
    endpoint = user.name("e")
    made = sagemaker.create_endpoint(EndpointName=endpoint, EndpointConfigName=warm)
    assert made["EndpointArn"] == f"arn:aws:sagemaker:us-east-1:000000000000:endpoint/{endpoint}"
    assert user.status(endpoint) in ("Creating", "InService")
    user.in_service(endpoint)
    (variant,) = user.describe(endpoint)["ProductionVariants"]
    assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (4, 4)
    assert variant["CurrentWeight"] == 1.0
    body = b"the same prefix " * 300
    home = invoke(runtime, endpoint, body)
    assert {invoke(runtime, endpoint, body + b"%d" % number) for number in range(8)} == {home}
    for host in fleet:
        host.answer = sse(b"data: 1\n\n", b"data: 2\n\n")
    parts = runtime.invoke_endpoint_with_response_stream(EndpointName=endpoint, Body=body)["Body"]
    assert b"".join(part["PayloadPart"]["Bytes"] for part in parts) == b"data: 1\n\ndata: 2\n\n"
    for host in fleet:
        host.answer = echo
        host.clear()
    with Traffic(stack, endpoint, rate=50) as traffic:
        traffic.wait_for(25)
        user.update(endpoint, even)
        # InService means every worker: equal prefixes of now are spread over an idle fleet.
        switched = time.monotonic()
        traffic.wait_for(60)
        assert len(traffic.since(switched)) == 4
        assert user.describe(endpoint)["EndpointConfigName"] == even
        user.update(endpoint, warm)
        runtimes = [stack.runtime(plane) for plane in stack.planes]
        assert {invoke(one, endpoint, body) for one in runtimes for _ in range(5)} == {home}
        traffic.wait_for(25)
    assert traffic.failures == []
    delivered = sum(len(host.deliveries) for host in fleet)
    assert delivered == len(traffic.served) + 10
    user.delete(endpoint)
    with pytest.raises(ClientError) as gone:
        sagemaker.describe_endpoint(EndpointName=endpoint)
    assert gone.value.response["Error"]["Code"] == "ValidationException"
    with pytest.raises(ClientError, match="not found"):
        invoke(runtime, endpoint, body)


class Cli:
    """The AWS CLI, with nothing of this machine's own configuration."""

    def __init__(self, stack: Stack, directory: Path) -> None:
        self._urls = {"sagemaker": stack.control.url, "sagemaker-runtime": stack.plane.url}
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

        # The newest CLI on PyPI carries an older service model, without PREFIX_AWARE. This is where
        # `aws configure add-model` puts a newer one; botocore's own is AWS's.
        model = Path(botocore.__file__).parent / "data/sagemaker/2017-07-24/service-2.json.gz"
        place = directory / ".aws/models/sagemaker/2017-07-24/service-2.json"
        place.parent.mkdir(parents=True)
        place.write_bytes(gzip.decompress(model.read_bytes()))

    def run(self, service: str, operation: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        line = [str(Path(sys.executable).parent / "aws"), service, *operation.split(), "--output", "json"]
        line += ["--endpoint-url", self._urls[service], *options]
        return subprocess.run(line, env=self._environ, capture_output=True, text=True, timeout=60)

    def __call__(self, service: str, operation: str, *options: str) -> Any:
        """Run one command that must succeed; return what it printed."""
        ended = self.run(service, operation, *options)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout) if ended.stdout.strip() else None


def test_the_aws_cli_from_create_to_delete(stack: Stack, user: User, hosts: Hosts, tmp_path: Path) -> None:
    """The same life through ``aws sagemaker`` and ``aws sagemaker-runtime`` with --endpoint-url."""
    fleet = hosts.make(2)
    aws = Cli(stack, tmp_path)
    model, config, even, endpoint = (user.name(name) for name in ("m", "c", "even", "e"))
    user._made.append(endpoint)
    container = {"Image": "vllm", "Environment": {"WARMROUTE_HOSTS": ",".join(host.url for host in fleet)}}
    aws("sagemaker", "create-model", "--model-name", model, "--execution-role-arn", ROLE,
        "--primary-container", json.dumps(container))  # fmt: skip
    variant = {"VariantName": "v", "ModelName": model, "InitialInstanceCount": 2, "InstanceType": "ml.g5.xlarge"}
    for name, routing in ((config, prefix_aware()), (even, LEAST_OUTSTANDING)):
        aws("sagemaker", "create-endpoint-config", "--endpoint-config-name", name,
            "--production-variants", json.dumps([{**variant, "RoutingConfig": routing}]))  # fmt: skip
    aws("sagemaker", "create-endpoint", "--endpoint-name", endpoint, "--endpoint-config-name", config)
    user.wait_status(endpoint, "InService")
    aws("sagemaker", "wait endpoint-in-service", "--endpoint-name", endpoint)
    out = tmp_path / "answer"
    body = base64.b64encode(b"hello").decode()
    answer = aws("sagemaker-runtime", "invoke-endpoint", "--endpoint-name", endpoint, "--body", body, str(out))
    assert answer["InvokedProductionVariant"] == "v"
    assert json.loads(out.read_bytes())["host"] in ("h1", "h2")
    aws("sagemaker", "update-endpoint", "--endpoint-name", endpoint, "--endpoint-config-name", even)
    user.wait_status(endpoint, "InService")
    found = aws("sagemaker", "describe-endpoint", "--endpoint-name", endpoint)
    assert found["EndpointConfigName"] == even
    assert "CreationTime" in found
    wrong = aws.run("sagemaker", "describe-endpoint", "--endpoint-name", user.name("nope"))
    assert wrong.returncode != 0
    assert "Could not find endpoint" in wrong.stderr
    aws("sagemaker", "delete-endpoint", "--endpoint-name", endpoint)
    user.wait_status(endpoint, "")
    aws("sagemaker", "wait endpoint-deleted", "--endpoint-name", endpoint)


def test_the_openai_client_uses_what_boto3_made(stack: Stack, user: User, hosts: Hosts) -> None:
    """/v1 with the endpoint as model, AWS's path, and the list of models, which has no Creating one."""
    endpoint = user.deploy("e", hosts.make(2), prefix_aware())
    loading = hosts.one()
    loading.ping = sse(status=503)
    creating = user.endpoint("loading", user.config("c", user.model("m", [loading]), 1), wait=False)
    messages: Any = [{"role": "user", "content": "hi"}]
    with openai.OpenAI(base_url=f"{stack.plane.url}/v1", api_key="x", max_retries=0) as client:
        listed = {model.id: model for model in client.models.list()}
        assert endpoint in listed
        assert creating not in listed
        created = user.describe(endpoint)["CreationTime"].timestamp()
        assert abs(listed[endpoint].created - created) <= 1
        whole = client.chat.completions.create(model=endpoint, messages=messages)
        assert whole.choices[0].message.content
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model=creating, messages=messages)
    base = f"{stack.plane.url}/endpoints/{endpoint}/openai/v1"
    with openai.OpenAI(base_url=base, api_key="x", max_retries=0) as client:
        parts = client.chat.completions.create(model="", messages=messages, stream=True)
        assert "".join(part.choices[0].delta.content or "" for part in parts).startswith("Hello from")
    loading.ping = sse(b"ok")
    user.in_service(creating)


def test_a_fifth_host_by_a_new_model_moves_only_its_share(stack: Stack, user: User, hosts: Hosts) -> None:
    """The four known identities keep their places through UpdateEndpoint; the rest moves to the new host."""
    fleet = hosts.make(4)
    endpoint = user.deploy("e", fleet, prefix_aware(1024))
    runtimes = [stack.runtime(plane) for plane in stack.planes]
    before = [invoke(runtimes[0], endpoint, body) for body in PREFIXES]
    assert [invoke(runtimes[1], endpoint, body) for body in PREFIXES] == before
    # Order of the list plays no part.
    grown = user.model("grown", [hosts.one(), *reversed(fleet)])
    user.update(endpoint, user.config("five", grown, 5, prefix_aware(1024)))
    after = [[invoke(runtime, endpoint, body) for body in PREFIXES] for runtime in runtimes]
    assert after[0] == after[1]
    moved = [new for old, new in zip(before, after[0], strict=True) if old != new]
    assert set(moved) == {"h5"}
    # A fifth of 120 is 24; the identities are URLs with new ports each time, so five deviations of 4.4 are allowed.
    assert 2 <= len(moved) <= 46


def test_weights_move_the_traffic(stack: Stack, user: User, hosts: Hosts) -> None:
    """1 to 1, then 0 to 1, kept by RetainAllVariantProperties, given up by its exclusion."""
    first, second = hosts.make(2)
    names = {"v1": user.model("m1", [first]), "v2": user.model("m2", [second])}
    variants = [
        {"VariantName": name, "ModelName": model, "InitialInstanceCount": 1, "InstanceType": "ml.g5.xlarge"}
        for name, model in names.items()
    ]
    for name in ("c1", "c2", "c3"):
        user.sagemaker.create_endpoint_config(EndpointConfigName=user.name(name), ProductionVariants=variants)
    endpoint = user.endpoint("e", user.name("c1"))
    runtime = stack.runtime()

    def shares() -> Counter[str]:
        return Counter(invoke(runtime, endpoint, b"x") for _ in range(40))

    assert set(shares()) == {"h1", "h2"}
    weights = [{"VariantName": "v1", "DesiredWeight": 0}, {"VariantName": "v2", "DesiredWeight": 1}]
    user.sagemaker.update_endpoint_weights_and_capacities(EndpointName=endpoint, DesiredWeightsAndCapacities=weights)
    user.in_service(endpoint)
    assert shares() == {"h2": 40}
    user.update(endpoint, user.name("c2"), RetainAllVariantProperties=True)
    assert shares() == {"h2": 40}
    excluded = [{"VariantPropertyType": "DesiredWeight"}]
    user.update(endpoint, user.name("c3"), RetainAllVariantProperties=True, ExcludeRetainedVariantProperties=excluded)
    assert set(shares()) == {"h1", "h2"}


def test_a_name_can_be_used_again(stack: Stack, user: User, hosts: Hosts) -> None:
    """Another endpoint of the same configuration goes on; the same name is made anew at once."""
    fleet = hosts.make(2)
    model = user.model("m", fleet)
    config = user.config("c", model, 1, prefix_aware())
    one, two = user.endpoint("one", config), user.endpoint("two", config)
    runtime = stack.runtime()
    kept = invoke(runtime, two, b"x")
    user.delete(one)
    assert invoke(runtime, two, b"x") == kept
    assert user.endpoint("one", config) == one
    assert invoke(runtime, one, b"x") != kept


def test_an_update_to_the_config_in_force_disturbs_nothing(stack: Stack, user: User, hosts: Hosts) -> None:
    """Five open streams end whole, whether the call is taken or refused."""
    (host,) = fleet = hosts.make(1)
    endpoint = user.deploy("e", fleet, prefix_aware())
    config = user.describe(endpoint)["EndpointConfigName"]
    gate = host.hold(before_head=False)
    with streams(stack.plane, endpoint, 5) as clients:
        try:
            user.update(endpoint, config)
        except ClientError as refused:
            assert refused.response["Error"]["Code"] == "ValidationException"  # noqa: PT017
        assert user.status(endpoint) == "InService"
        assert host.in_flight == 5
        gate.open()
        for client in clients:
            client.until(b"data: last\n\n")
            client.until(b"0\r\n\r\n")


def test_hosts_that_register_and_lapse(stack: Stack, user: User, hosts: Hosts) -> None:
    """Hosts that come and go: registration with a time to live; who does not renew it leaves the routes."""
    first, second = hosts.make(2)
    model = user.model("m", [])
    user.register(model, first, HostName=user.name("one"))
    user.register(model, second, HostName=user.name("two"), TtlSeconds=2)
    endpoint = user.endpoint("e", user.config("c", model, 2, {"RoutingStrategy": "RANDOM"}))
    runtime = stack.runtime()
    assert {invoke(runtime, endpoint, b"x") for _ in range(30)} <= {"h1", "h2"}
    wait_until(lambda: {invoke(runtime, endpoint, b"x") for _ in range(12)} == {"h1"}, 10.0)
    user.register(model, second, HostName=user.name("two"))
    wait_until(lambda: "h2" in {invoke(runtime, endpoint, b"x") for _ in range(12)}, 10.0)


def test_endpoints_that_are_not_in_service_cannot_be_invoked(stack: Stack, user: User, hosts: Hosts) -> None:
    """Creating and deleted; nothing reaches a host."""
    (host,) = hosts.make(1)
    host.ping = sse(status=503)
    endpoint = user.endpoint("e", user.config("c", user.model("m", [host]), 1), wait=False)
    runtime = stack.runtime()
    with pytest.raises(ClientError) as caught:
        invoke(runtime, endpoint, b"x")
    assert caught.value.response["Error"]["Code"] == "ValidationError"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert host.deliveries == []
    host.ping = sse(b"ok")
    user.in_service(endpoint)
    assert invoke(runtime, endpoint, b"x") == host.name

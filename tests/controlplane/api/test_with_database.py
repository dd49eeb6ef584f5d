"""Both doors over the real operations and a real Postgres, driven by unmodified boto3 and by plain HTTP."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import httpx
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from controlplane.api.app import build_app
from controlplane.store.session import Database
from migrations import runner
from tests.controlplane.api.stubs import served
from tests.controlplane.stage import ACCOUNT, REGION
from tests.services import PrivateServer

VARIANT = {"VariantName": "v1", "ModelName": "m", "InitialInstanceCount": 1}
HOSTS = {"WARMROUTE_HOSTS": "http://127.0.0.1:9001,http://127.0.0.1:9002"}


@contextmanager
def replica(database_url: str) -> Iterator[str]:
    """Serve one replica of the control plane's API; yield its URL."""
    database = Database(database_url)
    app = build_app(
        database=database, account_id=ACCOUNT, region=REGION, is_ready=lambda: (True, ""), metrics=lambda: ""
    )
    with served(app, database.dispose) as url:
        yield url


@pytest.fixture
def url(migrated_url: str) -> Iterator[str]:
    with replica(migrated_url) as url:
        yield url


def client_of(url: str) -> Any:
    return boto3.client(
        "sagemaker",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id="a",
        aws_secret_access_key="s",
        config=Config(retries={"total_max_attempts": 1}, max_pool_connections=20),
    )


@pytest.fixture
def sagemaker(url: str) -> Any:
    client = client_of(url)
    client.create_model(ModelName="m", PrimaryContainer={"Environment": HOSTS})
    return client


def refusal(call: Callable[..., Any], **members: Any) -> str:
    with pytest.raises(ClientError) as raised:
        call(**members)
    assert raised.value.response["Error"]["Code"] == "ValidationException"
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    return str(raised.value.response["Error"]["Message"])


def test_a_config_is_echoed_as_it_was_sent(sagemaker: Any, url: str) -> None:
    routing = {
        "RoutingStrategy": "PREFIX_AWARE",
        "PrefixAwareRoutingConfig": {"PrefixLength": 4096, "ConcurrencyThreshold": 8},
    }
    variants = [
        VARIANT | {"InitialVariantWeight": 0.8, "InstanceType": "ml.g5.xlarge"},
        VARIANT | {"VariantName": "v2", "InitialVariantWeight": 1e-7, "RoutingConfig": routing},
        VARIANT | {"VariantName": "v3", "InitialVariantWeight": 123456.789},
    ]
    arn = sagemaker.create_endpoint_config(EndpointConfigName="C1", ProductionVariants=variants)["EndpointConfigArn"]
    assert arn == f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:endpoint-config/c1"
    answer = sagemaker.describe_endpoint_config(EndpointConfigName="C1")
    assert answer["ProductionVariants"] == variants
    raw = [httpx.post(f"{url}/DescribeEndpointConfig", json={"EndpointConfigName": "C1"}).content for _ in range(2)]
    assert raw[0] == raw[1]
    members = {"EndpointConfigName", "EndpointConfigArn", "ProductionVariants", "CreationTime"}
    assert json.loads(raw[0]).keys() == members
    assert b"null" not in raw[0]


def test_an_existing_name(sagemaker: Any) -> None:
    sagemaker.create_endpoint_config(EndpointConfigName="c1", ProductionVariants=[VARIANT])
    other = VARIANT | {"InitialVariantWeight": 5.0}
    message = refusal(sagemaker.create_endpoint_config, EndpointConfigName="c1", ProductionVariants=[other])
    assert message.startswith("Cannot create already existing endpoint configuration")
    assert "UpdateEndpoint" in message
    answer = sagemaker.describe_endpoint_config(EndpointConfigName="c1")
    assert answer["ProductionVariants"][0]["InitialVariantWeight"] == 1.0


def test_creating_one_name_many_times_at_once(sagemaker: Any, url: str, migrated_url: str) -> None:
    with ExitStack() as stack:
        urls = [url, stack.enter_context(replica(migrated_url))]
        clients = [client_of(url) for url in urls]

        def create(number: int) -> str:
            try:
                clients[number % 2].create_endpoint_config(EndpointConfigName="same", ProductionVariants=[VARIANT])
            except ClientError as error:
                return str(error.response["Error"]["Code"])
            return "OK"

        with ThreadPoolExecutor(16) as pool:
            outcomes = sorted(pool.map(create, range(16)))
        assert outcomes == ["OK"] + ["ValidationException"] * 15
        for client in clients:
            assert len(client.list_endpoint_configs()["EndpointConfigs"]) == 1


def test_an_endpoint_is_found_at_once(sagemaker: Any) -> None:
    sagemaker.create_endpoint_config(EndpointConfigName="c1", ProductionVariants=[VARIANT])
    before = datetime.now(UTC)
    sagemaker.create_endpoint(EndpointName="E1", EndpointConfigName="c1")
    answer = sagemaker.describe_endpoint(EndpointName="E1")
    assert (answer["EndpointName"], answer["EndpointStatus"]) == ("E1", "Creating")
    assert abs(answer["CreationTime"] - before) < timedelta(seconds=5)
    message = refusal(sagemaker.create_endpoint, EndpointName="e1", EndpointConfigName="c1")
    assert message.startswith("Cannot create already existing endpoint ")
    assert "Cannot update in-progress endpoint" in refusal(sagemaker.delete_endpoint, EndpointName="E1")


def test_times_of_a_description_work_as_filters(sagemaker: Any) -> None:
    def names(**filters: datetime) -> list[str]:
        return [model["ModelName"] for model in sagemaker.list_models(**filters)["Models"]]

    created = sagemaker.describe_model(ModelName="m")["CreationTime"]
    assert names(CreationTimeAfter=created) == ["m"]
    assert names(CreationTimeBefore=created) == []
    assert names(CreationTimeBefore=created + timedelta(milliseconds=1)) == ["m"]


def test_pages_of_a_filtered_list(sagemaker: Any) -> None:
    for name in ("a-1", "b-1", "a-2", "b-2", "a-3"):
        sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[VARIANT])
    pages = sagemaker.get_paginator("list_endpoint_configs").paginate(
        NameContains="a-", SortBy="Name", SortOrder="Ascending", PaginationConfig={"PageSize": 1}
    )
    listed = [[config["EndpointConfigName"] for config in page["EndpointConfigs"]] for page in pages]
    assert listed == [["a-1"], ["a-2"], ["a-3"]]
    assert "nextToken" in refusal(sagemaker.list_endpoint_configs, NextToken="garbage")
    assert "maxResults" in refusal(sagemaker.list_endpoint_configs, MaxResults=101)


def test_pages_stay_whole_while_items_come_and_go(sagemaker: Any) -> None:
    for number in range(25):
        sagemaker.create_endpoint_config(EndpointConfigName=f"c{number}", ProductionVariants=[VARIANT])
    first = sagemaker.list_endpoint_configs(MaxResults=10)
    seen = [config["EndpointConfigName"] for config in first["EndpointConfigs"]]
    sagemaker.create_endpoint_config(EndpointConfigName="new", ProductionVariants=[VARIANT])
    sagemaker.delete_endpoint_config(EndpointConfigName=seen[4])
    token = first["NextToken"]
    while token:
        page = sagemaker.list_endpoint_configs(MaxResults=10, NextToken=token)
        seen += [config["EndpointConfigName"] for config in page["EndpointConfigs"]]
        token = page.get("NextToken")
    assert sorted(seen) == sorted(f"c{number}" for number in range(25))


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("AddTags", '{"ResourceArn": "%s", "Tags": [{"Key": "k\\u0000", "Value": "v"}]}'),
        ("AddTags", '{"ResourceArn": "%s", "Tags": [{"Key": "k", "Value": "\\ud83d"}]}'),
        ("DescribeEndpointConfig", '{"EndpointConfigName": "a\\u0000b"}'),
        ("ListModels", '{"NameContains": "\\u0000"}'),
        ("ListModels", '{"NextToken": "\\u0000"}'),
        ("CreateModel", '{"ModelName": "n", "PrimaryContainer": {"Environment": {"A": "\\u0000"}}}'),
        ("CreateModel", '{"ModelName": "n", "PrimaryContainer": {"Environment": {"A": "\\ud83d"}}}'),
        (
            "CreateModel",
            '{"ModelName": "n", "PrimaryContainer": {"ModelDataSource": {"S3DataSource": {"ETag": "\\u0000"}}}}',
        ),
    ],
)
def test_what_postgres_cannot_hold(sagemaker: Any, url: str, operation: str, body: str) -> None:
    arn = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:model/m"
    response = httpx.post(f"{url}/{operation}", content=body.replace("%s", arn))
    assert (response.status_code, response.json()["__type"]) == (400, "ValidationException")
    assert sagemaker.list_models()["Models"][0]["ModelName"] == "m"


def test_nothing_is_written_by_a_refused_request(sagemaker: Any, url: str) -> None:
    body = json.dumps(
        {"EndpointConfigName": "c1", "ProductionVariants": [VARIANT | {"InitialVariantWeight": float("nan")}]}
    )
    assert httpx.post(f"{url}/CreateEndpointConfig", content=body).status_code == 400
    assert sagemaker.list_endpoint_configs()["EndpointConfigs"] == []
    assert "Could not find" in refusal(sagemaker.describe_endpoint_config, EndpointConfigName="c1")


def test_tags(sagemaker: Any) -> None:
    arn = sagemaker.describe_model(ModelName="m")["ModelArn"]
    tags = [{"Key": "a", "Value": "1"}, {"Key": "caf\u00e9", "Value": ""}]
    assert sagemaker.add_tags(ResourceArn=arn, Tags=tags)["Tags"] == tags
    sagemaker.delete_tags(ResourceArn=arn, TagKeys=["a", "gone"])
    assert sagemaker.list_tags(ResourceArn=arn)["Tags"] == tags[1:]
    assert "Could not find" in refusal(sagemaker.list_tags, ResourceArn=arn.replace("model/m", "model/x"))


def test_model_hosts_by_plain_http(sagemaker: Any, url: str) -> None:
    def post(operation: str, **members: Any) -> dict[str, Any]:
        response = httpx.post(f"{url}/{operation}", json=members)
        assert response.status_code == 200, response.text
        return dict(response.json())

    post("RegisterModelHost", ModelName="m", BaseUrl="http://127.0.0.1:9003/", HostName="gpu-3", TtlSeconds=60)
    hosts = post("ListModelHosts", ModelName="m")["Hosts"]
    assert [(host["HostName"], host["BaseUrl"], host["Source"]) for host in hosts] == [
        ("gpu-3", "http://127.0.0.1:9003", "Registration"),
        ("http://127.0.0.1:9001", "http://127.0.0.1:9001", "Environment"),
        ("http://127.0.0.1:9002", "http://127.0.0.1:9002", "Environment"),
    ]
    assert post("DeregisterModelHost", ModelName="m", HostName="gpu-3") == {}


def test_a_database_that_goes_and_comes_back(private_postgres: Callable[[], PrivateServer]) -> None:
    server = private_postgres()
    asyncio.run(runner.upgrade(server.url))
    with replica(server.url) as url, ThreadPoolExecutor(20) as pool:

        def list_models(_: int) -> tuple[int, str, float]:
            started = time.monotonic()
            response = httpx.post(f"{url}/ListModels", json={}, timeout=30)
            return response.status_code, response.json().get("__type", "OK"), time.monotonic() - started

        def outcomes(requests: int) -> set[tuple[int, str]]:
            answers = list(pool.map(list_models, range(requests)))
            assert max(seconds for _, _, seconds in answers) < 5
            return {(status, code) for status, code, _ in answers}

        assert outcomes(20) == {(200, "OK")}
        server.kill()
        assert outcomes(3) == {(503, "ServiceUnavailable")}
        server.start()
        assert outcomes(20) == {(200, "OK")}

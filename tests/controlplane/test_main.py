"""The whole plane as a process: starts that fail in one sentence, stops, kills, and what official clients see."""

import itertools
import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import redis as redis_library
from botocore.exceptions import ClientError

from contract.settings import Settings
from controlplane import main
from tests import services
from tests.controlplane.plane_process import PlaneProcess, running
from tests.controlplane.stage import table_in
from tests.fakes.answers import Answer
from tests.fakes.model_host import Hosts
from tests.waiting import wait_until

WAIT = {"Delay": 1, "MaxAttempts": 30}


@pytest.fixture(scope="module")
def shared(
    postgres_url: str, migrated_template: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PlaneProcess]:
    """A plane far from UTC that several tests use, one after the other."""
    with (
        services.new_database(postgres_url, template=migrated_template) as url,
        running(tmp_path_factory.mktemp("plane") / "log", url, redis_url, TZ="Asia/Tokyo") as plane,
    ):
        yield plane


def create(client: Any, *urls: str, name: str = "e", **variant: Any) -> None:
    """A model, two configurations c1 and c2, and an endpoint on c1."""
    client.create_model(ModelName="m", PrimaryContainer={"Environment": {"WARMROUTE_HOSTS": ",".join(urls)}})
    routing = {
        "RoutingStrategy": "PREFIX_AWARE",
        "PrefixAwareRoutingConfig": {"PrefixLength": 4096, "ConcurrencyThreshold": 8},
    }
    for config, strategy in (("c1", routing), ("c2", {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"})):
        variants = [
            {"VariantName": "v", "ModelName": "m", "InitialInstanceCount": 1, "RoutingConfig": strategy, **variant}
        ]
        client.create_endpoint_config(EndpointConfigName=config, ProductionVariants=variants)
    client.create_endpoint(EndpointName=name, EndpointConfigName="c1")


def status(client: Any, name: str = "e") -> str:
    return str(client.describe_endpoint(EndpointName=name)["EndpointStatus"])


# --- starts that fail ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "host", "message"),
    [
        ({"auth": "on"}, "127.0.0.1", "WARMROUTE_AUTH=on needs WARMROUTE_SECRET_KEY or WARMROUTE_SECRET_KEY_FILE"),
        ({"tls_cert_file": "/c"}, "127.0.0.1", "WARMROUTE_TLS_CERT_FILE and WARMROUTE_TLS_KEY_FILE go together"),
        ({"tls_ca_file": "/nonexistent"}, "127.0.0.1", "WARMROUTE_TLS_CA_FILE cannot be read"),
        ({}, "0.0.0.0", "WARMROUTE_AUTH=off is accepted on loopback addresses only, not on 0.0.0.0"),
        ({}, "no-such-host.invalid", "no-such-host.invalid is no address of this machine"),
        ({"database_url": ""}, "127.0.0.1", "WARMROUTE_DATABASE_URL is not set"),
        ({"redis_url": ""}, "127.0.0.1", "WARMROUTE_REDIS_URL is not set"),
    ],
)
async def test_what_cannot_be_served_is_refused_in_one_sentence(
    settings: dict[str, str], host: str, message: str
) -> None:
    given = {"database_url": "postgresql://h/d", "redis_url": "redis://h"} | settings
    with pytest.raises(main.StartupError, match=message):
        await main.serve(Settings(**given), host, 0)  # type: ignore[arg-type]


async def test_a_port_in_use_ends_the_start(migrated_url: str, redis_url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = Settings(database_url=migrated_url, redis_url=redis_url)
        with pytest.raises(main.StartupError, match=f"cannot listen on 127.0.0.1 port {port}: Address already in use"):
            await main.serve(settings, "127.0.0.1", port)


async def failed_start(database_url: str) -> str:
    with pytest.raises(main.StartupError) as caught:
        await main.serve(Settings(database_url=database_url, redis_url="redis://127.0.0.1:1"), "127.0.0.1", 0)
    return str(caught.value)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://user:secret@127.0.0.1:1/none", "Connect"),
        ("postgresql://user:secret@no-such-host.invalid/none", "not known"),
    ],
)
async def test_a_database_that_stays_away_ends_the_start(url: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "_DATABASE_SECONDS", 1.0)
    started = time.monotonic()
    text = await failed_start(url)
    assert time.monotonic() - started >= 1.0
    assert text.startswith("WARMROUTE_DATABASE_URL: database unavailable: ")
    assert told in text
    assert "secret" not in text


async def test_what_no_wait_would_mend_ends_the_start_at_once(migrated_url: str) -> None:
    started = time.monotonic()
    nowhere = urlsplit(migrated_url)._replace(path="/nowhere").geturl()
    assert 'database "nowhere" does not exist' in await failed_start(nowhere)
    assert time.monotonic() - started < main._DATABASE_SECONDS


async def test_a_newer_schema_ends_the_start_and_stays(migrated_copy_url: str) -> None:
    with psycopg.connect(migrated_copy_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    told = await failed_start(migrated_copy_url)
    assert told.startswith("the database schema (revision 9999) is newer than this build")
    with psycopg.connect(migrated_copy_url) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("9999",)


# --- starting and stopping -------------------------------------------------------------------------------------------


def test_replicas_started_together_on_an_empty_database_all_serve(
    tmp_path: Path, database_url: str, redis_url: str, redis: redis_library.Redis
) -> None:
    planes = [PlaneProcess(tmp_path / f"log{number}", database_url, redis_url) for number in range(2)]
    try:
        for plane in planes:
            plane.spawn()
        for plane in planes:
            plane.await_port()
            wait_until(lambda plane=plane: plane.get("/health/ready")[0] == 200)
        assert planes[0].post("CreateModel", ModelName="m")[0] == 200
        assert planes[1].post("DescribeModel", ModelName="m")[0] == 200
        assert [plane.end(signal.SIGTERM, limit_seconds=8) for plane in planes] == [0, 0]
        for plane in planes:
            text = plane.log.read_text()
            assert not any(word in text for word in ("Traceback", "ERROR", "never retrieved"))
    finally:
        for plane in planes:
            plane.close()


def test_health_metrics_and_log_tell_of_an_outage_and_its_end(
    tmp_path: Path, private_postgres: Callable[[], Any], redis_url: str, redis: redis_library.Redis
) -> None:
    server = private_postgres()
    with running(tmp_path / "log", server.url, redis_url) as plane:
        wait_until(lambda: plane.get("/health/ready")[0] == 200)
        server.kill()
        started = time.monotonic()
        code, document = plane.post("ListModels")
        assert time.monotonic() - started < 5
        assert code == 503
        assert "database" in document["message"]
        wait_until(lambda: plane.get("/health/ready")[0] == 503)
        assert "database" in plane.get("/health/ready")[1]
        assert plane.get("/health/live")[0] == 200
        assert 'warmroute_task_failing{task="settle_endpoints"} 1' in plane.get("/metrics")[1]
        server.start()
        wait_until(lambda: plane.get("/health/ready")[0] == 200)
        assert plane.post("ListModels")[0] == 200
        told = [line for line in plane.log.read_text().splitlines() if "settle_endpoints" in line]
        assert "settle_endpoints fails and is tried again" in told[0]
        assert "settle_endpoints works again" in told[-1]
        # A line for each change of the reason: a server that dies and starts refuses in several ways, in any order.
        reasons = [line.partition("settle_endpoints")[2] for line in told]
        assert all(before != after for before, after in itertools.pairwise(reasons))
        assert plane.end(signal.SIGINT, limit_seconds=8) == 0


# --- what clients see ------------------------------------------------------------------------------------------------


def test_the_life_of_an_endpoint_by_boto3_and_its_waiters(
    shared: PlaneProcess, hosts: Hosts, redis: redis_library.Redis
) -> None:
    client = shared.boto3
    create(client, *(host.url for host in hosts.make(4)), InitialInstanceCount=4)
    client.get_waiter("endpoint_in_service").wait(EndpointName="e", WaiterConfig=WAIT)
    found = client.describe_endpoint(EndpointName="e")
    (variant,) = found["ProductionVariants"]
    assert variant["CurrentInstanceCount"] == variant["DesiredInstanceCount"] == 4
    assert variant["CurrentWeight"] == 1.0
    assert variant["RoutingConfig"]["PrefixAwareRoutingConfig"] == {"PrefixLength": 4096, "ConcurrencyThreshold": 8}
    client.update_endpoint(EndpointName="e", EndpointConfigName="c2")
    with pytest.raises(ClientError, match="Cannot update in-progress endpoint"):
        client.update_endpoint(EndpointName="e", EndpointConfigName="c1")
    client.get_waiter("endpoint_in_service").wait(EndpointName="e", WaiterConfig=WAIT)
    assert client.describe_endpoint(EndpointName="e")["EndpointConfigName"] == "c2"
    client.add_tags(ResourceArn=found["EndpointArn"], Tags=[{"Key": "k", "Value": "v"}])
    assert client.list_tags(ResourceArn=found["EndpointArn"])["Tags"] == [{"Key": "k", "Value": "v"}]
    client.delete_endpoint(EndpointName="e")
    client.get_waiter("endpoint_deleted").wait(EndpointName="e", WaiterConfig=WAIT)
    with pytest.raises(ClientError) as caught:
        client.describe_endpoint(EndpointName="e")
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    table = table_in(redis)
    assert table is not None
    assert (table.account_id, table.region) == ("000000000000", "us-east-1")


@pytest.fixture
def several(shared: PlaneProcess) -> Iterator[list[str]]:
    """Five endpoints in the order of their making."""
    client = shared.boto3
    client.create_model(ModelName="list-m")
    variants = [{"VariantName": "v", "ModelName": "list-m"}]
    client.create_endpoint_config(EndpointConfigName="list-c", ProductionVariants=variants)
    names = ["a-1", "b-1", "a-2", "b-2", "a-3"]
    for name in names:
        client.create_endpoint(EndpointName=name, EndpointConfigName="list-c")
    yield names
    with psycopg.connect(shared.environment["WARMROUTE_DATABASE_URL"]) as connection:
        connection.execute("DELETE FROM endpoint WHERE config_name = 'list-c'")
    client.delete_endpoint_config(EndpointConfigName="list-c")
    client.delete_model(ModelName="list-m")


def test_lists_are_filtered_before_they_are_cut_into_pages(shared: PlaneProcess, several: list[str]) -> None:
    client = shared.boto3

    def pages(**wanted: Any) -> list[list[str]]:
        found = client.get_paginator("list_endpoints").paginate(**wanted)
        return [[each["EndpointName"] for each in page["Endpoints"]] for page in found]

    assert pages(PaginationConfig={"PageSize": 2}) == [["a-3", "b-2"], ["a-2", "b-1"], ["a-1"]]
    by_name = {"SortBy": "Name", "SortOrder": "Ascending"}
    assert pages(NameContains="a-", **by_name, PaginationConfig={"PageSize": 1}) == [["a-1"], ["a-2"], ["a-3"]]
    assert pages(StatusEquals="Creating", **by_name) == [sorted(several)]
    assert pages(StatusEquals="InService") == [[]]
    with pytest.raises(ClientError, match="NextToken"):
        client.list_endpoints(NextToken="garbage")
    for bad in (0, 101):
        assert shared.post("ListEndpoints", MaxResults=bad)[0] == 400


def test_times_are_epoch_seconds_whatever_the_time_zone(shared: PlaneProcess, several: list[str]) -> None:
    _, found = shared.post("DescribeEndpoint", EndpointName="a-3")
    now = time.time()
    for member in ("CreationTime", "LastModifiedTime"):
        assert isinstance(found[member], float | int)
        assert abs(found[member] - now) < 5
    whole: list[dict[str, float]] = [
        {"CreationTimeAfter": now - 60, "CreationTimeBefore": now + 60},
        {"LastModifiedTimeAfter": now - 60, "LastModifiedTimeBefore": now + 60},
    ]
    for filters in whole:
        names = [each["EndpointName"] for each in shared.post("ListEndpoints", **filters)[1]["Endpoints"]]
        assert sorted(names) == sorted(several)
    last = {"CreationTimeAfter": found["CreationTime"]}
    assert [each["EndpointName"] for each in shared.post("ListEndpoints", **last)[1]["Endpoints"]] == ["a-3"]
    for filters in ({"CreationTimeAfter": now + 60}, {"LastModifiedTimeBefore": now - 60}):
        assert shared.post("ListEndpoints", **filters)[1]["Endpoints"] == []


def test_an_answer_that_was_lost_leaves_a_whole_effect(shared: PlaneProcess, several: list[str]) -> None:
    client = shared.boto3
    body = json.dumps({"EndpointName": "lost", "EndpointConfigName": "list-c"}).encode()
    with socket.create_connection(("127.0.0.1", shared.port)) as leaver:
        leaver.sendall(
            b"POST /CreateEndpoint HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % len(body)
            + body
        )

    def there() -> bool:
        try:
            return bool(status(client, "lost"))
        except ClientError:
            return False

    wait_until(there)
    with pytest.raises(ClientError, match="Cannot create already existing endpoint"):
        client.create_endpoint(EndpointName="lost", EndpointConfigName="list-c")


# --- kills -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def own_redis(private_redis: Callable[..., Any]) -> Iterator[redis_library.Redis]:
    """A Redis into which no other plane writes its routes."""
    with redis_library.Redis.from_url(private_redis().url) as client:
        yield client


@pytest.fixture
def plane(migrated_url: str, own_redis: redis_library.Redis, tmp_path: Path) -> Iterator[PlaneProcess]:
    port = own_redis.connection_pool.connection_kwargs["port"]
    with running(tmp_path / "log", migrated_url, f"redis://127.0.0.1:{port}/0") as plane:
        yield plane


@pytest.mark.parametrize("moment", ["Creating", "Updating"])
def test_a_killed_plane_resumes_where_it_was(
    plane: PlaneProcess, hosts: Hosts, own_redis: redis_library.Redis, moment: str
) -> None:
    client = plane.boto3
    first, second = hosts.make(2)
    if moment == "Creating":
        first.ping = Answer(status=503)
    create(client, first.url)
    if moment == "Updating":
        wait_until(lambda: status(client) == "InService")
        second.ping = Answer(status=503)
        environment = {"WARMROUTE_HOSTS": second.url}
        client.create_model(ModelName="m2", PrimaryContainer={"Environment": environment})
        client.create_endpoint_config(
            EndpointConfigName="c3", ProductionVariants=[{"VariantName": "v", "ModelName": "m2"}]
        )
        client.update_endpoint(EndpointName="e", EndpointConfigName="c3")
    waiting_for = first if moment == "Creating" else second
    wait_until(lambda: len(waiting_for.pings) >= 2)
    before = table_in(own_redis)
    assert plane.end(signal.SIGKILL) == -signal.SIGKILL
    assert table_in(own_redis) == before
    waiting_for.ping = Answer()
    plane.start()
    client = plane.boto3
    wait_until(lambda: status(client) == "InService", 20)
    table = table_in(own_redis)
    assert table is not None
    assert [each.base_url for each in table.endpoints[0].variants[0].instances] == [waiting_for.url]

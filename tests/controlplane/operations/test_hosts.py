"""Hosts that register themselves, with a time to live, and the ways in which two of them could be mixed up."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controlplane.errors import ValidationException
from controlplane.store.notices import CHANNEL
from controlplane.store.session import Database
from tests.controlplane.stage import Call, caller_at

URL = "http://10.0.0.9:8000"
STATIC = {"Environment": {"WARMROUTE_HOSTS": "http://10.0.0.1:8000"}}


@pytest.fixture(autouse=True)
async def model(call: Call) -> None:
    await call("CreateModel", ModelName="m", PrimaryContainer=STATIC)


async def registered(call: Call) -> list[dict[str, Any]]:
    hosts = (await call("ListModelHosts", ModelName="m"))["Hosts"]
    return [host for host in hosts if host["Source"] == "Registration"]


async def test_the_url_is_the_name_unless_one_is_given(call: Call) -> None:
    answer = await call("RegisterModelHost", ModelName="m", BaseUrl="HTTP://Node:8000/v/")
    assert answer == {"ModelName": "m", "HostName": "http://node:8000/v", "BaseUrl": "http://node:8000/v"}
    answer = await call("RegisterModelHost", ModelName="m", BaseUrl=URL, HostName="pod-1")
    assert answer == {"ModelName": "m", "HostName": "pod-1", "BaseUrl": URL}
    assert [host["HostName"] for host in await registered(call)] == ["http://node:8000/v", "pod-1"]


async def test_a_host_known_by_its_name_may_move_to_another_url(call: Call) -> None:
    await call("RegisterModelHost", ModelName="m", BaseUrl=URL, HostName="pod-1")
    await call("RegisterModelHost", ModelName="m", BaseUrl="http://10.0.0.10:8000", HostName="pod-1")
    assert [(host["HostName"], host["BaseUrl"]) for host in await registered(call)] == [
        ("pod-1", "http://10.0.0.10:8000")
    ]


async def test_a_registration_runs_out_unless_it_is_renewed(database: Any) -> None:
    start = datetime.now(UTC)
    now = caller_at(database, start)
    later = caller_at(database, start + timedelta(seconds=8))
    await now("RegisterModelHost", ModelName="m", BaseUrl=URL, TtlSeconds=5)
    await now("RegisterModelHost", ModelName="m", BaseUrl="http://10.0.0.10:1", TtlSeconds=5)
    answer = await caller_at(database, start + timedelta(seconds=4))(
        "RegisterModelHost", ModelName="m", BaseUrl=URL, TtlSeconds=5
    )
    assert answer["ExpiresAt"] == pytest.approx(start.timestamp() + 9, abs=0.01)
    assert [host["HostName"] for host in await registered(later)] == [URL]


async def test_only_what_changes_something_wakes_the_reconcilers(database: Database) -> None:
    heard: list[object] = []
    listener = await database.listen()
    await listener.add_listener(CHANNEL, lambda *_: heard.append(1))
    start = datetime.now(UTC)

    async def register(seconds: int, url: str = URL) -> int:
        before = len(heard)
        await caller_at(database, start + timedelta(seconds=seconds))(
            "RegisterModelHost", ModelName="m", BaseUrl=url, HostName="pod", TtlSeconds=5
        )
        # A round trip on the connection that listens: what was sent to it before is here.
        await listener.execute("SELECT 1")
        return len(heard) - before

    assert await register(0) == 1
    assert await register(2) == 0
    assert await register(6) == 0
    assert await register(20) == 1
    assert await register(21, "http://10.0.0.10:8000") == 1
    await listener.close()


async def test_one_url_has_one_name(call: Call) -> None:
    await call("RegisterModelHost", ModelName="m", BaseUrl=URL, HostName="pod-1")
    with pytest.raises(ValidationException, match=r"'baseUrl'.* in use under HostName \"pod-1\""):
        await call("RegisterModelHost", ModelName="m", BaseUrl=URL, HostName="pod-2")
    await call("DeregisterModelHost", ModelName="m", HostName="pod-1")
    await call("RegisterModelHost", ModelName="m", BaseUrl=URL, HostName="pod-2")


async def test_a_url_whose_registration_ran_out_may_have_a_new_name(database: Any) -> None:
    start = datetime.now(UTC)
    await caller_at(database, start)("RegisterModelHost", ModelName="m", BaseUrl=URL, HostName="pod-1", TtlSeconds=5)
    later = caller_at(database, start + timedelta(seconds=6))
    await later("RegisterModelHost", ModelName="m", BaseUrl=URL, HostName="pod-2")
    assert [host["HostName"] for host in await registered(later)] == ["pod-2"]


async def test_many_who_claim_one_url_under_names_of_their_own_are_one(call: Call) -> None:
    tries = (call("RegisterModelHost", ModelName="m", BaseUrl=URL, HostName=f"pod-{number}") for number in range(10))
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(result, dict) for result in results) == 1
    assert sum(isinstance(result, ValidationException) for result in results) == 9
    assert len(await registered(call)) == 1


async def test_a_url_as_a_name_leads_where_it_says(call: Call) -> None:
    with pytest.raises(ValidationException, match=r"'hostName'.*the base URL itself"):
        await call("RegisterModelHost", ModelName="m", BaseUrl=URL, HostName="http://10.0.0.1:8000")


async def test_a_static_host_is_neither_registered_nor_deregistered(call: Call) -> None:
    with pytest.raises(ValidationException, match="WARMROUTE_HOSTS"):
        await call("RegisterModelHost", ModelName="m", BaseUrl="http://10.0.0.1:8000", TtlSeconds=5)
    with pytest.raises(ValidationException, match="models are immutable"):
        await call("DeregisterModelHost", ModelName="m", HostName="http://10.0.0.1:8000")
    assert len((await call("ListModelHosts", ModelName="m"))["Hosts"]) == 1


async def test_a_host_that_is_not_there_cannot_be_deregistered(call: Call) -> None:
    with pytest.raises(ValidationException, match='Could not find model host "pod-1"'):
        await call("DeregisterModelHost", ModelName="m", HostName="pod-1")


async def test_the_list_comes_in_pages(call: Call) -> None:
    names = [f"pod-{number}" for number in range(5)]
    for number, name in enumerate(names):
        await call("RegisterModelHost", ModelName="m", BaseUrl=f"http://10.0.1.{number}:1", HostName=name)
    found, token = [], None
    while True:
        page = await call("ListModelHosts", ModelName="m", MaxResults=2, **({"NextToken": token} if token else {}))
        assert 0 < len(page["Hosts"]) <= 2
        found += [host["HostName"] for host in page["Hosts"]]
        token = page.get("NextToken")
        if token is None:
            break
    assert found == ["http://10.0.0.1:8000", *names]

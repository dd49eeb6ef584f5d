"""Lists: filters before pages, every row once, and a total order."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controlplane.errors import ValidationException
from controlplane.store.session import Database
from tests.controlplane.stage import Call, caller_at, create_config

START = datetime(2026, 1, 1, tzinfo=UTC)


async def pages(call: Call, operation: str, member: str, name: str, **wanted: Any) -> list[list[str]]:
    found, token = [], None
    while True:
        page = await call(operation, **wanted, **({"NextToken": token} if token else {}))
        found.append([each[name] for each in page[member]])
        token = page.get("NextToken")
        if token is None:
            return found


async def configs(call: Call, **wanted: Any) -> list[list[str]]:
    return await pages(call, "ListEndpointConfigs", "EndpointConfigs", "EndpointConfigName", **wanted)


async def test_the_default_is_newest_first_ten_a_page(database: Database, call: Call) -> None:
    await call("CreateModel", ModelName="m")
    for number in range(12):
        await create_config(caller_at(database, START + timedelta(seconds=number)), f"c{number:02}")
    names = [f"c{number:02}" for number in range(11, -1, -1)]
    assert await configs(call) == [names[:10], names[10:]]


async def test_a_page_that_is_just_full_is_the_last(call: Call) -> None:
    await call("CreateModel", ModelName="m1")
    await call("CreateModel", ModelName="m2")
    assert await pages(call, "ListModels", "Models", "ModelName", MaxResults=2, SortBy="Name") == [["m2", "m1"]]
    assert await pages(call, "ListModels", "Models", "ModelName", NameContains="zzz") == [[]]


async def test_filters_come_before_pages(call: Call) -> None:
    for name in ("a-1", "b-1", "a-2", "b-2", "a-3"):
        await call("CreateModel", ModelName=name)
    order = {"SortBy": "Name", "SortOrder": "Ascending", "NameContains": "a-", "MaxResults": 1}
    assert await pages(call, "ListModels", "Models", "ModelName", **order) == [["a-1"], ["a-2"], ["a-3"]]


async def test_bounds_of_creation_time_are_before_and_at_or_after(database: Database, call: Call) -> None:
    for number in range(4):
        await caller_at(database, START + timedelta(seconds=number))("CreateModel", ModelName=f"m{number}")
    second = (START + timedelta(seconds=2)).timestamp()
    assert await pages(call, "ListModels", "Models", "ModelName", CreationTimeAfter=second) == [["m3", "m2"]]
    assert await pages(call, "ListModels", "Models", "ModelName", CreationTimeBefore=second) == [["m1", "m0"]]


async def test_every_config_is_seen_once_while_others_come_and_go(database: Database, call: Call) -> None:
    await call("CreateModel", ModelName="m")
    same = caller_at(database, START)
    await asyncio.gather(*(create_config(same, f"c{number:02}") for number in range(25)))
    first = await call("ListEndpointConfigs", MaxResults=10)
    seen = [each["EndpointConfigName"] for each in first["EndpointConfigs"]]
    await create_config(same, "c00a")
    await create_config(same, "zz")
    await call("DeleteEndpointConfig", EndpointConfigName=seen[3])
    token = first["NextToken"]
    while token:
        page = await call("ListEndpointConfigs", MaxResults=10, NextToken=token)
        seen += [each["EndpointConfigName"] for each in page["EndpointConfigs"]]
        token = page.get("NextToken")
    throughout = {f"c{number:02}" for number in range(25)}
    assert throughout <= {*seen}
    assert len(seen) == len({*seen})


@pytest.mark.parametrize("other", [{"SortBy": "Name"}, {"NameContains": "m"}, {"SortOrder": "Ascending"}])
async def test_a_token_of_another_request_is_refused(call: Call, other: dict[str, str]) -> None:
    for name in ("m1", "m2"):
        await call("CreateModel", ModelName=name)
    token = (await call("ListModels", MaxResults=1))["NextToken"]
    with pytest.raises(ValidationException, match="NextToken"):
        await call("ListModels", MaxResults=1, NextToken=token, **other)

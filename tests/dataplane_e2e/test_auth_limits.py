"""Limits of principals over a fleet of workers: exact while Redis is well, shared out while it is away."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import botocore.exceptions
import openai
import pytest

from contract import redis_keys
from contract.principals import Kind
from tests.dataplane_e2e.callers import SECRET_KEY, Caller, Callers, bearing, owned
from tests.dataplane_e2e.stage import Deployed, Fleet, Stage, chat_body, error_of, native_error
from tests.fakes.data_plane import DataPlane
from tests.fakes.raw_client import RawClient, request_bytes
from tests.services import PrivateServer
from tests.waiting import wait_until

SETTINGS = {"AUTH": "on", "SECRET_KEY": SECRET_KEY, "STORE_BUDGET_SECONDS": 0.5, "LEASE_SECONDS": 1}


@pytest.fixture(scope="session")
def second_guarded_plane(stage: Stage, guarded_plane: DataPlane) -> DataPlane:
    """Another one on the same Redis."""
    return stage.start(settings={**SETTINGS, "CONNECT_TIMEOUT_SECONDS": 0.5})


@pytest.fixture
def planes(guarded_plane: DataPlane, second_guarded_plane: DataPlane) -> list[DataPlane]:
    return [guarded_plane, second_guarded_plane]


@contextmanager
def clients(planes: list[DataPlane], count: int) -> Iterator[list[RawClient]]:
    """Open connections, the planes in turn."""
    with ExitStack() as stack:
        yield [stack.enter_context(planes[at % len(planes)].client()) for at in range(count)]


def statuses(open_: list[RawClient], caller: Caller, target: str, body: bytes = b"{}") -> Counter[int]:
    """Send one request on each connection at once and return the statuses of the answers."""
    for client in open_:
        client.send(request_bytes(target, body, bearing(caller.token())))
    return Counter(client.read().status for client in open_)


# --- requests a second ------------------------------------------------------------------------------------------------


def test_a_rate_holds_over_the_fleet(planes: list[DataPlane], callers: Callers, fleet: Fleet) -> None:
    deployed = owned(fleet, "")
    caller = callers.make(requests_per_second=10.0)
    began = time.monotonic()
    with clients(planes, 40) as open_:
        found = statuses(open_, caller, deployed.invocations)
    passed = time.monotonic() - began
    assert set(found) == {200, 429}
    assert 10 <= found[200] <= 10 + 10 * passed + 1
    assert deployed.delivered == found[200]


def test_a_rate_comes_back_with_time(planes: list[DataPlane], callers: Callers, fleet: Fleet) -> None:
    deployed = owned(fleet, "")
    caller = callers.make(requests_per_second=5.0)
    with clients(planes, 12) as open_:
        assert statuses(open_, caller, deployed.invocations)[200] >= 5
        wait_until(lambda: statuses(open_[:1], caller, deployed.invocations)[200] == 1, 3.0)


def test_a_quiet_caller_loses_nothing_to_leases(planes: list[DataPlane], callers: Callers, fleet: Fleet) -> None:
    """Two a second, one on each worker: both are let through."""
    deployed = owned(fleet, "")
    caller = callers.make(requests_per_second=2.0)
    with clients(planes, 2) as open_:
        assert statuses(open_, caller, deployed.invocations) == {200: 2}


def test_other_callers_are_not_held_up(planes: list[DataPlane], callers: Callers, fleet: Fleet) -> None:
    deployed = owned(fleet, "")
    flooding, other = callers.make(requests_per_second=0.1), callers.make()
    with clients(planes, 20) as open_:
        assert statuses(open_, flooding, deployed.invocations)[429] >= 18
        assert statuses(open_, other, deployed.invocations) == {200: 20}


# --- requests at once -------------------------------------------------------------------------------------------------


@contextmanager
def held(
    planes: list[DataPlane], caller: Caller, deployed: Deployed, count: int, target: str = ""
) -> Iterator[list[RawClient]]:
    """Have ``count`` requests of a caller with the host, until the end of the block."""
    gate = deployed.hosts[0].hold()
    with clients(planes, count) as open_:
        for client in open_:
            client.send(request_bytes(target or deployed.invocations, chat_body("x"), bearing(caller.token())))
        wait_until(lambda: deployed.in_flight == count, 5.0, f"{count} are with the host")
        yield open_
        gate.open()


@pytest.mark.parametrize("kind", Kind)
def test_concurrency_holds_over_the_fleet_and_is_given_back(
    planes: list[DataPlane], callers: Callers, fleet: Fleet, kind: Kind
) -> None:
    deployed = owned(fleet, "")
    caller = callers.make(kind=kind, concurrent_requests=3)
    for _ in range(3):
        with held(planes, caller, deployed, 3), clients(planes, 4) as more:
            assert statuses(more, caller, deployed.invocations) == {429: 4}
        wait_until(lambda: in_flight(fleet, caller) == 0, 3.0, "nothing is counted")


def in_flight(fleet: Fleet, caller: Caller) -> int:
    """Return the caller's requests in flight, as Redis holds them."""
    key = redis_keys.load_key(f"principal:{caller.principal.id}")
    return int(fleet.stage.routes.redis.hget(key, "0") or 0)


def test_a_client_that_leaves_gives_back_its_place(planes: list[DataPlane], callers: Callers, fleet: Fleet) -> None:
    deployed = owned(fleet, "")
    caller = callers.make(concurrent_requests=2)
    with held(planes, caller, deployed, 2) as open_:
        for client in open_:
            client.reset()
        wait_until(lambda: in_flight(fleet, caller) == 0, 3.0, "nothing is counted")


def test_a_stream_holds_its_place_until_its_end(planes: list[DataPlane], callers: Callers, fleet: Fleet) -> None:
    deployed = owned(fleet, "")
    caller = callers.make(concurrent_requests=1)
    with held(planes, caller, deployed, 1, deployed.stream) as open_:
        with clients(planes, 2) as more:
            assert statuses(more, caller, deployed.invocations) == {429: 2}
        deployed.hosts[0].drop_connections(reset=True)
        open_[0].outcome()
        wait_until(lambda: in_flight(fleet, caller) == 0, 3.0, "nothing is counted")


def test_a_request_that_is_refused_holds_nothing(planes: list[DataPlane], callers: Callers, fleet: Fleet) -> None:
    caller = callers.make(concurrent_requests=1, requests_per_second=50.0)
    for _ in range(5):
        assert caller.ask(planes[0], "/endpoints/none/invocations").status == 400
    wait_until(lambda: in_flight(fleet, caller) == 0, 3.0, "nothing is counted")


def test_what_a_killed_worker_held_is_given_back_with_its_lease(
    own_stage: Stage, callers: Callers, fleet: Fleet
) -> None:
    """Not on the shared planes: this one is killed."""
    fleet = Fleet(own_stage, fleet.hosts, fleet.scope)
    own = Callers(own_stage.routes, own_stage)
    planes = [own_stage.start(settings=SETTINGS) for _ in range(2)]
    deployed = owned(fleet, "")
    caller = own.make(concurrent_requests=2)
    gate = deployed.hosts[0].hold()
    with clients(planes[:1], 2) as open_:
        for client in open_:
            client.send(request_bytes(deployed.invocations, b"{}", bearing(caller.token())))
        wait_until(lambda: deployed.in_flight == 2, 5.0, "two are with the host")
        with clients(planes[1:], 1) as more:
            assert statuses(more, caller, deployed.invocations) == {429: 1}
        planes[0].kill()
        gate.open()
        with clients(planes[1:], 1) as more:
            wait_until(lambda: statuses(more, caller, deployed.invocations) == {200: 1}, 5.0, "the lease has ended")


# --- how it is said ---------------------------------------------------------------------------------------------------


def test_both_apis_say_it_in_their_own_form(guarded_plane: DataPlane, callers: Callers, fleet: Fleet) -> None:
    deployed = owned(fleet, "")
    caller = callers.make(requests_per_second=0.02)
    boto = caller.boto(guarded_plane)
    boto.invoke_endpoint(EndpointName=deployed.name, Body=b"x")
    with pytest.raises(botocore.exceptions.ClientError, match="Rate exceeded") as caught:
        boto.invoke_endpoint(EndpointName=deployed.name, Body=b"x")
    metadata = caught.value.response["ResponseMetadata"]
    assert (metadata["HTTPStatusCode"], caught.value.response["Error"]["Code"]) == (429, "ThrottlingException")
    assert 1 <= int(metadata["HTTPHeaders"]["retry-after"]) <= 50
    with pytest.raises(openai.RateLimitError) as limited:
        caller.openai(f"{guarded_plane.url}/v1").chat.completions.create(
            model=deployed.name, messages=[{"role": "user", "content": "x"}]
        )
    assert limited.value.code == "rate_limit_exceeded"
    assert 1 <= int(limited.value.response.headers["retry-after"]) <= 50
    assert native_error(caller.ask(guarded_plane, deployed.invocations))[:2] == (429, "ThrottlingException")
    assert error_of(caller.ask(guarded_plane, deployed.chat, chat_body("x")))["type"] == "requests"
    assert caller.ask(guarded_plane, "/v1/models", b"", "GET").status == 200, "asks no host"
    assert deployed.delivered == 1


# --- Redis away -------------------------------------------------------------------------------------------------------


def test_without_redis_nobody_is_locked_out_and_the_limits_still_hold(
    own_stage: Stage, own_redis: PrivateServer, fleet: Fleet
) -> None:
    fleet = Fleet(own_stage, fleet.hosts, fleet.scope)
    callers = Callers(own_stage.routes, own_stage)
    plane = own_stage.start(settings={**SETTINGS, "STORE_BUDGET_SECONDS": 0.05})
    deployed = owned(fleet, "")
    paced, counted = callers.make(requests_per_second=20.0), callers.make(concurrent_requests=2)
    for caller in (paced, counted):
        assert caller.ask(plane, deployed.invocations).status == 200
    own_redis.stop()
    began = time.monotonic()
    with clients([plane], 60) as open_:
        found = statuses(open_, paced, deployed.invocations)
    passed = time.monotonic() - began
    assert set(found) == {200, 429}
    assert 20 <= found[200] <= 40 + 20 * passed
    with held([plane], counted, deployed, 2), clients([plane], 3) as more:
        assert statuses(more, counted, deployed.invocations) == {429: 3}
    wait_until(lambda: counted.ask(plane, deployed.invocations).status == 200, 3.0, "a place is free again")

"""Crashes and outages of the product's own parts: what serves goes on serving, what was begun is ended."""

import time

import pytest

from tests.end_to_end.stack import Stack, Traffic, User, invoke, prefix_aware
from tests.fakes.answers import Answer
from tests.fakes.model_host import Hosts, HostThread
from tests.fakes.slow_link import SlowLink
from tests.services import PrivateServer
from tests.waiting import wait_until

LOADING = Answer(body=b"loading", status=503)
READY = Answer(body=b"")


@pytest.mark.parametrize("kill_after_seconds", [0.0, 0.05, 0.3])
def test_the_control_plane_dies_while_creating_and_updating(
    own_stack: Stack, hosts: Hosts, scope: str, kill_after_seconds: float
) -> None:
    """kill -9 at some moment of a Creating and of an Updating: after its restart both end well, others served on."""
    own_stack.start_control()
    own_stack.start_plane()
    user = User(own_stack, scope)
    steady, fresh = hosts.make(2), hosts.make(2)
    serving = user.deploy("serving", steady[:1], prefix_aware())
    created_config = user.config("c", user.model("m", fresh[:1]), 1, prefix_aware())
    updated_config = user.config("u", user.model("um", fresh[1:]), 1, prefix_aware())
    with Traffic(own_stack, serving, rate=40) as traffic:
        traffic.wait_for(5)
        created = user.endpoint("new", created_config, wait=False)
        user.update(serving, updated_config, wait=False)
        # Not to hope for something: the moment of the kill is what varies between these tests.
        time.sleep(kill_after_seconds)
        own_stack.control.kill()
        traffic.wait_for(10)
        own_stack.control.start()
        user.in_service(created)
        user.in_service(serving)
        traffic.wait_for(10)
    assert traffic.failures == []
    assert user.describe(serving)["EndpointConfigName"] == updated_config
    runtime = own_stack.runtime()
    assert invoke(runtime, created, b"x") == fresh[0].name
    assert invoke(runtime, serving, b"x") == fresh[1].name


def test_what_a_dead_control_plane_could_not_finish_fails_or_rolls_back(
    own_stack: Stack, hosts: Hosts, scope: str
) -> None:
    """Hosts that never turn healthy: Failed with words and deletable; the update is back at its old config."""
    own_stack.settings["PROVISION_TIMEOUT_SECONDS"] = 2
    own_stack.start_control()
    own_stack.start_plane()
    user = User(own_stack, scope)
    steady, dead, gone = hosts.make(3)
    dead.ping = gone.ping = LOADING
    serving = user.deploy("serving", [steady], prefix_aware())
    config = user.describe(serving)["EndpointConfigName"]
    with Traffic(own_stack, serving, rate=40) as traffic:
        created = user.endpoint("new", user.config("c", user.model("m", [dead]), 1), wait=False)
        user.update(serving, user.config("u", user.model("um", [gone]), 1), wait=False)
        wait_until(lambda: dead.pings != [] and gone.pings != [])
        gone.die()
        own_stack.control.kill()
        traffic.wait_for(10)
        own_stack.control.start()
        failed = user.wait_status(created, "Failed")
        back = user.wait_status(serving, "InService")
        traffic.wait_for(10)
    assert traffic.failures == []
    assert dead.url in failed["FailureReason"]
    assert back["EndpointConfigName"] == config
    assert gone.url in back["FailureReason"]
    user.delete(created)


def test_two_control_planes_share_the_work_and_one_may_die(own_stack: Stack, hosts: Hosts, scope: str) -> None:
    """What one replica was told, the other ends."""
    first, second = own_stack.start_control(), own_stack.start_control()
    own_stack.start_plane()
    user = User(own_stack, scope)
    user.sagemaker = own_stack.sagemaker(first)
    (host,) = hosts.make(1)
    host.ping = LOADING
    endpoint = user.endpoint("e", user.config("c", user.model("m", [host]), 1), wait=False)
    first.kill()
    user.sagemaker = own_stack.sagemaker(second)
    host.ping = READY
    user.in_service(endpoint)
    assert invoke(own_stack.runtime(), endpoint, b"x") == host.name


def test_a_frozen_database_stops_no_inference(
    own_stack: Stack, hosts: Hosts, scope: str, private_postgres: object
) -> None:
    """SIGSTOP of Postgres under traffic: no error, no delay; workers are ready, a fresh one serves too."""
    postgres: PrivateServer = private_postgres()  # type: ignore[operator]
    own_stack.database_url = postgres.url
    own_stack.start_control()
    own_stack.start_plane()
    user = User(own_stack, scope)
    endpoint = user.deploy("e", hosts.make(2), prefix_aware())
    with Traffic(own_stack, endpoint) as traffic:
        traffic.wait_for(5)
        postgres.pause()
        try:
            traffic.wait_for(40)
            assert own_stack.plane.status("/health/ready") == 200
            fresh = own_stack.start_plane()
            assert invoke(own_stack.runtime(fresh), endpoint, b"x")
            traffic.wait_for(40)
        finally:
            postgres.resume()
        traffic.wait_for(5)
    assert traffic.failures == []
    user.wait_status(endpoint, "InService")
    user.delete(endpoint)


def test_a_worker_that_was_cut_off_gets_the_removal_afterwards(
    own_stack: Stack, hosts: Hosts, hosts_thread: HostThread, own_redis: PrivateServer, scope: str
) -> None:
    """A is replaced by B and stopped while a worker cannot see Redis; once it can, no request goes to A."""
    link = SlowLink(hosts_thread, int(own_redis.url.rpartition(":")[2].partition("/")[0]))
    own_stack.start_control()
    near = own_stack.start_plane()
    far = own_stack.start_plane(redis_url=f"redis://127.0.0.1:{link.port}/0")
    user = User(own_stack, scope)
    old, new = hosts.make(2)
    endpoint = user.deploy("e", [old], prefix_aware())
    runtimes = [own_stack.runtime(plane) for plane in (near, far)]
    assert [invoke(runtime, endpoint, b"x") for runtime in runtimes] == ["h1", "h1"]
    link.is_cut = True
    # The update waits for every live worker; the one that cannot report is not live once its lease is over.
    user.update(endpoint, user.config("new", user.model("new-m", [new]), 1, prefix_aware()))
    assert invoke(runtimes[0], endpoint, b"x") == "h2"
    old.die()
    link.is_cut = False
    wait_until(lambda: far.client().ask(f"/endpoints/{endpoint}/invocations", b"x").outcome() == 200, 4.0)
    assert {invoke(runtimes[1], endpoint, b"x") for _ in range(10)} == {"h2"}
    far.stop()
    link.close()


def test_redis_lost_everything_and_the_routes_are_back(
    own_stack: Stack, hosts: Hosts, own_redis: PrivateServer, scope: str
) -> None:
    """The publisher notices by itself; nothing fails meanwhile, and later changes reach the workers."""
    own_stack.start_control()
    own_stack.start_plane()
    user = User(own_stack, scope)
    fleet = hosts.make(2)
    endpoint = user.deploy("e", fleet[:1], prefix_aware())
    with Traffic(own_stack, endpoint) as traffic:
        traffic.wait_for(5)
        own_redis.kill()
        traffic.wait_for(20)
        own_redis.start()
        user.update(endpoint, user.config("new", user.model("new-m", fleet[1:]), 1, prefix_aware()))
        moved = time.monotonic()
        traffic.wait_for(20)
    assert traffic.failures == []
    assert set(traffic.since(moved + 0.2)) <= {"h2"}
    fresh = own_stack.start_plane()
    assert invoke(own_stack.runtime(fresh), endpoint, b"x") == "h2"

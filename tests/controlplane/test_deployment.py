"""plan() case by case. Its laws over whole lives are in test_deployment_laws.py."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from controlplane.deployment import (
    Action,
    Activate,
    BoundHost,
    Claim,
    Drop,
    Finish,
    Health,
    Move,
    PoolHost,
    Promote,
    Release,
    Snapshot,
    Variant,
    Withdraw,
    blocked_by,
    plan,
)
from controlplane.endpoint_status import Event, Status

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = NOW - timedelta(seconds=60)
LATER = NOW + timedelta(seconds=60)
UP = Health(True, LONG_AGO)
DOWN = Health(False, LONG_AGO, "answered 503")
NEW = Health(False, NOW)
V = Variant("v", model_id=1, model_name="m", ping_path="/ping", count=2)


def bound(number: int, health: Health = UP, *, active: str | None = None, pending: str | None = None) -> BoundHost:
    return BoundHost(number, f"http://h{number}", active, pending, {"/ping": health})


def pool(*numbers: int, **held: str) -> tuple[PoolHost, ...]:
    """``h3="other"``: host 3 is in the hands of the endpoint "other"."""
    return tuple(PoolHost(number, f"http://h{number}", held.get(f"h{number}")) for number in numbers)


def creating(*hosts: BoundHost, members: tuple[PoolHost, ...] = pool(1, 2, 3), variant: Variant = V) -> Snapshot:
    return Snapshot(
        Status.CREATING, NOW, pending=(variant,), deadline=LATER, hosts=hosts, pools={variant.model_id: members}
    )


def updating(
    *hosts: BoundHost, old: Variant = V, new: Variant = V, pools: dict[int, tuple[PoolHost, ...]] | None = None
) -> Snapshot:
    pools = {1: pool(1, 2, 3)} if pools is None else pools
    return Snapshot(Status.UPDATING, NOW, (old,), (new,), LATER, hosts=hosts, pools=pools)


def serving(*hosts: BoundHost, members: tuple[PoolHost, ...] | None = pool(1, 2, 3), followed: bool = True) -> Snapshot:
    pools = {} if members is None else {1: members}
    return Snapshot(Status.IN_SERVICE, NOW, (V,), hosts=hosts, pools=pools, followed=followed)


def test_creating_claims_free_hosts_in_the_pools_order() -> None:
    assert plan(creating(members=pool(3, 1, 2, h3="other"))) == (Claim(1, "v"), Claim(2, "v"))


def test_creating_waits_for_probes() -> None:
    assert plan(creating(bound(1, pending="v"), bound(2, NEW, pending="v"))) == ()


def test_healthy_hosts_are_promoted_together() -> None:
    assert plan(creating(bound(1, pending="v"), bound(2, pending="v"))) == (Promote(),)


def test_a_promoted_deployment_finishes_when_the_workers_follow() -> None:
    ready = replace(creating(bound(1, pending="v"), bound(2, pending="v")), promoted=True)
    assert plan(ready) == ()
    assert plan(replace(ready, followed=True)) == (Finish(),)


def test_after_promotion_the_deadline_does_not_matter() -> None:
    ready = replace(creating(bound(1, pending="v"), bound(2, pending="v")), promoted=True, deadline=LONG_AGO)
    assert plan(ready) == ()


def test_a_host_that_stays_unhealthy_gets_a_rival_and_keeps_its_chance() -> None:
    hosts = (bound(1, pending="v"), bound(2, DOWN, pending="v"))
    assert plan(creating(*hosts)) == (Claim(3, "v"),)
    assert plan(creating(*hosts, bound(3, NEW, pending="v"))) == ()
    assert plan(creating(*hosts, bound(3, pending="v"))) == (Drop(2), Promote())


def test_a_host_that_only_just_failed_gets_no_rival() -> None:
    assert plan(creating(bound(1, pending="v"), bound(2, NEW, pending="v"))) == ()


def test_a_creation_past_its_deadline_gives_back_its_hosts_and_says_what_to_do() -> None:
    late = replace(creating(bound(1, pending="v"), bound(2, DOWN, pending="v"), members=pool(1, 2)), deadline=NOW)
    drop_one, drop_two, failed = plan(late)
    assert {drop_one, drop_two} == {Drop(1), Drop(2)}
    assert isinstance(failed, Move)
    assert failed.event is Event.BROKEN
    assert failed.reason is not None
    assert failed.reason.startswith(
        "The primary container for production variant v did not pass the ping health check. "
    )
    assert "http://h2: answered 503" in failed.reason
    assert "http://h1" not in failed.reason
    assert "GET /ping" in failed.reason


def test_a_pool_that_is_too_small_is_told_with_who_holds_its_hosts() -> None:
    late = replace(creating(bound(1, pending="v"), members=pool(1, 2, h2="other")), deadline=NOW)
    reason = next(action.reason for action in plan(late) if isinstance(action, Move))
    assert reason is not None
    assert 'model "m" can give 1 of the 2 hosts needed (its pool has 2)' in reason
    assert 'http://h2 is in use by endpoint "other"' in reason
    assert "RegisterModelHost" in reason


def test_a_model_that_was_deleted_is_named() -> None:
    assert 'model "m" has been deleted' in blocked_by(replace(creating(), pools={}), V)


def test_reasons_fit_the_api() -> None:
    many = tuple(Variant(f"v{number}", 1, "m" * 63, "/ping", 1) for number in range(10))
    late = replace(creating(members=()), pending=many, deadline=NOW)
    reason = next(action.reason for action in plan(late) if isinstance(action, Move))
    assert reason is not None
    assert len(reason) == 1024


def test_an_update_carries_over_the_hosts_of_the_variant_it_replaces() -> None:
    assert plan(updating(bound(1, active="v"), bound(2, active="v"))) == (Claim(1, "v"), Claim(2, "v"))
    assert plan(updating(bound(1, active="v", pending="v"), bound(2, active="v", pending="v"))) == (Promote(),)


def test_an_update_to_another_model_carries_over_the_hosts_that_both_pools_have() -> None:
    new = replace(V, model_id=2, model_name="n")
    pools = {1: pool(1, 2), 2: pool(4, 2, 3)}
    snapshot = updating(bound(1, active="v"), bound(2, active="v"), new=new, pools=pools)
    assert plan(snapshot) == (Claim(2, "v"), Claim(4, "v"))


def test_a_renamed_variant_takes_the_hosts_of_the_one_that_goes() -> None:
    new = replace(V, name="w")
    snapshot = updating(bound(1, active="v"), bound(2, active="v"), new=new, pools={1: pool(1, 2)})
    assert plan(snapshot) == (Claim(1, "w"), Claim(2, "w"))


def test_scaling_down_keeps_the_healthy_hosts() -> None:
    hosts = (bound(1, DOWN, active="v"), bound(2, active="v"))
    assert plan(updating(*hosts, new=replace(V, count=1))) == (Claim(2, "v"),)


def test_scaling_to_zero_is_ready_at_once() -> None:
    assert plan(updating(bound(1, active="v"), new=replace(V, count=0))) == (Promote(),)


def test_a_dead_host_that_is_carried_over_does_not_hold_up_a_switch() -> None:
    hosts = (bound(1, active="v", pending="v"), bound(2, DOWN, active="v", pending="v"))
    assert plan(updating(*hosts, pools={1: pool(1, 2)})) == (Promote(),)


def test_an_update_waits_while_every_host_is_dead_but_new_weights_do_not() -> None:
    hosts = (bound(1, DOWN, active="v", pending="v"), bound(2, DOWN, active="v", pending="v"))
    snapshot = updating(*hosts, pools={1: pool(1, 2)})
    assert plan(snapshot) == ()
    assert plan(replace(snapshot, same_config=True)) == (Promote(),)


def test_a_host_that_more_capacity_brings_must_be_healthy() -> None:
    hosts = (bound(1, DOWN, active="v", pending="v"), bound(2, NEW, pending="v"))
    snapshot = replace(updating(*hosts, old=replace(V, count=1), pools={1: pool(1, 2)}), same_config=True)
    assert plan(snapshot) == ()


def test_a_carried_over_host_must_pass_a_new_ping_path() -> None:
    new = replace(V, ping_path="/health")
    hosts = (bound(1, active="v", pending="v"), bound(2, active="v", pending="v"))
    unasked = updating(*hosts, new=new, pools={1: pool(1, 2)})
    assert plan(unasked) == (Claim(1, "v"), Claim(2, "v")), "so that they are probed on that path"
    asked = [replace(host, health={**host.health, "/health": NEW}) for host in hosts]
    assert plan(replace(unasked, hosts=tuple(asked))) == ()


def test_a_failed_update_drops_its_claims_and_leaves_what_serves() -> None:
    new = replace(V, model_id=2)
    pools = {1: pool(1, 2), 2: pool(3, 4)}
    hosts = (bound(1, active="v"), bound(2, active="v"), bound(3, DOWN, pending="v"), bound(4, DOWN, pending="v"))
    late = replace(updating(*hosts, new=new, pools=pools), deadline=NOW)
    *drops, failed = plan(late)
    assert drops == [Drop(3), Drop(4)]
    assert isinstance(failed, Move)
    assert failed.event is Event.BROKEN
    assert plan(replace(late, status=Status.ROLLING_BACK)) == (Move(Event.ROLLED_BACK),)


def test_a_claimed_host_that_leaves_its_pool_is_dropped() -> None:
    snapshot = creating(bound(9, pending="v"), bound(1, pending="v"))
    assert plan(snapshot) == (Drop(9), Claim(2, "v"))


def test_serving_in_full_health_is_nothing_to_do() -> None:
    assert plan(serving(bound(1, active="v"), bound(2, active="v"))) == ()


def test_a_host_that_leaves_its_pool_is_withdrawn_and_released_when_workers_follow() -> None:
    assert plan(serving(bound(9, active="v"), bound(1, active="v"))) == (Withdraw(9), Claim(2, "v"))
    gone = serving(bound(9), bound(1, active="v"), bound(2, NEW, pending="v"), followed=False)
    assert plan(gone) == ()
    assert plan(replace(gone, followed=True)) == (Release(9),)


def test_a_replacement_serves_once_it_is_healthy() -> None:
    assert plan(serving(bound(1, active="v"), bound(2, pending="v"))) == (Activate(2),)


def test_a_failing_host_serves_until_another_takes_its_place() -> None:
    failing = (bound(1, active="v"), bound(2, DOWN, active="v"))
    assert plan(serving(*failing)) == (Claim(3, "v"),)
    assert plan(serving(*failing, bound(3, NEW, pending="v"))) == ()
    assert plan(serving(*failing, bound(3, pending="v"))) == (Withdraw(2), Activate(3))


def test_a_failing_host_without_a_spare_stays() -> None:
    assert plan(serving(bound(1, active="v"), bound(2, DOWN, active="v"), members=pool(1, 2, 3, h3="other"))) == ()


def test_a_host_that_recovers_sends_its_replacement_home() -> None:
    snapshot = serving(bound(1, active="v"), bound(2, active="v"), bound(3, NEW, pending="v"))
    assert plan(snapshot) == (Drop(3),)


def test_a_replacement_that_fails_as_well_gets_a_rival() -> None:
    snapshot = serving(bound(1, active="v"), bound(2, DOWN, pending="v"))
    assert plan(snapshot) == (Claim(3, "v"),)


def test_an_endpoint_whose_model_was_deleted_keeps_its_hosts() -> None:
    assert plan(serving(bound(1, active="v"), bound(2, DOWN, active="v"), members=None)) == ()


def test_hosts_of_a_deleted_model_are_carried_over_to_the_same_model_only() -> None:
    hosts = (bound(1, active="v"), bound(2, active="v"))
    assert plan(updating(*hosts, pools={})) == (Claim(1, "v"), Claim(2, "v"))
    assert plan(updating(*hosts, new=replace(V, model_id=2), pools={2: ()})) == ()


@pytest.mark.parametrize("followed", [False, True])
def test_a_deleted_endpoint_goes_when_no_worker_serves_it(followed: bool) -> None:
    deleting = replace(serving(bound(1, active="v"), followed=followed), status=Status.DELETING)
    assert plan(deleting) == ((Move(Event.GONE),) if followed else ())


@pytest.mark.parametrize("status", [Status.FAILED, Status.OUT_OF_SERVICE, Status.SYSTEM_UPDATING])
def test_nothing_moves_what_waits_for_a_caller(status: Status) -> None:
    nothing: tuple[Action, ...] = ()
    assert plan(replace(serving(followed=True), status=status)) == nothing


def test_what_is_missing_is_told_while_it_is_awaited() -> None:
    assert blocked_by(creating(), V) == 'Instances are being taken from the pool of model "m".'
    assert "http://h2: not probed yet" in blocked_by(creating(bound(1, pending="v"), bound(2, NEW, pending="v")), V)
    assert blocked_by(creating(bound(1, pending="v"), bound(2, pending="v")), V) == ""


def test_a_deadline_that_passed_while_nobody_was_there_says_so() -> None:
    (move,) = plan(replace(creating(), deadline=LONG_AGO))
    assert isinstance(move, Move)
    assert move.reason is not None
    assert "no control plane was up: ask again" in move.reason


def test_only_some_of_many_silent_hosts_are_named() -> None:
    hosts = tuple(bound(number, DOWN, pending="v") for number in range(1, 8))
    text = blocked_by(creating(*hosts, members=pool(*range(1, 8)), variant=replace(V, count=7)), replace(V, count=7))
    assert "http://h4" in text
    assert "http://h5" not in text
    assert "and 3 more" in text

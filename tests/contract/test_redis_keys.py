import re

from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from contract import redis_keys

ids = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=40)
OF_ROUTES = (
    redis_keys.ROUTES,
    redis_keys.ROUTES_NOTICE,
    redis_keys.WORKERS,
    redis_keys.WORKERS_APPLIED,
)
OF_ENDPOINT = (redis_keys.load_key, redis_keys.ledger_key, redis_keys.leases_key)


def test_keys_of_the_routes_are_in_one_slot() -> None:
    """Workers write their lease and what they serve in one step."""
    assert len({key_slot(key.encode()) for key in OF_ROUTES}) == 1


@given(ids)
def test_keys_of_an_endpoint_are_in_one_slot(endpoint_id: str) -> None:
    """An admission is one step."""
    assert len({key_slot(key(endpoint_id).encode()) for key in OF_ENDPOINT}) == 1


def test_endpoints_spread_over_a_cluster() -> None:
    slots = {key_slot(redis_keys.load_key(f"endpoint-{number}").encode()) for number in range(300)}
    assert len(slots) > 200


@given(ids, ids)
def test_no_two_keys_are_the_same(one: str, other: str) -> None:
    """Nor does an endpoint's name end in another's key."""
    owners = {one, other, "routes", f"principal:{one}"}
    keys = [key(owner) for owner in owners for key in OF_ENDPOINT]
    keys += [redis_keys.rate_key(owner) for owner in {one, other}]
    assert len({*keys, *OF_ROUTES}) == len(keys) + len(OF_ROUTES)


def test_all_keys_are_below_one_name() -> None:
    """So that a Redis may be shared, and an ACL written."""
    keys = [*OF_ROUTES, *(key("e") for key in OF_ENDPOINT), redis_keys.rate_key("AKWR")]
    assert all(re.match(r"warmroute:\{", key) for key in keys)

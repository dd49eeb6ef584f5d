import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from contract import redis_keys
from dataplane.state.store import Address
from dataplane.state.topology import SLOTS, Topology, slot_of

SEED = Address.of("rediss://user:secret@seed:7000/0")


@given(st.binary(max_size=24) | st.lists(st.sampled_from([b"{", b"}", b"a", b"b"]), max_size=8).map(b"".join))
def test_slots_are_those_of_redis(key: bytes) -> None:
    """Oracle: redis-py, hash tags with empty and unclosed braces included."""
    assert slot_of(key) == key_slot(key)


def test_known_slots() -> None:
    """From the Redis cluster specification: CRC16 of 123456789 is 0x31C3."""
    assert slot_of(b"123456789") == 0x31C3 % SLOTS
    assert slot_of(b"user:{123456789}:x") == 0x31C3 % SLOTS


@given(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=20))
def test_keys_of_one_endpoint_are_in_one_slot(endpoint_id: str) -> None:
    keys = [key(endpoint_id) for key in (redis_keys.load_key, redis_keys.ledger_key, redis_keys.leases_key)]
    assert len({slot_of(key.encode()) for key in keys}) == 1


def rows(*ranges: tuple[int, int, object, int]) -> list[list[object]]:
    return [[first, last, [host, port, b"id"], [b"replica", 9, b"id"]] for first, last, host, port in ranges]


def test_each_range_has_its_primary() -> None:
    """However the answer is sorted; nodes are reached with the credentials of the one that was given."""
    topology = Topology.read(SEED, rows((8_192, 16_383, b"b", 2), (0, 8_191, b"a", 1)))
    low = next(b"%d" % n for n in range(100) if slot_of(b"%d" % n) < 8_192)
    high = next(b"%d" % n for n in range(100) if slot_of(b"%d" % n) >= 8_192)
    assert topology.node_of(low) == SEED.at("a:1")
    assert topology.node_of(high) == SEED.at("b:2")
    assert topology.nodes == {SEED.at("a:1"), SEED.at("b:2")}
    assert topology.node_of(low) != SEED


@pytest.mark.parametrize("host", [b"", None, b"?"])
def test_a_node_that_does_not_know_its_host_is_where_it_was_asked(host: object) -> None:
    topology = Topology.read(SEED, rows((0, 16_383, host, 7_005)))
    assert topology.nodes == {SEED.at("seed:7005")}


def test_a_slot_before_the_first_range_has_no_node() -> None:
    assert Topology.read(SEED, rows((16_383, 16_383, b"a", 1))).node_of(b"123456789") is None


def test_an_address_of_another_node_keeps_the_credentials() -> None:
    assert SEED.at("10.0.0.7:7001") == Address("10.0.0.7", 7001, True, "user", "secret", 0)
    assert SEED.at(":7001").host == "seed"
    assert SEED.at("[::1]:7001").host == "::1"
    assert SEED.at("::1:7001").host == "::1"

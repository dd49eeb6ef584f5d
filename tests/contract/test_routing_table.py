import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.principals import Kind, Principal, Role
from contract.routing_table import (
    FORMAT,
    READABLE,
    Endpoint,
    Instance,
    RoutingTable,
    Strategy,
    UnreadableTable,
    Variant,
    decode,
    encode,
)

texts = st.text(st.characters(codec="utf-8"), max_size=12)
instances = st.builds(Instance, texts, st.integers(0, 2**40), texts, st.booleans())
variants = st.builds(
    Variant,
    name=texts,
    weight=st.floats(0, 1e9),
    instances=st.lists(instances, max_size=3).map(tuple),
    strategy=st.sampled_from(Strategy),
    prefix_length=st.none() | st.integers(1024, 65536),
    concurrency_threshold=st.none() | st.integers(1, 1024),
    ping_path=texts,
    model_name=texts,
    host_authorization=st.binary(max_size=12),
)
endpoints = st.builds(Endpoint, texts, texts, st.integers(0, 2**40), st.lists(variants, max_size=3).map(tuple), texts)
principals = st.builds(
    Principal,
    id=texts,
    kind=st.sampled_from(Kind),
    role=st.sampled_from(Role),
    secret=st.binary(max_size=12),
    tenant=texts,
    endpoints=st.lists(texts, max_size=2).map(tuple),
    requests_per_second=st.none() | st.floats(0.001, 1e6),
    concurrent_requests=st.none() | st.integers(1, 10**6),
)
tables = st.builds(
    RoutingTable,
    texts,
    st.integers(0, 2**40),
    texts,
    texts,
    st.lists(endpoints, max_size=3).map(tuple),
    st.lists(principals, max_size=3).map(tuple),
)


@given(tables)
def test_a_table_survives_the_way(table: RoutingTable) -> None:
    assert decode(encode(table)) == table
    assert encode(decode(encode(table))) == encode(table), "equal tables, equal bytes"


def test_a_table_of_the_first_format_can_be_read() -> None:
    """Bytes as an earlier version wrote them: workers are upgraded before or after their control plane."""
    written = bytes.fromhex(WRITTEN)
    assert READABLE == (1, FORMAT)
    assert decode(written) == RoutingTable(
        "epoch",
        7,
        "000000000000",
        "us-east-1",
        (
            Endpoint(
                "e",
                "id",
                1,
                (Variant("v", 1.0, (Instance("h", 3, "http://h:1"),), Strategy.PREFIX_AWARE, 2048, 4),),
            ),
        ),
        format=1,
    )


WRITTEN = (
    "86a565706f6368a565706f6368aa67656e65726174696f6e07aa6163636f756e745f6964ac303030303030303030303030a6"
    "726567696f6ea975732d656173742d31a9656e64706f696e74739184a46e616d65a165a26964a26964a76372656174656401"
    "a876617269616e74739188a46e616d65a176a6776569676874cb3ff0000000000000a9696e7374616e6365739184a8696465"
    "6e74697479a168a66e756d62657203a8626173655f75726caa687474703a2f2f683a31a76865616c746879c3a87374726174"
    "656779ac5052454649585f4157415245ad7072656669785f6c656e677468cd0800b5636f6e63757272656e63795f74687265"
    "73686f6c6404a970696e675f70617468a52f70696e67aa6d6f64656c5f6e616d65a0a6666f726d617401"
)


def test_members_of_a_later_version_are_passed_over() -> None:
    """A control plane may be newer than a worker: what is only added does not stop it."""
    known = msgspec.msgpack.decode(encode(RoutingTable("e", 1, "0", "r")))
    later = msgspec.msgpack.encode({**known, "later": {"a": [1]}})
    assert decode(later) == RoutingTable("e", 1, "0", "r")


@pytest.mark.parametrize("format_", [0, FORMAT + 1, None, "1", 1.5])
def test_another_format_is_refused_by_name(format_: object) -> None:
    known = msgspec.msgpack.decode(encode(RoutingTable("e", 1, "0", "r")))
    with pytest.raises(UnreadableTable, match=rf"routing table format {format_!r}, this build reads {FORMAT}"):
        decode(msgspec.msgpack.encode({**known, "format": format_}))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_table_or_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableTable):
        decode(data)


@pytest.mark.parametrize("deep", [b"\x91" * 5_000, b"\x81\xa1a" * 5_000], ids=["arrays", "maps"])
def test_a_table_that_is_too_deep_is_unreadable(deep: bytes) -> None:
    """What ended the reading in another way would end a worker's look-out for new tables."""
    for data in (deep, b"\x82\xa6format\x02\xa1x" + deep):
        with pytest.raises(UnreadableTable):
            decode(data)


@given(tables, st.integers(0, 10_000), st.integers(1, 255), st.booleans())
def test_damage_is_noticed_or_harmless(table: RoutingTable, at: int, change: int, is_cut: bool) -> None:
    data = bytearray(encode(table))
    if is_cut:
        data = data[: at % len(data)]
    else:
        data[at % len(data)] ^= change
    try:
        found = decode(bytes(data))
    except UnreadableTable:
        return
    assert isinstance(found, RoutingTable)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("weight", -0.5),
        ("prefix_length", 1023),
        ("prefix_length", 65537),
        ("concurrency_threshold", 0),
        ("concurrency_threshold", 1025),
        ("strategy", "ROUND_ROBIN"),
    ],
)
def test_values_out_of_bounds_are_refused(member: str, value: object) -> None:
    """The bounds are the API's (RoutingConfig in botocore's service model)."""
    variant = Variant("v", 1.0, (), Strategy.PREFIX_AWARE, 1024, 1)
    table = RoutingTable("e", 1, "0", "r", (Endpoint("n", "i", 1, (variant,)),))
    raw = msgspec.msgpack.decode(encode(table))
    raw["endpoints"][0]["variants"][0][member] = value
    with pytest.raises(UnreadableTable, match=member):
        decode(msgspec.msgpack.encode(raw))

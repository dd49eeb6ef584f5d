from msgspec.structs import replace

from contract.routing_table import Endpoint, Instance, RoutingTable, Strategy, Variant
from dataplane.host import Address
from dataplane.routing.instance_order import RANKS
from dataplane.routing.routes import Routes


def instances(*numbers: int) -> tuple[Instance, ...]:
    return tuple(Instance(f"h{number}", number, f"http://h{number}:8000") for number in numbers)


def routes(*endpoints: Endpoint) -> Routes:
    return Routes(RoutingTable("epoch", 7, "000000000000", "us-east-1", endpoints))


PREFIX = Variant("a", 1.0, instances(5, 3, 9), Strategy.PREFIX_AWARE, 2048, 4, "/health")
LEAST = Variant("b", 0.0, instances(3, 8), Strategy.LEAST_OUTSTANDING_REQUESTS)


def test_a_variant_is_ready_for_requests() -> None:
    found = routes(Endpoint("e", "id-e", 1, (PREFIX, LEAST))).endpoints["e"]
    assert (found.id, found.created) == ("id-e", 1)
    first, second = found.variants
    assert (first.name, first.weight, first.strategy) == ("a", 1.0, Strategy.PREFIX_AWARE)
    assert (first.prefix_length, first.threshold) == (2048, 4)
    assert first.numbers == (5, 3, 9)
    assert first.positions == {5: 0, 3: 1, 9: 2}
    assert [first.instances[first.positions[number]].identity for number in (5, 3, 9)] == ["h5", "h3", "h9"]
    assert first.addresses[1] == Address.of("http://h3:8000")
    assert sorted(first.order.all(1)) == [3, 5, 9]
    assert (second.prefix_length, second.threshold) == (0, 0)


def test_a_variant_is_long_when_its_first_ranks_are_not_all() -> None:
    for count, is_long in ((RANKS, False), (RANKS + 1, True)):
        endpoint = Endpoint(
            "e", "id", 1, (Variant("v", 1.0, instances(*range(count)), Strategy.PREFIX_AWARE, 1024, 1),)
        )
        assert routes(endpoint).endpoints["e"].variants[0].is_long is is_long


def test_a_host_of_two_variants_is_one_instance_and_one_address() -> None:
    found = routes(Endpoint("e", "1", 1, (PREFIX,)), Endpoint("f", "2", 1, (LEAST,)))
    assert found.addresses == {Address.of(f"http://h{number}:8000") for number in (5, 3, 9, 8)}
    assert set(found.instances()) == {"h5", "h3", "h9", "h8"}
    instance, variant = found.instances()["h5"]
    assert (instance.base_url, variant.ping_path) == ("http://h5:8000", "/health")


def test_an_empty_table_has_nothing() -> None:
    found = routes()
    assert (found.endpoints, found.addresses, found.instances()) == ({}, set(), {})


def test_what_did_not_change_is_taken_over() -> None:
    """The same objects: nothing is read again, and no key's order is forgotten."""
    unchanged, changed = Endpoint("e", "1", 1, (PREFIX,)), Endpoint("f", "2", 1, (LEAST,))
    before = routes(unchanged, changed)
    ill = replace(PREFIX, instances=(replace(PREFIX.instances[0], healthy=False), *PREFIX.instances[1:]))
    after = Routes(routes(unchanged, replace(changed, variants=(LEAST, ill))).table, before)
    assert after.endpoints["e"] is before.endpoints["e"]
    assert [variant.name for variant in after.endpoints["f"].variants] == ["b", "a"]
    again = Routes(routes(replace(unchanged, variants=(ill,))).table, after).endpoints["e"].variants[0]
    assert again.order is before.endpoints["e"].variants[0].order
    assert [instance.healthy for instance in again.instances] == [False, True, True]


def test_other_instances_have_another_order() -> None:
    before = routes(Endpoint("e", "1", 1, (PREFIX,)))
    for changed in (
        instances(5, 3),
        instances(3, 5, 9),
        (*PREFIX.instances[:2], replace(PREFIX.instances[2], identity="x")),
    ):
        table = routes(Endpoint("e", "1", 1, (replace(PREFIX, instances=changed),))).table
        found, fresh = (Routes(table, known).endpoints["e"].variants[0] for known in (before, None))
        assert found.order is not before.endpoints["e"].variants[0].order
        assert [found.order.all(key) for key in range(50)] == [fresh.order.all(key) for key in range(50)]

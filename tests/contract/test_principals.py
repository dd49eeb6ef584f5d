import msgspec
import pytest

from contract.principals import TENANT_ALL, Kind, Principal, Role
from contract.routing_table import RoutingTable, UnreadableTable, decode, encode

PRINCIPAL = Principal(
    "AKWRAAAAAAAAAAAAAAAA", Kind.ACCESS_KEY, Role.INVOKE, b"sealed", "a", ("chat-*",), True, 2.5, 4
)  # fmt: skip


def test_principals_travel_with_the_routing_table() -> None:
    table = RoutingTable("e", 1, "0", "r", principals=(PRINCIPAL,))
    assert decode(encode(table)).principals == (PRINCIPAL,)


def test_a_principal_is_of_the_installation_and_unlimited_unless_said_otherwise() -> None:
    plain = Principal("id", Kind.API_KEY, Role.READER, b"")
    assert (plain.tenant, plain.endpoints, plain.enabled) == (TENANT_ALL, (), True)
    assert (plain.requests_per_second, plain.concurrent_requests) == (None, None)


def test_roles_and_kinds_are_the_words_of_the_command_line() -> None:
    assert [role.value for role in Role] == ["admin", "operator", "reader", "invoke"]
    assert [kind.value for kind in Kind] == ["access-key", "api-key"]


@pytest.mark.parametrize(
    ("member", "value"),
    [("role", "root"), ("kind", "password"), ("requests_per_second", 0), ("concurrent_requests", 0), ("secret", None)],
)
def test_values_out_of_bounds_are_refused(member: str, value: object) -> None:
    raw = msgspec.msgpack.decode(encode(RoutingTable("e", 1, "0", "r", principals=(PRINCIPAL,))))
    raw["principals"][0][member] = value
    with pytest.raises(UnreadableTable, match=member):
        decode(msgspec.msgpack.encode(raw))

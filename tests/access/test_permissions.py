import pytest
from hypothesis import given
from hypothesis import strategies as st

from access.permissions import OPERATIONS, ROLES, Area, matches, may, sees
from contract.principals import Kind, Principal, Role
from controlplane.operations.registry import OPERATIONS as SERVED


def principal(role: Role, tenant: str = "", endpoints: tuple[str, ...] = (), *, enabled: bool = True) -> Principal:
    return Principal("id", Kind.ACCESS_KEY, role, b"", tenant, endpoints, enabled)


def test_every_operation_that_is_served_has_its_place() -> None:
    """One that nobody thought of would be an administrator's, silently."""
    assert set(SERVED) <= set(OPERATIONS)


@pytest.mark.parametrize(
    ("operation", "roles"),
    [
        ("DescribeEndpoint", "admin operator reader"),
        ("ListModelHosts", "admin operator reader"),
        ("CreateEndpoint", "admin operator"),
        ("DeleteTags", "admin operator"),
        ("RegisterModelHost", "admin"),
        ("DeregisterModelHost", "admin"),
        ("CreateAccessKey", "admin"),
        ("ListAuditRecords", "admin"),
        ("InvokeEndpoint", "admin invoke"),
        ("CallWithBearerToken", "admin invoke"),
        ("ReadMetrics", "admin operator reader"),
    ],
)
def test_roles(operation: str, roles: str) -> None:
    assert {role.value for role in Role if may(principal(role), operation)} == set(roles.split())


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("operation", [*OPERATIONS, "CreateAccessKey"])
def test_a_disabled_principal_may_nothing(role: Role, operation: str) -> None:
    assert not may(principal(role, enabled=False), operation)


def test_a_tenant_touches_its_own_things_only() -> None:
    one = principal(Role.INVOKE, "a", ("chat-*",))
    assert may(one, "InvokeEndpoint", "chat-1", "a")
    assert not may(one, "InvokeEndpoint", "chat-1", "b")
    assert not may(one, "InvokeEndpoint", "chat-1", ""), "the installation's own"
    assert not may(one, "InvokeEndpoint", "embed-1", "a")


def test_the_installation_touches_everybodys() -> None:
    assert all(may(principal(Role.ADMIN), "DeleteEndpoint", "e", owner) for owner in ("", "a", "b"))
    assert sees(principal(Role.READER), "a")
    assert not sees(principal(Role.READER, "b"), "a")


def test_metrics_show_everything_and_so_need_a_principal_that_may_see_everything() -> None:
    assert may(principal(Role.READER), "ReadMetrics")
    assert not may(principal(Role.READER, "a"), "ReadMetrics")
    assert not may(principal(Role.READER, "", ("chat-*",)), "ReadMetrics")


@pytest.mark.parametrize(
    ("patterns", "name", "expected"),
    [
        ((), "anything", True),
        (("chat-*",), "chat-", True),
        (("chat-*",), "Chat-1", False),
        (("chat-?",), "chat-12", False),
        (("a", "b*"), "bee", True),
        (("*",), "x" * 63, True),
        (("*",), "x" * 64, False),
        (("chat-*",), "chat-1\n", True),
    ],
)
def test_patterns(patterns: tuple[str, ...], name: str, expected: bool) -> None:
    assert matches(principal(Role.INVOKE, endpoints=patterns), name) is expected


@given(st.sampled_from(Role), st.sampled_from(sorted(OPERATIONS)), st.sampled_from(["", "a", "b"]))
def test_limits_only_ever_take_away(role: Role, operation: str, owner: str) -> None:
    """A principal with a tenant or with patterns may nothing that the same one without may not."""
    for narrow in (principal(role, "a"), principal(role, "a", ("e*",)), principal(role, "", ("e*",))):
        if may(narrow, operation, "e1", owner):
            assert may(principal(role), operation, "e1", owner)


def test_every_area_is_somebodys() -> None:
    assert frozenset().union(*ROLES.values()) == set(Area)
    assert set(ROLES) == set(Role)

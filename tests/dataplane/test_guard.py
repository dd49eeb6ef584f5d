import logging
from collections.abc import Sequence

import pytest

from access.sealing import Sealing
from contract.principals import Principal, Role
from contract.routing_table import Endpoint, RoutingTable
from dataplane.api import faults
from dataplane.api.faults import Fault, Refused
from dataplane.api.paths import Door
from dataplane.guard import Guard, invocable
from dataplane.routing.routes import Routes
from dataplane.wire.http import Request
from tests.access.stage import API_KEY, KEY, SEALING, access_key, api_key
from tests.fakes.signer import NOW, Signed, bearer_token, sign

ENDPOINTS = (Endpoint("chat-a", "1", 1, (), "a"), Endpoint("chat-b", "2", 1, (), "b"), Endpoint("own", "3", 1, ()))
URL = "http://127.0.0.1/endpoints/chat-a/invocations"


def routes(principals: Sequence[Principal], region: str = "us-east-1") -> Routes:
    return Routes(RoutingTable("e", 1, "000000000000", region, ENDPOINTS, tuple(principals)))


def guard(*principals: Principal, moment: float = NOW) -> Guard:
    made = Guard(SEALING, lambda: moment)
    made.apply(routes(principals))
    return made


def request(signed: Signed) -> Request:
    found = Request(signed.target, signed.method, body=signed.body)
    for name, value in signed.headers:
        if name in found.headers:
            found.repeated.append((name, value))
        else:
            found.headers[name] = value
    return found


def bearing(token: str, target: bytes = b"/v1/chat/completions") -> Request:
    return request(Signed(b"POST", target, ((b"authorization", f"Bearer {token}".encode()),), b"{}"))


def fault(run: object, *given: object) -> Fault:
    with pytest.raises(Refused) as caught:
        run(*given)  # type: ignore[operator]
    return caught.value.fault


def test_a_caller_is_known_by_each_kind_of_credential() -> None:
    found = guard(access_key(), api_key())
    assert found.caller(request(sign(KEY.id, KEY.secret, URL, b"{}"))).id == KEY.id
    assert found.caller(bearing(bearer_token(KEY.id, KEY.secret))).id == KEY.id
    assert found.caller(bearing(API_KEY.key)).id == API_KEY.id
    assert found.caller(bearing(API_KEY.key, b"/endpoints/e/invocations")).id == API_KEY.id


def test_routes_of_openais_take_no_signature() -> None:
    for path in ("/v1/models", "/v1/chat/completions", "/endpoints/e/openai/v1/chat/completions"):
        signed = request(sign(KEY.id, KEY.secret, f"http://127.0.0.1{path}"))
        assert fault(guard(access_key()).caller, signed) is faults.INVALID_SIGNATURE


def test_before_the_first_table_nobody_is_a_stranger() -> None:
    """A 403 would tell a client that its key is bad."""
    assert fault(Guard(SEALING).caller, bearing(API_KEY.key)) is faults.UNAVAILABLE


def test_a_new_table_brings_and_ends_principals() -> None:
    found = guard()
    assert fault(found.caller, bearing(API_KEY.key)) is faults.UNRECOGNIZED_CLIENT
    found.apply(routes([api_key()]))
    assert found.caller(bearing(API_KEY.key))
    found.apply(routes([api_key(enabled=False)]))
    assert fault(found.caller, bearing(API_KEY.key)) is faults.UNRECOGNIZED_CLIENT


def test_the_region_is_the_tables() -> None:
    found = guard(access_key())
    found.apply(routes([access_key()], "eu-west-1"))
    assert fault(found.caller, request(sign(KEY.id, KEY.secret, URL))) is faults.INVALID_SIGNATURE
    assert found.caller(request(sign(KEY.id, KEY.secret, URL, region="eu-west-1")))


def test_the_body_is_part_of_what_is_proved() -> None:
    found = guard(access_key())
    altered = request(sign(KEY.id, KEY.secret, URL, b"{}"))
    altered.body = b"{ }"
    assert found.claim(altered).principal.id == KEY.id
    assert fault(found.caller, altered) is faults.INVALID_SIGNATURE


@pytest.mark.parametrize(
    ("role", "door", "allowed"),
    [
        (Role.INVOKE, Door.INVOKE, True),
        (Role.INVOKE, Door.MODELS, True),
        (Role.INVOKE, Door.METRICS, False),
        (Role.READER, Door.METRICS, True),
        (Role.READER, Door.INVOKE, False),
        (Role.READER, Door.MODELS, False),
        (Role.OPERATOR, Door.CHAT, False),
        (Role.OPERATOR, Door.METRICS, True),
        (Role.ADMIN, Door.INVOKE, True),
        (Role.ADMIN, Door.METRICS, True),
        (Role.READER, Door.UNKNOWN, False),
    ],
)
def test_doors_by_role(role: Role, door: Door, allowed: bool) -> None:
    principal = api_key(role=role)
    found = guard(principal)
    if allowed:
        found.check(principal, door, "", routes([principal]))
    else:
        assert fault(found.check, principal, door, "", routes([principal])) is faults.FORBIDDEN


@pytest.mark.parametrize("name", ["chat-b", "own", "embed-1"])
def test_another_tenants_endpoint_is_forbidden_and_named(name: str) -> None:
    principal = api_key(tenant="a", endpoints=("chat-*", "own"))
    with pytest.raises(Refused, match=rf"arn:aws:sagemaker:us-east-1:000000000000:endpoint/{name}$") as caught:
        guard(principal).check(principal, Door.INVOKE, name, routes([principal]))
    assert caught.value.fault is faults.FORBIDDEN


def test_an_endpoint_that_is_not_there_is_for_the_caller_to_hear_of() -> None:
    principal = api_key(tenant="a", endpoints=("chat-*",))
    guard(principal).check(principal, Door.INVOKE, "chat-none", routes([principal]))


def test_endpoints_that_may_be_invoked() -> None:
    table = routes([])
    seen = {
        name: invocable(caller, endpoint)
        for caller in (api_key(tenant="a", endpoints=("chat-*",)),)
        for name, endpoint in table.endpoints.items()
    }
    assert seen == {"chat-a": True, "chat-b": False, "own": False}
    assert all(invocable(None, endpoint) for endpoint in table.endpoints.values())


def test_the_operator_is_told_once_of_secrets_that_do_not_open(caplog: pytest.LogCaptureFixture) -> None:
    found = Guard(Sealing([b"x" * 32]), lambda: NOW)
    found.apply(routes([access_key()]))
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            assert fault(found.caller, request(sign(KEY.id, KEY.secret, URL))) is faults.UNRECOGNIZED_CLIENT
    (record,) = caplog.records
    assert KEY.id in record.getMessage()
    assert "WARMROUTE_SECRET_KEY" in record.getMessage()

"""AUTH on: the stock clients get in with their keys, and nobody gets in without, or beyond what the key is for."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import botocore.exceptions
import msgspec
import openai
import pytest

from access.sealing import Sealing
from contract.principals import Kind, Role
from tests.dataplane_e2e.callers import SEALING, SECRET_KEY, Callers, ask, bearing, owned, send
from tests.dataplane_e2e.stage import Deployed, Fleet, Stage, chat_body, error_of, native_error
from tests.fakes.data_plane import DataPlane
from tests.fakes.raw_client import Response, request_bytes
from tests.services import PrivateServer
from tests.waiting import wait_until

CHAT = [{"role": "user", "content": "hello"}]


def code(caught: Any) -> tuple[int, str]:
    """Return status and code of a ClientError."""
    response = caught.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]


# --- the stock clients ------------------------------------------------------------------------------------------------


def test_boto3_invokes_with_its_signature(guarded_plane: DataPlane, callers: Callers, fleet: Fleet) -> None:
    deployed = owned(fleet, "a")
    boto = callers.make(tenant="a").boto(guarded_plane)
    answer = boto.invoke_endpoint(
        EndpointName=deployed.name,
        Body=bytes(range(256)) * 32,
        ContentType="application/octet-stream",
        CustomAttributes='a=1,  b="x  y"',
        InferenceId="one two",
    )
    assert json.loads(answer["Body"].read())["host"] == deployed.hosts[0].name
    stream = boto.invoke_endpoint_with_response_stream(EndpointName=deployed.name, Body=b"", Accept="text/plain")
    assert b"host" in b"".join(part["PayloadPart"]["Bytes"] for part in stream["Body"])


@pytest.mark.parametrize("name", ["100%", "a b/c~é", "a%2Fb", "(x)!*'+&=@", "."])
def test_a_path_with_percent_signs_is_understood(guarded_plane: DataPlane, callers: Callers, name: str) -> None:
    """The signature is right, so what is wrong is the name."""
    boto = callers.make().boto(guarded_plane)
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        boto.invoke_endpoint(EndpointName=name, Body=b"x")
    expected = (403, "InvalidSignatureException") if name == "." else (400, "ValidationError")
    assert code(caught) == expected


def test_boto3_with_a_wrong_secret_or_an_unknown_key(guarded_plane: DataPlane, callers: Callers, fleet: Fleet) -> None:
    deployed = owned(fleet, "")
    one, other = callers.make(), callers.make()
    assert one.access_key is not None
    assert other.access_key is not None
    for key, said, expected in (
        (replace(one.access_key, secret=other.access_key.secret), "does not match the signature you provided",
         "InvalidSignatureException"),
        (replace(one.access_key, id="AKWRAAAAAAAAAAAAAAAA"), "The security token included in the request is invalid",
         "UnrecognizedClientException"),
    ):  # fmt: skip
        boto = replace(one, access_key=key).boto(guarded_plane)
        with pytest.raises(botocore.exceptions.ClientError, match=said) as caught:
            boto.invoke_endpoint(EndpointName=deployed.name, Body=b"x")
        assert code(caught) == (403, expected)
    assert deployed.delivered == 0


def test_the_aws_cli_invokes_with_its_signature(
    guarded_plane: DataPlane, callers: Callers, fleet: Fleet, tmp_path: Path
) -> None:
    deployed = owned(fleet, "a")
    key = callers.make(tenant="a").access_key
    assert key is not None
    out = tmp_path / "answer"
    ended = subprocess.run(
        [str(Path(sys.executable).parent / "aws"), "sagemaker-runtime", "invoke-endpoint", "--endpoint-url",
         guarded_plane.url, "--endpoint-name", deployed.name, "--body", "aGVsbG8=", str(out)],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AWS_ACCESS_KEY_ID": key.id,
             "AWS_SECRET_ACCESS_KEY": key.secret, "AWS_DEFAULT_REGION": "us-east-1",
             "AWS_EC2_METADATA_DISABLED": "true"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert json.loads(out.read_bytes())["host"] == deployed.hosts[0].name


@pytest.mark.parametrize("kind", Kind)
def test_openai_clients_bring_a_token_or_a_key(
    guarded_plane: DataPlane, callers: Callers, fleet: Fleet, kind: Kind
) -> None:
    deployed = owned(fleet, "a")
    caller = callers.make(kind=kind, tenant="a", endpoints=(f"{deployed.name}",))
    client = caller.openai(f"{guarded_plane.url}/endpoints/{deployed.name}/openai/v1")
    assert client.chat.completions.with_raw_response.create(model="", messages=CHAT).status_code == 200  # type: ignore[arg-type]
    by_model = caller.openai(f"{guarded_plane.url}/v1")
    answer = by_model.chat.completions.with_raw_response.create(model=deployed.name, messages=CHAT)  # type: ignore[arg-type]
    assert answer.status_code == 200
    assert [model.id for model in by_model.models.list()] == [deployed.name]


def test_openai_clients_are_told_in_their_own_form(guarded_plane: DataPlane, callers: Callers, fleet: Fleet) -> None:
    deployed = owned(fleet, "b")
    url = f"{guarded_plane.url}/endpoints/{deployed.name}/openai/v1"
    stranger = openai.OpenAI(base_url=url, api_key="sk-unknown", max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError) as refused:
        stranger.chat.completions.create(model="", messages=CHAT)  # type: ignore[arg-type]
    assert refused.value.code == "invalid_api_key"
    with pytest.raises(openai.PermissionDeniedError) as denied:
        callers.make(tenant="a").openai(url).chat.completions.create(model="", messages=CHAT)  # type: ignore[arg-type]
    assert denied.value.code == "access_denied"
    assert deployed.delivered == 0


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"moment": time.time() - 50_000}, "expired_token"),
        ({"region": "eu-west-1"}, "invalid_signature"),
        ({"expires": 43_201}, "invalid_signature"),
        ({"moment": time.time() + 90_000}, "invalid_signature"),
    ],
)
def test_tokens_that_are_no_longer_or_elsewhere_good(
    guarded_plane: DataPlane, callers: Callers, given: dict[str, Any], code: str
) -> None:
    token = callers.make().token(**given)
    response = ask(guarded_plane, "/v1/chat/completions", chat_body("x"), bearing(token))
    assert response.status == 403
    assert error_of(response)["code"] == code


# --- who may what -----------------------------------------------------------------------------------------------------


def routes_of(deployed: Deployed) -> dict[str, tuple[str, bytes]]:
    """Return every way to an endpoint: target and body."""
    chat = chat_body("x")
    by_name = json.dumps({"model": deployed.name, "messages": CHAT}).encode()
    return {
        "invoke": (deployed.invocations, b"{}"),
        "stream": (deployed.stream, b"{}"),
        "async": (f"/endpoints/{deployed.name}/async-invocations", b"{}"),
        "chat": (deployed.chat, chat),
        "component": (f"/endpoints/{deployed.name}/inference-components/c/openai/v1/chat/completions", chat),
        "by model": ("/v1/chat/completions", by_name),
    }


def test_a_tenant_gets_403_on_another_tenants_endpoint_on_every_route(
    guarded_plane: DataPlane, callers: Callers, fleet: Fleet
) -> None:
    mine, theirs, installations = owned(fleet, "a", "chat-a"), owned(fleet, "b", "chat-b"), owned(fleet, "", "chat-0")
    for caller in (
        callers.make(tenant="a", endpoints=("chat-*",)),
        callers.make(tenant="a", endpoints=("chat-*",), kind=Kind.API_KEY),
    ):
        for deployed in (theirs, installations):
            for route, (target, body) in routes_of(deployed).items():
                response = caller.ask(guarded_plane, target, body)
                assert response.status == 403, (route, response)
                if route in ("invoke", "stream", "async"):
                    assert native_error(response)[1] == "AccessDeniedException"
                else:
                    assert error_of(response)["code"] == "access_denied"
        models = json.loads(caller.ask(guarded_plane, "/v1/models", b"", "GET").body)["data"]
        assert [model["id"] for model in models] == [mine.name]
        metrics = caller.ask(guarded_plane, "/metrics", b"", "GET")
        assert metrics.status == 403
        assert b"chat-b" not in metrics.body
        assert caller.ask(guarded_plane, mine.invocations).status == 200
    assert theirs.delivered == installations.delivered == 0


def test_a_pattern_limits_within_the_tenant(guarded_plane: DataPlane, callers: Callers, fleet: Fleet) -> None:
    chat, embed = owned(fleet, "a", "chat-1"), owned(fleet, "a", "embed-1")
    caller = callers.make(tenant="a", endpoints=("chat-*",))
    assert caller.ask(guarded_plane, chat.invocations).status == 200
    assert native_error(caller.ask(guarded_plane, embed.invocations))[:2] == (403, "AccessDeniedException")
    assert native_error(caller.ask(guarded_plane, "/endpoints/embed-none/invocations"))[:2] == (
        403, "AccessDeniedException")  # fmt: skip
    assert native_error(caller.ask(guarded_plane, "/endpoints/chat-none/invocations"))[:2] == (400, "ValidationError")


@pytest.mark.parametrize("role", [Role.READER, Role.OPERATOR])
def test_roles_of_the_control_plane_see_metrics_and_invoke_nothing(
    guarded_plane: DataPlane, callers: Callers, fleet: Fleet, role: Role
) -> None:
    deployed = owned(fleet, "")
    caller = callers.make(role)
    for target, body in routes_of(deployed).values():
        assert caller.ask(guarded_plane, target, body).status == 403
    assert caller.ask(guarded_plane, "/v1/models", b"", "GET").status == 403
    assert b"warmroute_workers" in caller.ask(guarded_plane, "/metrics", b"", "GET").body
    with guarded_plane.client() as client:
        assert send(client, caller.sign(guarded_plane, "/metrics", method="GET")).status == 200, "signed, too"
    assert callers.make(role, tenant="a").ask(guarded_plane, "/metrics", b"", "GET").status == 403
    assert deployed.delivered == 0


ODD = ["/", "/endpoints", "/metrics/", "//metrics", "/METRICS", "/v1/models/", "/v1/completions", "/docs", "/debug",
       "/health", "/health/live/", "/health/../metrics", "/endpoints/x/../../metrics", "*"]  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_only_health_is_open(guarded_plane: DataPlane, method: str) -> None:
    """Odd spellings too: a path that is not known is no way around."""
    with guarded_plane.client() as client:
        for target in (*ODD, "/metrics", "/v1/models", "/v1/chat/completions", "/endpoints/e/invocations"):
            response = client.request(target, b"", [("X-HTTP-Method-Override", "GET")], method)
            assert response.status in (401, 403), (method, target, response)
        if method in ("GET", "HEAD"):
            assert client.request("/health/live", method=method).status == 200
            assert client.request("/health/ready", method=method).status == 200


def test_the_region_of_a_signature_is_this_one(guarded_plane: DataPlane, callers: Callers) -> None:
    caller = callers.make()
    with guarded_plane.client() as client:
        response = send(client, caller.sign(guarded_plane, "/endpoints/e/invocations", region="eu-west-1"))
    assert native_error(response)[:2] == (403, "InvalidSignatureException")
    assert "us-east-1" in native_error(response)[2]


# --- what hosts see ---------------------------------------------------------------------------------------------------


def test_a_host_never_sees_a_callers_credential(guarded_plane: DataPlane, callers: Callers, fleet: Fleet) -> None:
    """Nor when it has one of its own, nor in any header that clients use for one."""
    plain, guarded = owned(fleet, ""), owned(fleet, "")
    variant = msgspec.structs.replace(
        guarded.endpoint.variants[0], host_authorization=SEALING.seal("Bearer of-the-host")
    )
    fleet.stage.routes.put(msgspec.structs.replace(guarded.endpoint, variants=(variant,)))
    fleet.stage.settle()
    caller = callers.make()
    extra = [("X-Api-Key", "canary-x"), ("Cookie", "canary-c"), ("Proxy-Authorization", "canary-p")]
    for deployed in (plain, guarded):
        with guarded_plane.client() as client:
            assert send(client, caller.sign(guarded_plane, deployed.invocations, b"{}")).status == 200
            for target in (deployed.invocations, deployed.stream, deployed.chat):
                headers = [*bearing(caller.token()), *extra]
                assert client.request(target, chat_body("x"), headers).status == 200
        for delivery in deployed.hosts[0].deliveries:
            sent = [value for name, value in delivery.headers if name.lower() == "authorization"]
            assert sent == ([] if deployed is plain else [b"Bearer of-the-host"]), delivery.headers
            assert "canary" not in repr(delivery.headers)


def test_a_credential_that_does_not_open_fails_closed(guarded_plane: DataPlane, callers: Callers, fleet: Fleet) -> None:
    deployed = owned(fleet, "")
    sealed = Sealing([b"o" * 32]).seal("Bearer of-the-host")
    variant = msgspec.structs.replace(deployed.endpoint.variants[0], host_authorization=sealed)
    fleet.stage.routes.put(msgspec.structs.replace(deployed.endpoint, variants=(variant,)))
    fleet.stage.settle()
    status, name, said = native_error(callers.make().ask(guarded_plane, deployed.invocations))
    assert (status, name) == (503, "ServiceUnavailable")
    assert "credential" in said
    assert deployed.delivered == 0
    assert "WARMROUTE_SECRET_KEY" in guarded_plane.output


# --- the life of a key ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("notify", [True, False], ids=["by notice", "without a notice"])
def test_a_revocation_applies_with_the_routing_table(
    guarded_plane: DataPlane, callers: Callers, fleet: Fleet, notify: bool
) -> None:
    deployed = owned(fleet, "")
    caller, api = callers.make(), callers.make(kind=Kind.API_KEY)
    for one in (caller, api):
        assert one.ask(guarded_plane, deployed.invocations).status == 200
    callers.put(msgspec.structs.replace(caller.principal, enabled=False), notify=notify)
    callers.withdraw(api, notify=notify)
    fleet.stage.settle()
    with guarded_plane.client() as client:
        signed = send(client, caller.sign(guarded_plane, deployed.invocations, b"{}"))
    assert native_error(signed)[:2] == (403, "UnrecognizedClientException")
    assert native_error(caller.ask(guarded_plane, deployed.invocations))[1] == "UnrecognizedClientException"
    assert native_error(api.ask(guarded_plane, deployed.invocations))[1] == "UnrecognizedClientException"


def test_keys_are_good_while_redis_is_away_also_for_a_worker_that_starts_then(
    own_stage: Stage, own_redis: PrivateServer, fleet: Fleet
) -> None:
    """From the copy on disk, in which secrets are sealed."""
    callers = Callers(own_stage.routes, own_stage)
    plane = own_stage.start(settings={"AUTH": "on", "SECRET_KEY": SECRET_KEY, "DRAIN_SECONDS": 1})
    own_stage.routes.put(owned(fleet, "").endpoint)
    deployed = fleet.deployed[-1]
    caller, stranger = callers.make(), callers.make()
    callers.withdraw(stranger)
    own_stage.settle()
    own_redis.stop()
    plane.stop()
    plane.start()
    wait_until(lambda: caller.ask(plane, deployed.invocations).status == 200, 10.0, "the key is known")
    assert stranger.ask(plane, deployed.invocations).status == 403
    for key in (caller.access_key, stranger.access_key):
        assert key is not None
        assert not [file for file in _files(own_stage.directory) if key.secret.encode() in file.read_bytes()]


def test_the_secret_key_is_rotated_without_a_gap(own_stage: Stage, fleet: Fleet, tmp_path: Path) -> None:
    """First every worker opens both, then secrets are sealed anew, then the old key goes."""
    fleet = Fleet(own_stage, fleet.hosts, fleet.scope)
    callers, file = Callers(own_stage.routes, own_stage), tmp_path / "secret-key"
    file.write_text(SECRET_KEY)
    plane = own_stage.start(settings={"AUTH": "on", "SECRET_KEY_FILE": file, "DRAIN_SECONDS": 1})
    deployed = owned(fleet, "")
    old, new = callers.make(), callers.make()
    key, sealed = new.access_key, Sealing([b"n" * 32])
    assert key is not None
    callers.put(msgspec.structs.replace(new.principal, secret=sealed.seal(key.secret)))
    assert native_error(new.ask(plane, deployed.invocations))[:2] == (403, "UnrecognizedClientException")
    assert f"The secret of access key {key.id} does not open" in plane.output
    file.write_text(f"{base64.b64encode(b'n' * 32).decode()},{SECRET_KEY}")
    plane.signal(signal.SIGHUP)
    wait_until(lambda: new.ask(plane, deployed.invocations).status == 200, 10.0, "the new key opens")
    assert old.ask(plane, deployed.invocations).status == 200
    assert key.secret not in plane.output


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


# --- strangers cost little --------------------------------------------------------------------------------------------


def test_a_stranger_costs_redis_nothing(guarded_plane: DataPlane, callers: Callers, stage: Stage) -> None:
    caller = callers.make()
    bad = [[], bearing("sk-unknown"), bearing(caller.token()[:-5] + "AAAA="), [("Authorization", "AWS4-HMAC-SHA256 x")]]

    def calls() -> int:
        found = stage.routes.redis.info("commandstats")
        return sum(one["calls"] for name, one in found.items() if "eval" in name)

    before, began = calls(), time.monotonic()
    with guarded_plane.client() as client:
        for at in range(400):
            assert client.request("/endpoints/e/invocations", b"{}", bad[at % len(bad)]).status == 403
    seconds = time.monotonic() - began
    # What every worker says of itself and of its leases, at times.
    assert calls() - before < 40 + 20 * len(stage.planes) * seconds


@pytest.mark.parametrize("headers", [[("Content-Length", "20000000")], [("Transfer-Encoding", "chunked")],
                                     [("Content-Length", "10"), ("Expect", "100-continue")]])  # fmt: skip
def test_a_strangers_long_body_is_not_read(guarded_plane: DataPlane, headers: list[tuple[str, str]]) -> None:
    """It would take memory before anybody knew whose it is."""
    for target, status in (("/endpoints/e/invocations", 403), ("/v1/chat/completions", 401)):
        with guarded_plane.client() as client:
            client.send(request_bytes(target, b"", headers))
            response = client.read()
            assert response.status == status
            assert response.header("connection") == "close"


def test_a_known_callers_long_body_is_read(guarded_plane: DataPlane, callers: Callers, fleet: Fleet) -> None:
    deployed = owned(fleet, "")
    caller = callers.make()
    body = b"x" * 200_000
    with guarded_plane.client() as client:
        assert send(client, caller.sign(guarded_plane, deployed.invocations, body)).status == 200
        altered = caller.sign(guarded_plane, deployed.invocations, body)
        response = send(client, type(altered)(altered.method, altered.target, altered.headers, b"y" + body[1:]))
    assert native_error(response)[:2] == (403, "InvalidSignatureException")
    assert deployed.delivered == 1


@pytest.mark.parametrize(
    "value",
    [b"Bearer caf\xe9", "Bearer “smart”".encode(), b"Bearer", b"bearer x", b"Basic YTpi", b"AWS4-HMAC-SHA256",
     b"AWS4-HMAC-SHA256 Credential=a", b"Bearer " + b"x" * 15_000, b"\xff\xfe", b"=", b"Bearer sagemaker-api-key-\xff"],
)  # fmt: skip
def test_odd_credentials_are_refused_in_the_apis_own_form(guarded_plane: DataPlane, value: bytes) -> None:
    with guarded_plane.client() as client:
        native = client.request("/endpoints/e/invocations", b"{}", [("Authorization", value)])
        assert native.status == 403
        assert native_error(native)[1].endswith("Exception")
        chat = client.request("/v1/chat/completions", b"{}", [("Authorization", value)])
        assert chat.status in (401, 403)
        assert error_of(chat)["message"]
        twice = client.request("/v1/models", b"", [("Authorization", value), ("Authorization", value)], "GET")
        assert twice.status in (401, 403)


# --- what is written down ---------------------------------------------------------------------------------------------


def test_no_secret_and_no_prompt_is_written_down(
    guarded_plane: DataPlane, callers: Callers, fleet: Fleet, stage: Stage
) -> None:
    """Canaries in prompts, keys, tokens, query and a host's credential: not in Redis, logs, metrics, files, answers."""
    deployed, broken = owned(fleet, ""), owned(fleet, "")
    variant = msgspec.structs.replace(
        deployed.endpoint.variants[0], host_authorization=SEALING.seal("Bearer canary-of-the-host")
    )
    stage.routes.put(msgspec.structs.replace(deployed.endpoint, variants=(variant,)))
    stage.settle()
    for host in broken.hosts:
        host.close()
    caller, api, reader = callers.make(), callers.make(kind=Kind.API_KEY), callers.make(Role.READER)
    prompt = "canary-prompt-3141592653"
    answers: list[Response] = []
    tokens = [caller.token(), api.token(), "sk-canary-unknown", "canary-token", caller.token()[:-9] + "AAAAAAAA="]
    for one in (deployed, broken):
        for token in tokens:
            for target in (
                one.chat,
                one.invocations,
                "/v1/chat/completions",
                f"{one.invocations}?api_key=canary-query",
            ):
                answers.append(ask(guarded_plane, target, chat_body(prompt), bearing(token)))
        with guarded_plane.client() as client:
            answers.append(send(client, caller.sign(guarded_plane, one.invocations, prompt.encode())))
            answers.append(send(client, caller.sign(guarded_plane, one.invocations, prompt.encode(), region="x-y-1")))
    answers.append(ask(guarded_plane, deployed.chat, b'{"messages": canary-json', bearing(caller.token())))
    assert {200, 400, 401, 403, 503} <= {answer.status for answer in answers}
    metrics = reader.ask(guarded_plane, "/metrics", b"", "GET")
    assert metrics.status == 200
    assert caller.access_key is not None
    canaries = [b"canary", prompt.encode(), caller.access_key.secret.encode(), *(token.encode() for token in tokens)]
    lines = [f'"principal":"{one.principal.id}"' for one in (caller, api)]
    wait_until(
        lambda: all(line in guarded_plane.output for line in lines), 5.0, "the log says whose requests these were"
    )
    places = {
        "log": guarded_plane.output.encode(),
        "metrics": metrics.body,
        "Redis": _everything(stage),
        **{str(file): file.read_bytes() for file in _files(guarded_plane.directory)},
    }
    for place, content in places.items():
        for canary in canaries:
            assert canary not in content, f"{canary!r} is in {place}"
    for answer in answers:
        if answer.status != 200:
            assert not [canary for canary in canaries if canary in answer.body + answer.raw_head], answer


def _everything(stage: Stage) -> bytes:
    """Return all keys and values of the Redis database, as they are."""
    client = stage.routes.redis
    found = []
    for key in client.scan_iter():
        kind = client.type(key)
        values: Any = (
            client.hgetall(key) if kind == b"hash" else client.zrange(key, 0, -1, withscores=True)
            if kind == b"zset" else client.get(key)
        )  # fmt: skip
        found.append(b"%b %b" % (key, repr(values).encode()))
        if kind == b"hash":
            found.extend(values.values())
    assert any(b"table" in one for one in found)
    return b"\n".join(found)

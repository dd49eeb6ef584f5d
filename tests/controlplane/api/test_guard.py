"""AUTH on, over real sockets: official clients signed, roles, tenants, altered requests, and everything unsigned."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import httpx
import psycopg
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from access.sealing import Sealing
from controlplane.api import body
from controlplane.api.app import build_app
from controlplane.operations.registry import OPERATIONS
from controlplane.store.session import Database
from tests.controlplane.api.stubs import served
from tests.controlplane.stage import ACCOUNT, REGION, SEALING

VARIANT = {"VariantName": "v", "ModelName": "m", "InitialInstanceCount": 1}
MISMATCH = "The request signature we calculated does not match the signature you provided."


@dataclass
class Door:
    """A served application and the keys to it."""

    url: str
    admin: dict[str, Any]
    observed: list[tuple[str, str]]

    def boto3(self, key: dict[str, Any], **options: Any) -> Any:
        return boto3.client(
            "sagemaker",
            endpoint_url=self.url,
            region_name=options.pop("region", REGION),
            aws_access_key_id=key["AccessKeyId"],
            aws_secret_access_key=key["SecretAccessKey"],
            config=Config(retries={"total_max_attempts": 1}),
            **options,
        )

    def make(self, **members: Any) -> dict[str, Any]:
        """Create a key with the administrator's, over the REST door."""
        answer = self.send(self.signed("POST", "/CreateAccessKey", json.dumps(members).encode(), self.admin))
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def signed(
        self, method: str, path: str, content: bytes, key: dict[str, Any], headers: dict[str, str] | None = None
    ) -> httpx.Request:
        """Return a request as botocore's signer makes it."""
        given = {"Content-Type": "application/json", **(headers or {})}
        request = AWSRequest(method, self.url + path, given, content)
        SigV4Auth(Credentials(key["AccessKeyId"], key["SecretAccessKey"]), "sagemaker", REGION).add_auth(request)
        host = self.url.removeprefix("http://")
        return httpx.Request(
            method, self.url + path, headers={"host": host, **dict(request.headers.items())}, content=content
        )

    def send(self, request: httpx.Request) -> httpx.Response:
        with httpx.Client(trust_env=False) as client:
            return client.send(request)

    def bearer(self, method: str, path: str, key: str, **members: Any) -> httpx.Response:
        request = httpx.Request(method, self.url + path, headers={"authorization": f"Bearer {key}"}, json=members)
        return self.send(request)


def outcome(response: httpx.Response) -> tuple[int, str]:
    document = response.json()
    assert document.keys() == {"__type", "message"}
    assert response.headers["x-amzn-requestid"]
    return response.status_code, document["__type"]


@pytest.fixture
def door(migrated_url: str) -> Iterator[Door]:
    with open_door(migrated_url) as door:
        yield door


@contextmanager
def open_door(migrated_url: str) -> Iterator[Door]:
    """Serve the application with AUTH on; yield it with an administrator's key."""
    database = Database(migrated_url)
    observed: list[tuple[str, str]] = []
    app = build_app(
        database=database,
        account_id=ACCOUNT,
        region=REGION,
        is_ready=lambda: (True, ""),
        metrics=lambda: "warmroute_up 1\n",
        sealing=SEALING,
        auth=True,
        observe=lambda operation, code, seconds: observed.append((operation, code)),
    )
    secret = "the administrator's secret, 40 letters.."
    admin = {"AccessKeyId": "AKWRADMINADMINADMIN2", "SecretAccessKey": secret}
    with psycopg.connect(migrated_url) as connection:
        connection.execute(
            "INSERT INTO access_key (id, kind, role, endpoints, secret, enabled, created_at)"
            " VALUES (%s, 'access-key', 'admin', '[]', %s, true, now())",
            (admin["AccessKeyId"], SEALING.seal(secret)),
        )
    with served(app, database.dispose) as url:
        yield Door(url, admin, observed)


def code_of(call: Callable[..., Any], **members: Any) -> tuple[int, str]:
    with pytest.raises(ClientError) as raised:
        call(**members)
    response = raised.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]


def test_boto3_signed_and_unmodified_through_the_life_of_an_endpoint(door: Door) -> None:
    client = door.boto3(door.make(Role="operator"))
    model = {"Environment": {"WARMROUTE_HOSTS": "http://10.0.0.1", "NOTE": "caf\u00e9 \u4f60 'quoted'"}}
    client.create_model(ModelName="m", PrimaryContainer=model, Tags=[{"Key": "k", "Value": "v"}])
    assert client.describe_model(ModelName="m")["PrimaryContainer"] == model
    client.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[VARIANT])
    arn = client.create_endpoint(EndpointName="e", EndpointConfigName="c")["EndpointArn"]
    assert client.describe_endpoint(EndpointName="e")["EndpointStatus"] == "Creating"
    client.add_tags(ResourceArn=arn, Tags=[{"Key": "a", "Value": "b"}])
    assert [page["Endpoints"] for page in client.get_paginator("list_endpoints").paginate()]
    assert code_of(client.delete_endpoint, EndpointName="e") == (400, "ValidationException")
    client.delete_endpoint_config(EndpointConfigName="c")
    client.delete_model(ModelName="m")


def test_the_other_door_takes_a_signature_too(door: Door) -> None:
    answer = door.send(door.signed("POST", "/ListModels", b'{"MaxResults": 1}', door.admin))
    assert (answer.status_code, answer.json()) == (200, {"Models": []})


def rebuilt(request: httpx.Request, **changes: Any) -> httpx.Request:
    headers = [
        (name, value) for name, value in request.headers.raw if name.lower() not in (b"content-length", b"connection")
    ]
    return httpx.Request(
        changes.get("method", request.method),
        changes.get("url", request.url),
        headers=changes.get("headers", headers),
        content=changes.get("content", request.content),
    )


def with_header(name: str, value: bytes | None, *, also: bool = False) -> Callable[[httpx.Request], httpx.Request]:
    def change(request: httpx.Request) -> httpx.Request:
        kept = [(key, held) for key, held in request.headers.raw if key.lower() != b"content-length"]
        kept = [(key, held) for key, held in kept if also or key.lower() != name.encode()]
        return rebuilt(request, headers=kept + ([(name.encode(), value)] if value is not None else []))

    return change


def with_authorization(old: bytes, new: bytes) -> Callable[[httpx.Request], httpx.Request]:
    def change(request: httpx.Request) -> httpx.Request:
        value = request.headers["authorization"].encode()
        assert old in value
        return with_header("authorization", value.replace(old, new))(request)

    return change


def last_digit(request: httpx.Request) -> httpx.Request:
    value = request.headers["authorization"]
    return with_header("authorization", (value[:-1] + ("0" if value[-1] != "0" else "1")).encode())(request)


def _upper(request: httpx.Request) -> tuple[str, str]:
    signature = request.headers["authorization"].rpartition("=")[2]
    return signature, signature.upper()


CHANGES: dict[str, tuple[Callable[[httpx.Request], httpx.Request], str]] = {
    "body byte": (lambda r: rebuilt(r, content=r.content.replace(b"1", b"2")), "InvalidSignatureException"),
    "body longer": (lambda r: rebuilt(r, content=r.content + b" "), "InvalidSignatureException"),
    "body gone": (lambda r: rebuilt(r, content=b""), "InvalidSignatureException"),
    "path": (lambda r: rebuilt(r, url=r.url.copy_with(raw_path=b"/ListEndpoints")), "InvalidSignatureException"),
    "query": (lambda r: rebuilt(r, url=r.url.copy_with(raw_path=b"/ListModels?x=1")), "InvalidSignatureException"),
    "path encoded": (lambda r: rebuilt(r, url=r.url.copy_with(raw_path=b"/List%4dodels")), "InvalidSignatureException"),
    "method": (lambda r: rebuilt(r, method="PUT"), "InvalidSignatureException"),
    "content type": (with_header("content-type", b"text/plain"), "InvalidSignatureException"),
    "content type gone": (with_header("content-type", None), "InvalidSignatureException"),
    "host": (with_header("host", b"elsewhere:1"), "InvalidSignatureException"),
    "date by a second": (
        lambda r: (
            with_header("x-amz-date", r.headers["x-amz-date"].encode()[:-2] + b"9Z")(r)
            if r.headers["x-amz-date"][-2] != "9"
            else with_header("x-amz-date", r.headers["x-amz-date"].encode()[:-2] + b"8Z")(r)
        ),
        "InvalidSignatureException",
    ),
    "date gone": (with_header("x-amz-date", None), "IncompleteSignatureException"),
    "date twice": (with_header("x-amz-date", b"20260101T000000Z", also=True), "IncompleteSignatureException"),
    "date of no form": (with_header("x-amz-date", b"yesterday"), "InvalidSignatureException"),
    "target added": (with_header("x-amz-target", b"SageMaker.DeleteModel"), "InvalidSignatureException"),
    "session token added": (with_header("x-amz-security-token", b"t"), "UnrecognizedClientException"),
    "payload hash added": (with_header("x-amz-content-sha256", b"0" * 64), "InvalidSignatureException"),
    "payload unsigned": (with_header("x-amz-content-sha256", b"UNSIGNED-PAYLOAD"), "InvalidSignatureException"),
    "signature digit": (last_digit, "InvalidSignatureException"),
    "signature gone": (with_authorization(b"Signature=", b"Other="), "IncompleteSignatureException"),
    "signed headers shorter": (with_authorization(b"content-type;", b""), "InvalidSignatureException"),
    "signed headers gone": (with_authorization(b"SignedHeaders=", b"Signed="), "IncompleteSignatureException"),
    "credential gone": (with_authorization(b"Credential=", b"Credentials="), "IncompleteSignatureException"),
    "key of nobody": (with_authorization(b"AKWRADMIN", b"AKWRNOBOD"), "UnrecognizedClientException"),
    "region": (with_authorization(b"/us-east-1/", b"/eu-west-1/"), "InvalidSignatureException"),
    "service": (with_authorization(b"/sagemaker/", b"/s3/"), "InvalidSignatureException"),
    "terminator": (with_authorization(b"/aws4_request", b"/aws5_request"), "InvalidSignatureException"),
    "scope date": (with_authorization(b"ADMIN2/20", b"ADMIN2/19"), "InvalidSignatureException"),
    "algorithm": (with_authorization(b"AWS4-HMAC-SHA256", b"AWS4-HMAC-SHA1"), "IncompleteSignatureException"),
    "signature in capitals": (
        lambda r: with_header("authorization", r.headers["authorization"].replace(*_upper(r)).encode())(r),
        "InvalidSignatureException",
    ),
    "signature empty": (
        lambda r: with_header("authorization", r.headers["authorization"].partition(", Signature=")[0].encode())(r),
        "IncompleteSignatureException",
    ),
    "authorization empty": (with_header("authorization", b""), "MissingAuthenticationTokenException"),
    "authorization gone": (with_header("authorization", None), "MissingAuthenticationTokenException"),
    "authorization twice": (with_header("authorization", b"Bearer x", also=True), "IncompleteSignatureException"),
    "bearer alone": (with_header("authorization", b"Bearer"), "UnrecognizedClientException"),
    "bearer of no form": (with_header("authorization", b"bearer x"), "UnrecognizedClientException"),
    "bearer in latin-1": (with_header("authorization", b"Bearer caf\xe9"), "UnrecognizedClientException"),
    "bearer in utf-8": (with_header("authorization", "Bearer \u201cx\u201d".encode()), "UnrecognizedClientException"),
    "bearer of 30 KB": (with_header("authorization", b"Bearer sk-" + b"a" * 30_000), "UnrecognizedClientException"),
    "basic of no form": (with_header("authorization", b"Basic \xff"), "UnrecognizedClientException"),
    "token of the generator": (
        with_header("authorization", b"Bearer sagemaker-api-key-AAAA"),
        "IncompleteSignatureException",
    ),
}


def test_each_altered_part_is_refused(door: Door) -> None:
    found = {}
    for name, (change, _) in CHANGES.items():
        request = door.signed("POST", "/ListModels", b'{"MaxResults": 1}', door.admin)
        answer = door.send(change(request))
        found[name] = outcome(answer)
        assert "secret" not in answer.text
        assert door.send(request).status_code == 200, "the request itself is right"
    assert found == {name: (403, code) for name, (_, code) in CHANGES.items()}
    assert [code for name, code in door.observed if name == "Unknown"] == [code for _, code in CHANGES.values()]


def test_a_key_of_another_secret_key_is_unknown_to_its_caller_and_told_to_the_operator(
    door: Door, migrated_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    sealed = Sealing([b"x" * 32]).seal("another secret")
    with psycopg.connect(migrated_url) as connection:
        connection.execute(
            "INSERT INTO access_key (id, kind, role, endpoints, secret, enabled, created_at)"
            " VALUES ('AKWRSTRANGESTRANGE23', 'access-key', 'admin', '[]', %s, true, now())",
            (sealed,),
        )
    key = {"AccessKeyId": "AKWRSTRANGESTRANGE23", "SecretAccessKey": "another secret"}
    for _ in range(2):
        assert code_of(door.boto3(key).list_models) == (403, "UnrecognizedClientException")
    told = [record.message for record in caplog.records if "AKWRSTRANGESTRANGE23" in record.message]
    assert len(told) == 1
    assert "WARMROUTE_SECRET_KEY" in told[0]


def test_a_wrong_secret_and_an_unknown_key_as_boto3_sees_them(door: Door) -> None:
    wrong = door.boto3(door.admin | {"SecretAccessKey": "x" * 40})
    assert code_of(wrong.list_models) == (403, "InvalidSignatureException")
    unknown = door.boto3(door.admin | {"AccessKeyId": "AKWRNOBODYNOBODYNOBO"})
    assert code_of(unknown.list_models) == (403, "UnrecognizedClientException")
    assert code_of(door.boto3(door.admin, region="eu-west-1").list_models) == (403, "InvalidSignatureException")
    temporary = door.boto3(door.admin, aws_session_token="token")
    assert code_of(temporary.list_models) == (403, "UnrecognizedClientException")


@pytest.mark.parametrize(("seconds", "is_good"), [(-290, True), (290, True), (-310, False), (310, False)])
def test_clocks_may_differ_by_five_minutes(
    door: Door, monkeypatch: pytest.MonkeyPatch, seconds: int, is_good: bool
) -> None:
    monkeypatch.setattr(
        "botocore.auth.get_current_datetime",
        lambda *_, **__: datetime.now(UTC).replace(tzinfo=None) + timedelta(seconds=seconds),
    )
    answer = door.send(door.signed("POST", "/ListModels", b"{}", door.admin))
    if is_good:
        assert answer.status_code == 200
    else:
        assert outcome(answer) == (403, "InvalidSignatureException")
        said = "Signature expired" if seconds < 0 else "Signature not yet current"
        assert answer.json()["message"].startswith(said)


READS = {name for name in OPERATIONS if name.startswith(("Describe", "List"))}
KEYS = {name for name in OPERATIONS if name.endswith(("AccessKey", "AccessKeys"))}
HOSTS = {"RegisterModelHost", "DeregisterModelHost"}
ALLOWED = {
    "admin": set(OPERATIONS),
    "operator": set(OPERATIONS) - KEYS - HOSTS,
    "reader": READS - KEYS,
    "invoke": set(),
}


@pytest.mark.parametrize("role", ALLOWED)
@pytest.mark.parametrize("is_aws", [True, False], ids=["aws", "rest"])
def test_each_role_has_its_operations_and_no_other(door: Door, role: str, is_aws: bool) -> None:
    key = door.make(Role=role)
    for name in OPERATIONS:
        target = {"X-Amz-Target": f"SageMaker.{name}"} if is_aws else {}
        # A member that no operation has: whoever is let in is told so.
        answer = door.send(door.signed("POST", "/" if is_aws else f"/{name}", b'{"?": 1}', key, target))
        wanted = (400, "ValidationException") if name in ALLOWED[role] else (403, "AccessDeniedException")
        assert outcome(answer) == wanted, name
    said = answer.json()["message"]
    if role == "invoke":
        assert said == f"User: {key['AccessKeyId']} is not authorized to perform: sagemaker:{name} on resource: *"


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/docs", {}),
        ("GET", "/openapi.json", {}),
        ("GET", "/metrics", {}),
        ("GET", "/", {}),
        ("GET", "/debug", {}),
        ("POST", "/ListModels/", {}),
        ("POST", "//ListModels", {}),
        ("POST", "/listmodels", {}),
        ("POST", "/LISTMODELS", {}),
        ("POST", "/health/../ListModels", {}),
        ("POST", "/health/live/../../ListModels", {}),
        ("GET", "/health/", {}),
        ("GET", "/HEALTH/live", {}),
        ("POST", "/", {"X-Amz-Target": "sagemaker.ListModels"}),
        ("POST", "/", {"X-Amz-Target": "SageMaker.listmodels"}),
        ("POST", "/", {"X-Amz-Target": "SageMaker."}),
        ("POST", "/", {}),
        ("GET", "/ListModels", {"X-HTTP-Method-Override": "POST"}),
        ("POST", "/", {"X-HTTP-Method-Override": "GET", "X-Amz-Target": "SageMaker.ListModels"}),
    ],
)
def test_a_key_for_invoking_opens_nothing_here(door: Door, method: str, path: str, headers: dict[str, str]) -> None:
    key = door.make(Role="invoke")
    url = httpx.URL(door.url).copy_with(raw_path=path.encode())
    request = door.signed(method, path, b"{}" if method == "POST" else b"", key, headers)
    request.url = url
    assert outcome(door.send(request))[0] == 403
    bare = httpx.Request(method, url, content=b"{}" if method == "POST" else b"")
    assert outcome(door.send(bare))[0] in (401, 403)


def test_health_alone_is_open(door: Door) -> None:
    for path in ("/health/live", "/health/ready"):
        assert httpx.get(door.url + path, trust_env=False).status_code == 200


def test_pages_take_an_api_key_as_scrapers_and_browsers_send_it(door: Door) -> None:
    key = door.make(Role="reader", Kind="api-key")["ApiKey"]
    for path in ("/metrics", "/docs", "/openapi.json"):
        assert door.bearer("GET", path, key).status_code == 200
        assert httpx.get(door.url + path, auth=("anyone", key), trust_env=False).status_code == 200
        assert door.send(door.signed("GET", path, b"", door.admin)).status_code == 200
        bare = httpx.get(door.url + path, trust_env=False)
        assert outcome(bare) == (401, "MissingAuthenticationTokenException")
        assert bare.headers["www-authenticate"].startswith("Basic ")
    assert door.bearer("POST", "/ListModels", key).status_code == 200
    assert outcome(door.bearer("POST", "/", key)) == (403, "IncompleteSignatureException")
    assert outcome(door.bearer("GET", "/docs", key[:-1] + ("A" if key[-1] != "A" else "B")))[0] == 403
    assert outcome(door.bearer("GET", "/nothing", key)) == (404, "UnknownOperationException")


def test_metrics_are_for_those_who_may_see_all_endpoints(door: Door) -> None:
    for members in ({"Tenant": "a"}, {"Endpoints": ["x"]}):
        key = door.make(Role="reader", Kind="api-key", **members)["ApiKey"]
        assert outcome(door.bearer("GET", "/metrics", key)) == (403, "AccessDeniedException")
        assert door.bearer("GET", "/docs", key).status_code == 200


def test_patterns_hold_for_every_operation_on_an_endpoint(door: Door) -> None:
    door.boto3(door.admin).create_model(ModelName="m", PrimaryContainer={})
    client = door.boto3(door.make(Role="operator", Endpoints=["chat-*"]))
    client.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[VARIANT])
    client.create_endpoint(EndpointName="chat-1", EndpointConfigName="c")
    denied = (403, "AccessDeniedException")
    assert code_of(client.create_endpoint, EndpointName="other", EndpointConfigName="c") == denied
    assert code_of(client.describe_endpoint, EndpointName="other") == denied
    assert code_of(client.delete_endpoint, EndpointName="other") == denied
    assert code_of(client.update_endpoint, EndpointName="other", EndpointConfigName="c") == denied
    arn = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:endpoint/other"
    assert code_of(client.list_tags, ResourceArn=arn) == denied
    assert client.list_tags(ResourceArn=arn.replace("other", "chat-1"))["Tags"] == []


def test_tenants_do_not_see_each_other(door: Door) -> None:
    ours, theirs = (door.boto3(door.make(Role="operator", Tenant=tenant)) for tenant in ("a", "b"))
    ours.create_model(ModelName="m", PrimaryContainer={})
    assert code_of(theirs.describe_model, ModelName="m") == (400, "ValidationException")
    assert theirs.list_models()["Models"] == []
    assert len(door.boto3(door.admin).list_models()["Models"]) == 1


def test_a_disabled_and_a_deleted_key_are_refused_at_once(door: Door) -> None:
    key = door.make(Role="reader")
    client = door.boto3(key)
    client.list_models()
    disable = json.dumps({"AccessKeyId": key["AccessKeyId"], "Enabled": False}).encode()
    assert door.send(door.signed("POST", "/UpdateAccessKey", disable, door.admin)).status_code == 200
    assert code_of(client.list_models) == (403, "UnrecognizedClientException")
    other = door.make(Role="reader")
    gone = json.dumps({"AccessKeyId": other["AccessKeyId"]}).encode()
    assert door.send(door.signed("POST", "/DeleteAccessKey", gone, door.admin)).status_code == 200
    assert code_of(door.boto3(other).list_models) == (403, "UnrecognizedClientException")


def test_both_keys_work_while_one_is_rotated(door: Door) -> None:
    old = door.make(Role="reader")
    rotate = json.dumps({"AccessKeyId": old["AccessKeyId"]}).encode()
    new = door.send(door.signed("POST", "/RotateAccessKey", rotate, door.admin)).json()
    for key in (old, new):
        door.boto3(key).list_models()


def test_a_body_beyond_the_limit_is_refused_before_it_is_hashed(door: Door) -> None:
    big = b'{"ModelName": "' + b"a" * body.BODY_BYTES_MAX + b'"}'
    answer = door.send(door.signed("POST", "/DescribeModel", big, door.admin))
    assert outcome(answer) == (413, "RequestEntityTooLargeException")


def test_a_stranger_is_refused_before_the_body_is_read(door: Door) -> None:
    """Whoever has no key cannot make a replica hold half a megabyte for twenty seconds."""
    host, port = door.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as sock:
        sock.sendall(b"POST /ListModels HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 403 ")

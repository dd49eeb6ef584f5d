"""AUTH on and TLS everywhere, over whole planes: official clients signed and unmodified, from the first key to the last
request that a revoked one is refused."""

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import httpx
import openai
import psycopg
import pytest
import redis
from botocore.config import Config
from botocore.exceptions import ClientError
from cryptography import x509
from psycopg import sql

from access.files import listener_tls
from contract import redis_keys
from contract.settings import Settings
from tests.access.stage import secret_key
from tests.end_to_end.stack import SETTINGS, Stack, prefix_aware
from tests.fakes.certificates import Authority
from tests.fakes.plane_process import PlaneProcess, clean_environ
from tests.waiting import wait_until

CREDENTIAL = "Bearer canary-of-the-host"


class TlsHost:
    """A model host that speaks TLS and wants a credential of its own."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        seen: list[tuple[str, str | None]] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.answer(b"")

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.answer(b'{"host": "tls", "choices": []}')

            def answer(self, body: bytes) -> None:
                shown = self.headers["authorization"]
                seen.append((self.path, shown))
                self.send_response(200 if shown == CREDENTIAL else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.seen = seen
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Secured:
    """A stack with AUTH and TLS, one endpoint ``e`` in service, and keys by role."""

    def __init__(self, stack: Stack, authority: Authority) -> None:
        self.stack, self.authority = stack, authority
        certificate, key = authority.issue("planes")
        stack.settings = SETTINGS | {
            "AUTH": "on",
            "SECRET_KEY": secret_key(b"k"),
            "TLS_CERT_FILE": certificate,
            "TLS_KEY_FILE": key,
            "TLS_CA_FILE": authority.ca,
        }

    def keys(self, *arguments: str) -> dict[str, Any]:
        """Run ``warmroute keys``, as an operator does."""
        settings = {f"WARMROUTE_{name}": str(value) for name, value in self.stack.settings.items()}
        environment = clean_environ() | settings | {"WARMROUTE_DATABASE_URL": self.stack.database_url}
        command = [sys.executable, "-m", "warmroute", "keys", *arguments, "--json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        return dict(json.loads(done.stdout))

    def url(self, plane: PlaneProcess) -> str:
        return f"https://127.0.0.1:{plane.port}"

    def client(self, service: str, key: dict[str, Any]) -> Any:
        plane = self.stack.control if service == "sagemaker" else self.stack.plane
        client = boto3.client(
            service,
            endpoint_url=self.url(plane),
            verify=str(self.authority.ca),
            region_name="us-east-1",
            aws_access_key_id=key["AccessKeyId"],
            aws_secret_access_key=key["SecretAccessKey"],
            config=Config(retries={"total_max_attempts": 1}),
        )
        self.stack.clients.append(client)
        return client

    def is_ready(self, plane: PlaneProcess) -> bool:
        try:
            return httpx.get(f"{self.url(plane)}/health/ready", verify=self.context()).status_code == 200
        except httpx.TransportError:
            return False

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.ca))


@pytest.fixture
def tls_host(tmp_path: Path) -> Iterator[Callable[[Authority], TlsHost]]:
    made: list[TlsHost] = []

    def make(authority: Authority) -> TlsHost:
        certificate, key = authority.issue("host")
        tls = listener_tls(Settings(tls_cert_file=str(certificate), tls_key_file=str(key)))
        assert tls is not None
        made.append(TlsHost(tls))
        return made[-1]

    yield make
    for host in made:
        host.close()


def code(call: Callable[..., Any], **members: Any) -> str:
    with pytest.raises(ClientError) as raised:
        call(**members)
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    return str(raised.value.response["Error"]["Code"])


def test_from_the_first_key_to_a_revoked_one(
    own_stack: Stack, tmp_path: Path, tls_host: Callable[[Authority], TlsHost]
) -> None:
    authority = Authority(tmp_path)
    secured = Secured(own_stack, authority)
    host = tls_host(authority)
    control = own_stack.start_control(wait=False)
    plane = own_stack.start_plane(wait=False)
    wait_until(lambda: secured.is_ready(control), 20, "the control plane is ready")

    admin = secured.keys("create", "--role", "admin")
    operator = secured.keys("create", "--role", "operator", "--tenant", "search")
    invoker = secured.keys("create", "--role", "invoke", "--tenant", "search", "--endpoint", "e*")
    stranger = secured.keys("create", "--role", "invoke", "--tenant", "ads")
    api_key = secured.keys("create", "--role", "invoke", "--tenant", "search", "--kind", "api-key")

    sagemaker = secured.client("sagemaker", operator)
    environment = {"WARMROUTE_HOSTS": host.url, "WARMROUTE_HOST_AUTHORIZATION": CREDENTIAL}
    sagemaker.create_model(ModelName="m", PrimaryContainer={"Environment": environment})
    shown = sagemaker.describe_model(ModelName="m")["PrimaryContainer"]["Environment"]
    assert shown["WARMROUTE_HOST_AUTHORIZATION"] == "***"
    variant = {"VariantName": "v", "ModelName": "m", "InitialInstanceCount": 1, "RoutingConfig": prefix_aware()}
    sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
    waiter = sagemaker.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName="e", WaiterConfig={"Delay": 0.2, "MaxAttempts": 150})
    wait_until(lambda: secured.is_ready(plane), 20, "the data plane is ready")

    runtime = secured.client("sagemaker-runtime", invoker)
    answer = runtime.invoke_endpoint(EndpointName="e", Body=b"hello " * 500)
    assert json.loads(answer["Body"].read())["host"] == "tls"
    assert runtime.invoke_endpoint(EndpointName="e", Body=b"x" * 5_000_000)["ResponseMetadata"]["HTTPStatusCode"] == 200
    with httpx.Client(verify=secured.context()) as http:
        chat = openai.OpenAI(
            base_url=f"{secured.url(plane)}/v1", api_key=api_key["ApiKey"], http_client=http, max_retries=0
        )
        assert [model.id for model in chat.models.list().data] == ["e"]
        chat.chat.completions.create(model="e", messages=[{"role": "user", "content": "hello"}])
    assert {shown for _, shown in host.seen} == {CREDENTIAL}, "probes and requests, with the host's credential alone"
    assert {path for path, _ in host.seen} == {"/ping", "/invocations", "/v1/chat/completions"}

    assert code(secured.client("sagemaker-runtime", stranger).invoke_endpoint, EndpointName="e", Body=b"x")
    assert code(secured.client("sagemaker", invoker).list_endpoints) == "AccessDeniedException"
    assert (
        _cli(secured, control, operator, "describe-endpoint", "--endpoint-name", "e")["EndpointStatus"] == "InService"
    )
    assert _cli(secured, control, operator, "list-models")["Models"][0]["ModelName"] == "m"

    secured.keys("disable", invoker["AccessKeyId"])
    wait_until(lambda: _is_refused(runtime), 5, "the worker refuses the revoked key")
    sagemaker.delete_endpoint(EndpointName="e")
    sagemaker.get_waiter("endpoint_deleted").wait(EndpointName="e", WaiterConfig={"Delay": 0.2, "MaxAttempts": 150})

    for one in (control, plane):
        before = _serial(secured, one)
        authority.issue("planes")
        one.signal(signal.SIGHUP)
        wait_until(lambda one=one, before=before: _serial(secured, one) != before, 20, "the new certificate is served")
    secrets = [key["SecretAccessKey"] for key in (admin, operator, invoker, stranger)]
    secrets += [api_key["ApiKey"], "canary"]
    for one in (control, plane):
        assert "Traceback" not in one.output
        assert not any(secret in one.output for secret in secrets)
    stored = _everything(own_stack)
    assert len(stored) > 10_000
    assert not any(secret.encode() in stored for secret in secrets)


def _everything(stack: Stack) -> bytes:
    """Return all that Postgres and Redis hold, as text and as bytes."""
    with psycopg.connect(stack.database_url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        found = [
            row[0].encode()
            for (table,) in tables
            for row in connection.execute(sql.SQL("SELECT one::text FROM {} one").format(sql.Identifier(table)))
        ]
        found += [bytes(row[0]) for row in connection.execute("SELECT secret FROM access_key")]
        found += [bytes(row[0]) for row in connection.execute("SELECT routes FROM publication")]
    with redis.Redis.from_url(stack.redis_url) as client:
        found += [client.dump(key) or b"" for key in client.scan_iter()]
        found += [part for pair in client.hgetall(redis_keys.ROUTES).items() for part in pair]
    return b"\n".join(found)


def _is_refused(runtime: Any) -> bool:
    try:
        runtime.invoke_endpoint(EndpointName="e", Body=b"x")
    except ClientError as error:
        return bool(error.response["Error"]["Code"] == "UnrecognizedClientException")
    return False


def _serial(secured: Secured, plane: PlaneProcess) -> int:
    """Return the serial number of the certificate that is served; 0 while nobody answers."""
    try:
        pem = ssl.get_server_certificate(("127.0.0.1", plane.port), timeout=5)
    except OSError:
        return 0
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def _cli(secured: Secured, control: PlaneProcess, key: dict[str, Any], *arguments: str) -> dict[str, Any]:
    """Run the AWS CLI, signed and unmodified."""
    environment = clean_environ() | {
        "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CA_BUNDLE": str(secured.authority.ca),
    }
    program = os.path.join(os.path.dirname(sys.executable), "aws")
    command = [program, "sagemaker", *arguments, "--endpoint-url", secured.url(control), "--output", "json"]
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))

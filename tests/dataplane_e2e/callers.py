"""Callers with keys of their own, and what each sends: signed by botocore, or with a bearer token."""

import os
import time
from dataclasses import dataclass, field
from typing import Any

import boto3
import msgspec
import openai
from botocore.config import Config

from access.credentials import ENTROPY_BYTES, AccessKey, ApiKey, new_access_key, new_api_key
from access.sealing import Sealing
from contract.principals import Kind, Principal, Role
from tests.dataplane_e2e.stage import Deployed, Fleet, Stage
from tests.fakes.data_plane import DataPlane
from tests.fakes.raw_client import Headers, RawClient, Response
from tests.fakes.routes import Routes
from tests.fakes.signer import Signed, bearer_token, sign

SECRET_KEY = "c2VjcmV0IGtleSBvZiB0aGUgdGVzdHMgLSAzMiBieXQ="
SEALING = Sealing.of(SECRET_KEY)


@dataclass(frozen=True)
class Caller:
    """One principal, with the secrets that only its owner has."""

    principal: Principal
    access_key: AccessKey | None = None
    api_key: ApiKey | None = None
    opened: list[Any] = field(default_factory=list, repr=False)
    """Clients that were made for it; its maker closes them."""

    def sign(self, plane: DataPlane, target: str, body: bytes = b"", headers: Any = (), **given: Any) -> Signed:
        """Return a request of this moment, signed."""
        assert self.access_key is not None
        key = self.access_key
        return sign(key.id, key.secret, plane.url + target, body, headers, **{"moment": time.time(), **given})

    def token(self, **given: Any) -> str:
        """Return a bearer token as the SageMaker SDK makes it, or the API key."""
        if self.access_key is None:
            assert self.api_key is not None
            return self.api_key.key
        return bearer_token(self.access_key.id, self.access_key.secret, **{"moment": time.time(), **given})

    def ask(self, plane: DataPlane, target: str, body: bytes = b"{}", method: str = "POST") -> Response:
        """Send a request with a bearer token."""
        return ask(plane, target, body, bearing(self.token()), method)

    def boto(self, plane: DataPlane, **config: Any) -> Any:
        """Return a boto3 runtime client with this caller's keys that tries once."""
        assert self.access_key is not None
        client = boto3.client(
            "sagemaker-runtime",
            endpoint_url=plane.url,
            region_name="us-east-1",
            aws_access_key_id=self.access_key.id,
            aws_secret_access_key=self.access_key.secret,
            config=Config(**{"retries": {"max_attempts": 0}, "read_timeout": 20, **config}),
        )
        self.opened.append(client)
        return client

    def openai(self, base_url: str, **given: Any) -> openai.OpenAI:
        """Return an OpenAI client with this caller's token that tries once."""
        options = {"max_retries": 0, "timeout": 20.0, **given}
        client = openai.OpenAI(base_url=base_url, api_key=self.token(), **options)
        self.opened.append(client)
        return client


@dataclass
class Callers:
    """Makes the principals of one test."""

    routes: Routes
    stage: Stage
    made: list[Caller] = field(default_factory=list)

    def make(self, role: Role = Role.INVOKE, kind: Kind = Kind.ACCESS_KEY, **given: Any) -> Caller:
        """Put a principal into the table and wait until every worker knows it."""
        if kind is Kind.ACCESS_KEY:
            key = new_access_key(os.urandom(ENTROPY_BYTES))
            caller = Caller(Principal(key.id, kind, role, SEALING.seal(key.secret), **given), key)
        else:
            api_key = new_api_key(os.urandom(ENTROPY_BYTES))
            caller = Caller(Principal(api_key.id, kind, role, api_key.digest, **given), None, api_key)
        self.made.append(caller)
        self.put(caller.principal)
        return caller

    def put(self, principal: Principal, *, notify: bool = True) -> None:
        """Add or replace a principal and publish."""
        self.routes.principals[principal.id] = principal
        self.routes.publish(notify=notify)
        self.stage.settle()

    def withdraw(self, *callers: Caller, notify: bool = True) -> None:
        """Take principals out and publish."""
        for caller in callers:
            self.routes.principals.pop(caller.principal.id, None)
        self.routes.publish(notify=notify)

    def close(self) -> None:
        for caller in self.made:
            for client in caller.opened:
                client.close()
        self.withdraw(*self.made)


def owned(fleet: Fleet, tenant: str, name: str = "", **given: Any) -> Deployed:
    """Deploy an endpoint that is a tenant's."""
    deployed = fleet.deploy(1, "RANDOM", name=name, **given)
    changed = Deployed(msgspec.structs.replace(deployed.endpoint, tenant=tenant), deployed.hosts)
    fleet.stage.routes.put(changed.endpoint)
    fleet.stage.settle()
    return changed


def bearing(token: str) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {token}"), ("Content-Type", "application/json")]


def ask(plane: DataPlane, target: str, body: bytes = b"{}", headers: Headers = (), method: str = "POST") -> Response:
    """Send one request on a connection of its own."""
    with plane.client() as client:
        return client.request(target, body, headers, method)


def send(client: RawClient, signed: Signed) -> Response:
    """Send a signed request as it is."""
    headers = [(name.decode("latin-1"), value) for name, value in signed.headers]
    target, method = signed.target.decode("latin-1"), signed.method.decode("latin-1")
    return client.request(target, signed.body, headers, method)

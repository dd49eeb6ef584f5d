"""Callers of the benchmark: their keys, and requests signed by botocore as boto3 signs them."""

import base64
import datetime
import os
from collections.abc import Mapping
from dataclasses import dataclass

from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from access.credentials import ENTROPY_BYTES, AccessKey, ApiKey, new_access_key, new_api_key
from access.sealing import Sealing
from access.sigv4 import SERVICE
from contract.principals import Kind, Principal, Role

REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class Caller:
    """One tenant's keys of both kinds."""

    tenant: str
    access_key: AccessKey
    api_key: ApiKey

    @classmethod
    def make(cls, tenant: str) -> "Caller":
        return cls(tenant, new_access_key(os.urandom(ENTROPY_BYTES)), new_api_key(os.urandom(ENTROPY_BYTES)))

    def principal(self, sealing: Sealing, endpoints: tuple[str, ...] = (), rate: float | None = None) -> Principal:
        sealed = sealing.seal(self.access_key.secret)
        return Principal(self.access_key.id, Kind.ACCESS_KEY, Role.INVOKE, sealed, self.tenant, endpoints,
                         requests_per_second=rate)  # fmt: skip

    def api_principal(self, endpoints: tuple[str, ...] = ()) -> Principal:
        return Principal(self.api_key.id, Kind.API_KEY, Role.INVOKE, self.api_key.digest, self.tenant, endpoints)


def signed_headers(
    caller: Caller, host: str, target: str, body: bytes, headers: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the headers of a signed POST, but the host's."""
    request = AWSRequest("POST", f"http://{host}{target}", {"Host": host, **headers}, body)
    SigV4Auth(_credentials(caller), SERVICE, REGION).add_auth(request)
    return {name: value for name, value in request.headers.items() if name != "Host"}


def token(caller: Caller) -> str:
    """Return a bearer token as the SageMaker SDK's generator makes it."""
    request = AWSRequest("POST", "https://sagemaker.amazonaws.com/", params={"Action": "CallWithBearerToken"})
    request.headers["host"] = "sagemaker.amazonaws.com"
    seconds = int(datetime.timedelta(hours=12).total_seconds())
    SigV4QueryAuth(_credentials(caller), SERVICE, REGION, expires=seconds).add_auth(request)
    url = request.url.removeprefix("https://") + "&Version=1"
    return "sagemaker-api-key-" + base64.b64encode(url.encode()).decode()


def _credentials(caller: Caller) -> Credentials:
    return Credentials(caller.access_key.id, caller.access_key.secret)

"""Signs as the stock clients do: botocore's own signers, at a time of the test's choosing."""

import base64
import datetime
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest import mock
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

NOW = 1_770_685_323.0
"""2026-02-10T01:02:03Z."""
REGION = "us-east-1"
HOURS_12 = 43_200


@dataclass(frozen=True)
class Signed:
    """A request as a server reads it."""

    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def header(self, name: bytes) -> bytes:
        return next(value for known, value in self.headers if known == name)

    def with_header(self, name: bytes, value: bytes | None) -> "Signed":
        """Return the request with a header's value changed, added, or (None) left out."""
        kept = [(known, value if known == name and value is not None else old)
                for known, old in self.headers if known != name or value is not None]  # fmt: skip
        if value is not None and all(known != name for known, _ in self.headers):
            kept.append((name, value))
        return replace(self, headers=tuple(kept))


@contextmanager
def at(moment: float) -> Iterator[None]:
    """Let botocore believe that it is ``moment``."""
    then = datetime.datetime.fromtimestamp(moment, datetime.UTC)
    with mock.patch("botocore.auth.get_current_datetime", return_value=then):
        yield


def sign(
    key_id: str,
    secret: str,
    url: str,
    body: bytes = b"",
    headers: Sequence[tuple[str, str]] = (),
    *,
    method: str = "POST",
    moment: float = NOW,
    region: str = REGION,
    service: str = "sagemaker",
    token: str | None = None,
) -> Signed:
    """Return a request signed by botocore's header signer."""
    request = AWSRequest(method, url, data=body)
    for name, value in headers:
        request.headers.add_header(name, value)
    with at(moment):
        SigV4Auth(Credentials(key_id, secret, token), service, region).add_auth(request)
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    sent = [(name.lower().encode(), str(value).encode("utf-8")) for name, value in request.headers.items()]
    if "host" not in request.headers:
        sent.insert(0, (b"host", parts.netloc.encode()))
    # What the HTTP client adds after signing.
    sent += [(b"user-agent", b"Boto3/1"), (b"content-length", b"%d" % len(body))]
    return Signed(method.encode(), target.encode(), tuple(sent), body)


def presigned(
    key_id: str,
    secret: str,
    *,
    expires: int = HOURS_12,
    moment: float = NOW,
    region: str = REGION,
    token: str | None = None,
) -> str:
    """Return what a bearer token is made of: a URL without its scheme, as the SageMaker SDK's generator makes it."""
    request = AWSRequest("POST", "https://sagemaker.amazonaws.com/", params={"Action": "CallWithBearerToken"})
    request.headers["host"] = "sagemaker.amazonaws.com"
    with at(moment):
        SigV4QueryAuth(Credentials(key_id, secret, token), "sagemaker", region, expires=expires).add_auth(request)
    url: str = request.url
    return url.removeprefix("https://") + "&Version=1"


def wrapped(url: str) -> str:
    """Return a bearer token that holds this text."""
    return "sagemaker-api-key-" + base64.b64encode(url.encode()).decode()


def bearer_token(
    key_id: str,
    secret: str,
    *,
    expires: int = HOURS_12,
    moment: float = NOW,
    region: str = REGION,
    token: str | None = None,
) -> str:
    """Return a bearer token of the SageMaker SDK."""
    return wrapped(presigned(key_id, secret, expires=expires, moment=moment, region=region, token=token))

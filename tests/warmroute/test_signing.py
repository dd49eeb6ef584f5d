"""Our own signature is the one that botocore makes."""

from datetime import UTC, datetime

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from warmroute.signing import Key, signed


def test_it_signs_as_botocore_does() -> None:
    url, body = "http://127.0.0.1:7070/DescribeEndpoint", b'{"EndpointName": "demo"}'
    now = datetime.now(UTC)
    ours = signed(Key("AKWRABC", "secret/+", "eu-west-1"), "POST", url, body, now)
    request = AWSRequest("POST", url, {"Content-Type": "application/json"}, body)
    signer = SigV4Auth(Credentials("AKWRABC", "secret/+"), "sagemaker", "eu-west-1")
    request.context["timestamp"] = ours["x-amz-date"]
    request.headers["X-Amz-Date"] = ours["x-amz-date"]
    canonical = signer.canonical_request(request)
    theirs = signer.signature(signer.string_to_sign(request, canonical), request)
    assert ours["authorization"].endswith(f"SignedHeaders=content-type;host;x-amz-date, Signature={theirs}")
    assert "secret" not in repr(Key("a", "secret", "r"))

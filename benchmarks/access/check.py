"""CPU of one check of a caller, as a worker makes it: head, signature or token, body hash, permission. In process."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from urllib.parse import urlsplit

from access.sealing import Sealing
from benchmarks.access.callers import Caller, signed_headers, token
from contract.routing_table import Endpoint, RoutingTable
from dataplane.api.faults import Refused
from dataplane.api.paths import Door
from dataplane.guard import Guard
from dataplane.routing.routes import Routes
from dataplane.wire.http import Request

BODY_BYTES = 8_192
REPETITIONS = 9
CALLS = 4_000
SEAL = Sealing([b"benchmark of the access check..."])
HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json",
    "X-Amzn-SageMaker-Prefix-Aware-Id": "conversation-17",
}
"""Those boto3 signs beside its own, for a call with a few of the API's members."""
UNSIGNED = (
    (b"user-agent", b"Boto3/1.44.8 md/Botocore#1.44.8 ua/2.1 os/linux md/arch#x86_64 lang/python#3.11 cfg/retry-mode"),
    (b"accept-encoding", b"identity"),
    (b"amz-sdk-invocation-id", b"0b5e5fb3-6a8d-4fd8-a1c9-7d1b1f0f9c11"),
    (b"amz-sdk-request", b"attempt=1; max=3"),
    (b"content-length", b"%d" % BODY_BYTES),
)
NAME = "chat-1"
NATIVE, CHAT = f"/endpoints/{NAME}/invocations", f"/endpoints/{NAME}/openai/v1/chat/completions"
HOST = "127.0.0.1:7080"


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of CPU a check: (median, least, most) over the repetitions."""

    way: str
    microseconds: tuple[float, float, float]


def measure(*, quick: bool) -> list[Cost]:
    """Measure each way of saying who one is. Raises RuntimeError when one is not answered as it should be."""
    caller, stranger = Caller.make("a"), Caller.make("a")
    principals = (caller.principal(SEAL, ("chat-*",)), caller.api_principal(("chat-*",)))
    routes = Routes(RoutingTable("e", 1, "000000000000", "us-east-1", (Endpoint(NAME, "1", 1, (), "a"),), principals))
    # A signature is good for five minutes; the guard's clock stands still where botocore signs.
    moment = time.time()
    guard = Guard(SEAL, lambda: moment)
    guard.apply(routes)
    body = b"x" * BODY_BYTES
    signed = {name: (NATIVE, signed_headers(one, HOST, NATIVE, body, HEADERS)) for name, one in
              (("signature", caller), ("stranger", stranger))}  # fmt: skip
    ways: list[tuple[str, Request, bool]] = [
        ("signature, 8 KiB", _request(*signed["signature"], body), True),
        ("signature, no body", _request(NATIVE, signed_headers(caller, HOST, NATIVE, b"", HEADERS), b""), True),
        ("bearer token of the SageMaker SDK", _request(CHAT, _bearing(token(caller)), body), True),
        ("API key", _request(CHAT, _bearing(caller.api_key.key), body), True),
        ("unknown key, refused", _request(*signed["stranger"], body), False),
        ("altered body, refused", _request(*signed["signature"], b"y" + body[1:]), False),
        ("no credential, refused", _request(NATIVE, {}, body), False),
    ]
    calls, repetitions = (50, 1) if quick else (CALLS, REPETITIONS)

    def check(request: Request) -> bool:
        try:
            principal = guard.caller(request)
            guard.check(principal, Door.INVOKE, NAME, routes)
        except Refused:
            return False
        return True

    costs = []
    for way, request, is_good in ways:
        if check(request) is not is_good:
            raise RuntimeError(f"{way}: a check that is cheap for being wrong is not measured")
        costs.append(Cost(way, _spread([_once(check, request, calls) for _ in range(repetitions)])))
    return costs


def _once(check: Callable[[Request], bool], request: Request, calls: int) -> float:
    began = time.process_time()
    for _ in range(calls):
        check(request)
    return 1e6 * (time.process_time() - began) / calls


def _spread(values: list[float]) -> tuple[float, float, float]:
    return median(values), min(values), max(values)


def _bearing(text: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {text}", "Content-Type": "application/json"}


def _request(target: str, headers: Mapping[str, str], body: bytes) -> Request:
    named = {name.lower().encode(): value.encode() for name, value in headers.items()}
    return Request(
        urlsplit(target).path.encode(), b"POST", headers={b"host": HOST.encode(), **named, **dict(UNSIGNED)}, body=body
    )

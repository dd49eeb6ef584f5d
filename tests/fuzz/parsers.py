"""The part ``parsers``: whatever else reads what strangers wrote, and the routing table, which comes by the network.

None may fail but in the way that it documents; none may pass on bytes that would end a header; and no signature may
hold for another request than the one that was signed.
"""

import random
from collections.abc import Callable
from functools import cache

from access import bearer, credentials, sigv4
from access.refusals import Refusal
from access.sealing import Sealing
from access.verifier import Verifier
from contract.principals import Kind, Principal, Role
from contract.routing_table import Endpoint, Instance, RoutingTable, Strategy, UnreadableTable, Variant, decode, encode
from dataplane.api import faults
from dataplane.api.chat import ChatCompletions
from dataplane.api.native import Invoke, InvokeWithResponseStream
from dataplane.api.paths import is_openai, resolve
from dataplane.wire.http import Request
from tests.fakes.signer import NOW, REGION, Signed, bearer_token, sign
from tests.fuzz.report import Finding
from tests.fuzz.requests import BODIES, LINES, OTHER_PATHS, PATHS, PIECES

KEY = credentials.new_access_key(bytes(range(40)))
API_KEY = credentials.new_api_key(bytes(range(80, 120)))
SEALING = Sealing([b"k" * 32])
_CREDENTIALS = (
    b"AWS4-HMAC-SHA256", b"Credential=", b"SignedHeaders=host", b"Signature=", b",", b"/", b"aws4_request",
    b"sagemaker", b"Bearer ", b"bearer", bearer.PREFIX, b"sk-", b"=", b"&", b";", b"%", b"X-Amz-Date",
    b"A" * 5_000, b"20260210",
    b"20260230T250000Z", b"99999999", b"00000000T000000Z", b"\xd9\xa3", b"-1", b"?",
)  # fmt: skip


def run(dice: random.Random) -> None:
    """Run one case. Raises Finding."""
    part = dice.choice(_PARTS)
    try:
        part(dice)
    except Finding:
        raise
    except Exception as error:
        # The point of this part: whatever comes out that is not documented is a finding.
        raise Finding(f"{part.__name__}: {type(error).__name__}: {error}") from error


def spoilt(dice: random.Random, data: bytes, words: tuple[bytes, ...] = (*PIECES, *_CREDENTIALS)) -> bytes:
    """Return the bytes with up to three changes."""
    for _ in range(dice.choice((1, 1, 2, 3))):
        at, size = dice.randrange(len(data) + 1), dice.choice((1, 1, 2, 8, 40))
        data = dice.choice((
            data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :],
            data[:at] + dice.choice(words) + data[at:],
            data[:at] + data[at + size :],
            data[: at + size] + data[at:],
            data[:at],
        ))  # fmt: skip
    return data


# --- the routing table -----------------------------------------------------------------------------------------------


@cache
def _table() -> bytes:
    hosts = tuple(Instance(f"host-{n}", n, f"http://127.0.0.1:{8000 + n}") for n in range(3))
    variants = (
        Variant("A", 1.0, hosts, Strategy.PREFIX_AWARE, 1024, 8, host_authorization=b"sealed"),
        Variant("B", 0.5, hosts[:1]),
    )
    endpoints = (Endpoint("e", "id", 1_790_000_000, variants, "tenant"), Endpoint("f", "id2", 1, ()))
    return encode(RoutingTable("epoch", 7, "000000000000", REGION, endpoints, _principals()))


def _read_table(dice: random.Random) -> None:
    lies = (b"\xdd\xff\xff\xff\xff", b"\xc6\x7f\xff\xff\xff", b"\xa6format", b"\xc0", b"\xcb\x7f\xf8" + b"\x00" * 6,
            b"\x91" * 5_000, b"\x81\xa1a" * 5_000)  # fmt: skip
    data = spoilt(dice, _table(), (*PIECES, *lies))
    try:
        table = decode(data)
    except UnreadableTable:
        return
    # A damaged table that can be read is a table: what is in it has its types.
    if decode(encode(table)) != table and b"\x7f\xf8" not in data:
        raise Finding(f"a table is not the same after a round: {data!r}")


# --- credentials -----------------------------------------------------------------------------------------------------


def _principals() -> tuple[Principal, ...]:
    return (
        Principal(KEY.id, Kind.ACCESS_KEY, Role.INVOKE, _sealed()),
        Principal(API_KEY.id, Kind.API_KEY, Role.INVOKE, API_KEY.digest),
    )


@cache
def _sealed() -> bytes:
    return SEALING.seal(KEY.secret)


@cache
def _verifier() -> Verifier:
    made = Verifier(REGION, SEALING)
    made.apply(_principals())
    return made


@cache
def _signed(number: int) -> Signed:
    headers = [("Content-Type", "application/json"), ("X-Amzn-SageMaker-Prefix-Aware-Id", "a  b")][: number % 3]
    query = ("", "?b=2&a=1&a=0", "?x=%20y")[number % 3]
    return sign(
        KEY.id, KEY.secret, f"http://warmroute.test/endpoints/e-{number}/invocations{query}", b"{}" * number, headers
    )


@cache
def _token() -> bytes:
    return bearer_token(KEY.id, KEY.secret).encode()


def _verify_signature(dice: random.Random) -> None:
    good = _signed(dice.randrange(6))
    method, target, body, headers = good.method, good.target, good.body, list(good.headers)
    choice = dice.random()
    if choice < 0.5:
        at = dice.randrange(len(headers))
        headers[at] = (headers[at][0], spoilt(dice, headers[at][1]))
    elif choice < 0.6:
        headers.insert(dice.randrange(len(headers) + 1), dice.choice(headers))
    elif choice < 0.7:
        del headers[dice.randrange(len(headers))]
    elif choice < 0.8:
        body = spoilt(dice, body)
    elif choice < 0.9:
        target = spoilt(dice, target)
    else:
        method = spoilt(dice, method)
    try:
        _verifier().verify(method, target, headers, body, NOW)
    except Refusal:
        return
    named = good.header(b"authorization").split(b"SignedHeaders=")[1].split(b",")[0].split(b";")
    if (method, _meaning(target), body, _kept(headers, named)) != (
        good.method, _meaning(good.target), good.body, _kept(good.headers, named),
    ):  # fmt: skip
        raise Finding(f"a signature holds for another request: {(method, target, headers, body)} signed as {good}")


def _meaning(target: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return the path, and the query's pairs in any order: SigV4 sorts them, and a pair may lack its ``=``."""
    path, _, query = target.partition(b"?")
    pairs = [pair.partition(b"=") for pair in query.split(b"&")] if query else []
    return path, sorted((name, value) for name, _, value in pairs)


def _kept(
    headers: list[tuple[bytes, bytes]] | tuple[tuple[bytes, bytes], ...], named: list[bytes]
) -> dict[bytes, list[bytes]]:
    """Return the signed headers, their white space collapsed as SigV4 does."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        if name in named:
            found.setdefault(name, []).append(b" ".join(value.split()))
    return {name: b",".join(values).split(b",") for name, values in found.items()}


def _verify_bearer(dice: random.Random) -> None:
    good = dice.choice((_token(), API_KEY.key.encode()))
    token = spoilt(dice, good)
    headers = [
        (b"host", b"h"),
        (b"authorization", dice.choice((b"Bearer ", b"bearer  ", b"BEARER\t", b"Bearer")) + token),
    ]
    try:
        _verifier().verify(b"POST", b"/", headers, b"", NOW)
    except Refusal:
        return
    if token.strip() != good:
        raise Finding(f"a changed token holds: {token!r}")


def _read_credentials(dice: random.Random) -> None:
    value = spoilt(
        dice, dice.choice((_signed(2).header(b"authorization"), b"", _token(), b"20260210T010203Z", _signed(1).target))
    )
    readers: tuple[Callable[[bytes], object], ...] = (
        sigv4.read_authorization,
        sigv4.read_scope,
        sigv4.read_time,
        lambda text: bearer.read_token(bearer.PREFIX + text),
    )
    for reader in readers:
        try:
            reader(value)
        except Refusal as refusal:
            if not refusal.message.isprintable():
                raise Finding(f"an odd message for {value!r}: {refusal.message!r}") from None
    credentials.api_key_id(value)
    sigv4.canonical_path(value)
    sigv4.canonical_query(value)


# --- requests --------------------------------------------------------------------------------------------------------


def _read_request(dice: random.Random) -> None:
    """The words of the two APIs; what the host is sent must be headers of the front's own choice, each one line."""
    headers: dict[bytes, bytes] = {}
    repeated: list[tuple[bytes, bytes]] = []
    for line in dice.sample(LINES, dice.randrange(8)):
        name, _, value = line.partition(b":")
        value = bytes(
            byte for byte in (spoilt(dice, value) if dice.random() < 0.5 else value) if byte >= 32 or byte == 9
        )
        name, value = name.strip().lower(), value.strip(b" \t")
        if name in headers:
            repeated.append((name, value))
        else:
            headers[name] = value
    target = spoilt(dice, dice.choice(PATHS + OTHER_PATHS), PIECES)
    body = dice.choice(BODIES)
    request = Request(
        target, b"POST", 1, headers, repeated, spoilt(dice, body, PIECES) if dice.random() < 0.5 else body
    )
    _, endpoint = resolve(target)
    is_openai(target)
    for api in (Invoke(), InvokeWithResponseStream()):
        _read(lambda api=api: api.read(request, endpoint).headers)  # type: ignore[misc]
    chat = ChatCompletions()
    _read(lambda: chat.read(request, None).headers)
    _read(lambda: chat.read(request, endpoint).headers)


def _read(read: Callable[[], bytes]) -> None:
    try:
        lines = read()
    except faults.Refused as refused:
        for answer in (faults.native(refused.fault, refused.message), faults.openai(refused.fault, refused.message)):
            if not 400 <= answer[0] < 500:
                raise Finding(f"answered {answer}") from None
        return
    if any(
        not line or b"\r" in line or b"\n" in line or b"\x00" in line or b": " not in line
        for line in lines.split(b"\r\n")[:-1]
    ):
        raise Finding(f"the host would be sent {lines!r}")


_PARTS = (_read_table, _verify_signature, _verify_signature, _verify_bearer, _read_credentials, _read_request)

"""Requests that two readers could cut differently, through a real worker to a host that records what it gets.

Each is refused with a 4xx and the connection ends, or is read in the one right way. Never does a second request come
out of the first, never does the host get a byte of another request, and never is the answer a 5xx.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.dataplane_e2e.stage import Deployed, Fleet
from tests.fakes.data_plane import DataPlane
from tests.fakes.raw_client import RawClient, Response

BODY = b"the only body"
EVIL = b"evil"
"""In every byte that must not reach the host; ``@`` stands for the path that would invoke it."""
INNER = b"POST @ HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nevil"
CHUNKS = b"d\r\n%b\r\n0\r\n\r\n" % BODY


def framed(*lines: bytes, body: bytes = BODY, version: bytes = b"HTTP/1.1") -> bytes:
    """Return a request with these header lines; Host comes first."""
    return b"POST @ %b\r\nHost: h\r\n%b\r\n\r\n%b" % (version, b"\r\n".join(lines), body)


def chunked(body: bytes) -> bytes:
    return framed(b"Transfer-Encoding: chunked", body=body)


def line(start: bytes) -> bytes:
    """Return a request with this request line."""
    return b"%b\r\nHost: h\r\nContent-Length: 4\r\n\r\nevil" % start


LENGTH = b"Content-Length: 13"
CODING = b"Transfer-Encoding: chunked"

REFUSED = {
    # Length and coding, in either order, each hiding a request from a reader of the other.
    "CL.TE": framed(b"Content-Length: %d" % (5 + len(INNER)), CODING, body=b"0\r\n\r\n" + INNER),
    "TE.CL": framed(CODING, b"Content-Length: 4", body=b"%x\r\n%b\r\n0\r\n\r\n" % (len(INNER), INNER)),
    "CL.0 with TE": framed(b"Content-Length: 0", CODING, body=CHUNKS),
    # Two lengths, and lengths that readers take differently.
    "two lengths": framed(LENGTH, b"Content-Length: 0", body=INNER),
    "two lengths, the other way": framed(b"Content-Length: 0", b"Content-Length: %d" % len(INNER), body=INNER),
    "two equal lengths": framed(LENGTH, LENGTH),
    "a list of lengths": framed(b"Content-Length: 13, 13"),
    "a negative length": framed(b"Content-Length: -13"),
    "a length with a sign": framed(b"Content-Length: +13"),
    "a hexadecimal length": framed(b"Content-Length: 0xd"),
    "a fraction": framed(b"Content-Length: 13.0"),
    "a length with a space in it": framed(b"Content-Length: 1 3"),
    "a length with an underscore": framed(b"Content-Length: 1_3"),
    "a length in quotes": framed(b'Content-Length: "13"'),
    "an empty length": framed(b"Content-Length:", body=INNER),
    "a length past 64 bits": framed(b"Content-Length: 18446744073709551629"),
    "a length after a vertical tab": framed(b"Content-Length: \x0b13"),
    "a length of other digits": framed("Content-Length: \u0661\u0663".encode()),
    # Codings.
    "xchunked": framed(b"Transfer-Encoding: xchunked", body=CHUNKS),
    "chunkedx": framed(b"Transfer-Encoding: chunkedx", body=CHUNKS),
    "chunked in quotes": framed(b'Transfer-Encoding: "chunked"', body=CHUNKS),
    "chunked with a parameter": framed(b"Transfer-Encoding: chunked;q=1", body=CHUNKS),
    "identity": framed(b"Transfer-Encoding: identity", body=CHUNKS),
    "identity and a length": framed(b"Transfer-Encoding: identity", LENGTH),
    "gzip": framed(b"Transfer-Encoding: gzip", body=CHUNKS),
    "gzip, chunked": framed(b"Transfer-Encoding: gzip, chunked", body=CHUNKS),
    "gzip and chunked": framed(b"Transfer-Encoding: gzip", CODING, body=CHUNKS),
    "chunked, gzip": framed(b"Transfer-Encoding: chunked, gzip", body=CHUNKS),
    "chunked twice": framed(CODING, CODING, body=CHUNKS),
    "chunked, chunked": framed(b"Transfer-Encoding: chunked, chunked", body=CHUNKS),
    "chunked and identity": framed(CODING, b"Transfer-Encoding: identity", body=CHUNKS),
    "a comma before chunked": framed(b"Transfer-Encoding: , chunked", body=CHUNKS),
    "a comma after chunked": framed(b"Transfer-Encoding: chunked,", body=CHUNKS),
    "an empty coding": framed(b"Transfer-Encoding:", body=CHUNKS),
    "an empty coding and a length": framed(b"Transfer-Encoding:", LENGTH),
    "chunked after a vertical tab": framed(b"Transfer-Encoding: \x0bchunked", body=CHUNKS),
    "chunked before a NUL": framed(b"Transfer-Encoding: chunked\x00", body=CHUNKS),
    "chunked on a folded line": framed(b"Transfer-Encoding:", b" chunked", body=CHUNKS),
    "chunked in HTTP/1.0": framed(CODING, body=CHUNKS, version=b"HTTP/1.0"),
    # Chunks.
    "a size with 0x": chunked(b"0xd\r\n%b\r\n0\r\n\r\n" % BODY),
    "a size with a sign": chunked(b"+d\r\n%b\r\n0\r\n\r\n" % BODY),
    "a negative size": chunked(b"-d\r\n%b\r\n0\r\n\r\n" % BODY),
    "a space before the size": chunked(b" d\r\n%b\r\n0\r\n\r\n" % BODY),
    "a space after the size": chunked(b"d \r\n%b\r\n0\r\n\r\n" % BODY),
    "a size past 64 bits": chunked(b"1000000000000000d\r\n%b\r\n0\r\n\r\n" % BODY),
    "no size": chunked(b"\r\n%b\r\n0\r\n\r\n" % BODY),
    "a size of no digits": chunked(b"g\r\n%b\r\n0\r\n\r\n" % BODY),
    "a bare LF after the size": chunked(b"d\n%b\r\n0\r\n\r\n" % BODY),
    "a bare LF after the data": chunked(b"d\r\n%b\n0\r\n\r\n" % BODY),
    "a bare LF after the last size": chunked(b"d\r\n%b\r\n0\n\r\n" % BODY),
    "a bare LF at the end": chunked(b"d\r\n%b\r\n0\r\n\n" % BODY),
    "a bare CR after the size": chunked(b"d\r%b\r\n0\r\n\r\n" % BODY),
    "more data than the size": chunked(b"3\r\n%b\r\n0\r\n\r\n" % BODY),
    "less data than the size": chunked(b"e\r\n%b\r\n0\r\n\r\n" % BODY),
    "nothing between data and size": chunked(b"d\r\n%b0\r\n\r\n" % BODY),
    "an extension ended by LF": chunked(b"d;a\n%b\r\n0\r\n\r\n" % BODY),
    "a CR in an extension": chunked(b"d;a\rb\r\n%b\r\n0\r\n\r\n" % BODY),
    "a NUL in an extension": chunked(b"d;a\x00\r\n%b\r\n0\r\n\r\n" % BODY),
    "a line end in a quoted extension": chunked(b'd;a="\r\n%b\r\n0\r\n\r\n' % BODY),
    "a length as trailer": chunked(b"d\r\n%b\r\n0\r\nContent-Length: 40\r\n\r\n" % BODY),
    "a coding as trailer": chunked(b"d\r\n%b\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n" % BODY),
    "a trailer that is no header": chunked(b"d\r\n%b\r\n0\r\nPOST @ HTTP/1.1\r\n\r\n" % BODY),
    # Line ends, spaces and folds.
    "a space before the colon": framed(b"Content-Length : 13"),
    "a space before the coding's colon": framed(b"Transfer-Encoding : chunked", LENGTH),
    "a tab before the colon": framed(b"Content-Length\t: 13"),
    "a space before the name": framed(b" Content-Length: 13"),
    "a space before the first name": b"POST @ HTTP/1.1\r\n Host: h\r\nContent-Length: 13\r\n\r\n" + BODY,
    "a folded length": framed(b"Content-Length: 1", b" 3"),
    "a folded header": framed(b"User-Agent: a", b"\tX: evil", LENGTH),
    "bare LFs": framed(LENGTH).replace(b"\r\n", b"\n"),
    "a bare LF after the request line": framed(LENGTH).replace(b"\r\n", b"\n", 1),
    "a bare LF in a value": framed(b"User-Agent: a\nTransfer-Encoding: chunked", LENGTH),
    "a bare CR in a value": framed(b"User-Agent: a\rTransfer-Encoding: chunked", LENGTH),
    "two CRs": framed(b"User-Agent: a\r", LENGTH),
    "LF LF ends the head": framed(b"User-Agent: a\n\n" + INNER, LENGTH),
    "CR LF LF ends the head": b"POST @ HTTP/1.1\r\nHost: h\r\nContent-Length: 13\r\n\n" + BODY,
    # Bytes that do not belong.
    "a NUL in a value": framed(b"User-Agent: a\x00b", LENGTH),
    "a NUL in a name": framed(b"X\x00: a", LENGTH),
    "an escape in a value": framed(b"User-Agent: \x1b[2J", LENGTH),
    "DEL in a value": framed(b"User-Agent: a\x7f", LENGTH),
    "a byte above ASCII in a name": framed(b"Content-Length\xa0: 13", LENGTH),
    "a name in quotes": framed(b'"X": a', LENGTH),
    "a name in brackets": framed(b"X[]: a", LENGTH),
    "no name": framed(b": a", LENGTH),
    "no colon": framed(b"evil", LENGTH),
    # Host and request line.
    "two Hosts": framed(b"Host: evil", LENGTH),
    "two equal Hosts": framed(b"Host: h", LENGTH),
    "HTTP/2.0": line(b"POST @ HTTP/2.0"),
    "HTTP/1.2": line(b"POST @ HTTP/1.2"),
    "HTTP/0.9": line(b"POST @ HTTP/0.9"),
    "HTTP/1.10": line(b"POST @ HTTP/1.10"),
    "http in lower case": line(b"POST @ http/1.1"),
    "no version": line(b"POST @"),
    "a space in the target": line(b"POST @ x HTTP/1.1"),
    "tabs in the request line": line(b"POST\t@\tHTTP/1.1"),
    "a space after the version": line(b"POST @ HTTP/1.1 "),
    "a method in lower case": line(b"post @ HTTP/1.1"),
    "an unknown method": line(b"BREW @ HTTP/1.1"),
    "CONNECT": line(b"CONNECT h:443 HTTP/1.1"),
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an overlong slash": line(b"POST /endpoints\xc0\xaf HTTP/1.1"),
    "a NUL in the target": line(b"POST @\x00 HTTP/1.1"),
    "an escape in the target": line(b"POST @\x1b[2J HTTP/1.1"),
    "a byte above ASCII in the target": line(b"POST @\xff HTTP/1.1"),
    "no slash": line(b"POST evil HTTP/1.1"),
}
"""Answered 4xx, and the connection ends with what came after."""

READ = {
    "a plain request": framed(LENGTH),
    "a length with zeros before it": framed(b"Content-Length: 0000013"),
    "spaces and tabs around the length": framed(b"Content-Length: \t 13 \t "),
    "no space after the colon": framed(b"Content-Length:13"),
    "names in other case": framed(b"CONTENT-length: 13"),
    "an underscore makes it another name": framed(LENGTH, b"Content_Length: 0", b"Transfer_Encoding: chunked"),
    "a name that begins like it": framed(LENGTH, b"Content-Length-X: 0", b"X-Transfer-Encoding: chunked"),
    "chunked in other case": framed(b"tRANSFER-eNCODING: cHUNKED", body=CHUNKS),
    "a tab before chunked": framed(b"Transfer-Encoding:\tchunked", body=CHUNKS),
    "sizes with zeros before them": chunked(b"000000d\r\n%b\r\n0000\r\n\r\n" % BODY),
    "sizes in capitals": chunked(b"D\r\n%b\r\n0\r\n\r\n" % BODY),
    "an extension": chunked(b"d;a=b;c\r\n%b\r\n0;x\r\n\r\n" % BODY),
    "an extension in quotes": chunked(b'd;a="b;0"\r\n%b\r\n0\r\n\r\n' % BODY),
    "trailers": chunked(b"d\r\n%b\r\n0\r\nHost: evil\r\nX-Amzn-SageMaker-Target-Variant: evil\r\n\r\n" % BODY),
    "empty lines before the request": b"\r\n\r\n" + framed(LENGTH),
    "a byte above ASCII in a value": framed(b"X-Name: \xff", LENGTH),
    "an offer of another protocol": framed(b"Connection: Upgrade", b"Upgrade: h2c", LENGTH),
    "an offer of another protocol, in chunks": framed(b"Connection: Upgrade", b"Upgrade: evil", CODING, body=CHUNKS),
    "headers that the client calls hop by hop": framed(b"Connection: content-length, host", LENGTH),
    "another method by header": framed(b"X-HTTP-Method-Override: GET", LENGTH),
    "another path by header": framed(b"X-Original-URL: /evil", b"X-Rewrite-URL: /evil", LENGTH),
}
"""Read: the host gets the one body, once; the next request on the connection is the next one that was sent."""

ELSEWHERE = {
    "an absolute target": line(b"POST http://evil@ HTTP/1.1"),
    "an absolute target without a path": line(b"POST http://evil HTTP/1.1"),
    "an asterisk": line(b"OPTIONS * HTTP/1.1"),
    "a fragment": line(b"POST @#f HTTP/1.1"),
    "a semicolon": line(b"POST @;x=/../metrics HTTP/1.1"),
    "backslashes": line(rb"POST /endpoints\..\invocations HTTP/1.1"),
    "a slash too many": line(b"POST @/ HTTP/1.1"),
    "slashes in twos": line(b"POST //endpoints//e//invocations HTTP/1.1"),
    "an encoded letter": line(b"POST /%65ndpoints/e/invocations HTTP/1.1"),
    "an encoded slash": line(b"POST /endpoints%2fe%2finvocations HTTP/1.1"),
    "encoded twice": line(b"POST /endpoints/%252e%252e/invocations HTTP/1.1"),
    "dots": line(b"POST /endpoints/./x/../invocations HTTP/1.1"),
    "an encoded line end": line(b"POST /endpoints/e%0d%0aX:%20evil/invocations HTTP/1.1"),
    "an encoded NUL": line(b"POST /endpoints/e%00/invocations HTTP/1.1"),
    "encoded overlong slashes": line(b"POST /endpoints/%c0%af/invocations HTTP/1.1"),
    "a very long name": line(b"POST /endpoints/%b/invocations HTTP/1.1" % (b"e" * 20_000)),
    "markup": line(b"POST /endpoints/<script>/invocations HTTP/1.1"),
    "GET with a body": line(b"GET @ HTTP/1.1"),
}
"""Refused as what it asks for, after it was read in the one right way: the connection goes on."""


@dataclass
class Stage:
    """One worker with an endpoint, and what its host has been sent."""

    plane: DataPlane
    deployed: Deployed
    fleet: Fleet

    def send(self, data: bytes) -> RawClient:
        """Send what was written for an endpoint, then a request that is good, on a connection of its own."""
        path = self.deployed.invocations.encode()
        client = self.plane.client()
        with contextlib.suppress(ConnectionError):  # refused before all of it was sent
            client.send(data.replace(b"@", path) + framed(b"Content-Length: 4", body=b"next").replace(b"@", path))
        return client

    @property
    def bodies(self) -> list[bytes]:
        """The bodies that the host was sent, after a look at every other byte that it was sent."""
        (host,) = self.deployed.hosts
        assert not any(connection._reader.buffer for connection in host._connections), "the begin of another request"
        for delivery in host.deliveries:
            assert (delivery.method, delivery.target) == ("POST", "/invocations")
            assert EVIL not in delivery.raw_head + delivery.body
        return host.bodies


@pytest.fixture
def on(quick_plane: DataPlane, fleet: Fleet) -> Stage:
    return Stage(quick_plane, fleet.deploy(1), fleet)


def refusal(client: RawClient) -> Response:
    """Return the only answer of a connection that ends after it."""
    answer = client.read()
    assert client.rest() == b""
    return answer


def cases(found: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    assert len(found) > 15
    yield from found.items()


def test_what_could_be_cut_in_two_ways_is_refused(on: Stage) -> None:
    """With a word about it; nothing of it reaches the host, and what follows on the connection neither."""
    for name, data in cases(REFUSED):
        with on.send(data) as client:
            answer = refusal(client)
            said = json.loads(answer.body)["Message"]
            assert answer.status in (400, 408), (name, answer)
            assert answer.header("x-amzn-errortype") in ("MalformedHttpRequestException", "RequestTimeoutException")
            assert answer.header("connection") == "close", name
            assert len(said) > 10, name
            assert said.isprintable(), name
        assert on.bodies == [], name


def test_what_can_be_read_in_one_way_is_read_so(on: Stage) -> None:
    for name, data in cases(READ):
        with on.send(data) as client:
            assert [client.read().status for _ in range(2)] == [200, 200], name
            assert client.is_ended(0.02) is False, name
        assert on.bodies == [BODY, b"next"], name
        on.deployed.hosts[0].clear()


def test_paths_that_lead_nowhere_end_here(on: Stage) -> None:
    for name, data in cases(ELSEWHERE):
        with on.send(data) as client:
            answer = client.read()
            assert 400 <= answer.status < 500, (name, answer)
            assert json.loads(answer.body)["Message"].isprintable(), name
            assert client.read().status == 200, name
        assert on.bodies == [b"next"], name
        on.deployed.hosts[0].clear()


def test_a_request_after_the_last_one_is_not_read(on: Stage) -> None:
    """Neither after Connection: close nor after an HTTP/1.0 request that did not ask to be kept."""
    for data in (
        framed(LENGTH, b"Connection: close"),
        framed(LENGTH, version=b"HTTP/1.0"),
        framed(LENGTH, b"Connection: close, keep-alive"),
        framed(LENGTH, b"Connection: close, Upgrade", b"Upgrade: h2c"),
    ):
        with on.send(data + INNER) as client:
            assert refusal(client).status == 200
        assert on.bodies == [BODY]
        on.deployed.hosts[0].clear()


def test_each_cut_of_the_bytes_is_read_alike(on: Stage) -> None:
    """A request that comes in two packets, cut at every place, is the one that it is in one packet."""
    path = on.deployed.invocations.encode()
    for data in (framed(LENGTH), chunked(b"6;a=b\r\nthe on\r\n7\r\nly body\r\n0\r\nX: y\r\n\r\n")):
        whole = data.replace(b"@", path)
        for at in range(1, len(whole), 3):
            with on.plane.client() as client:
                client.send(whole[:at])
                client.send(whole[at:])
                assert client.read().status == 200
        assert set(on.bodies) == {BODY}
        on.deployed.hosts[0].clear()


def test_a_refused_body_is_no_request(on: Stage) -> None:
    """Too large by its announcement, or for an unknown endpoint: what the client sends all the same is thrown away."""
    path = on.deployed.invocations.encode()
    for head in (
        framed(b"Content-Length: 99999999", body=b""),
        framed(b"Content-Length: 18446744073709551615", body=b""),
        b"POST /endpoints/none/invocations HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 99\r\n\r\n",
    ):
        with on.send(head + INNER * 20) as client:
            answer = refusal(client)
            assert answer.status in (400, 413)
    assert on.bodies == []
    with on.plane.client() as client:
        assert client.request(path.decode(), BODY).status == 200


HOSTILE = {
    "arrays in arrays": (b"[" * 20_000 + b"]" * 20_000, 400),
    "objects in objects": (b'{"a":' * 50_000, 400),
    "deep beside the messages": (b'{"messages":[{"content":"x"}],"z":%b}' % (b"[" * 5_000 + b"]" * 5_000), None),
    "deep in the messages": (b'{"messages":%b}' % (b"[" * 5_000 + b"]" * 5_000), None),
    "deep, and only for lenient readers": (
        b'{"messages":[{"content":NaN}],"z":%b}' % (b"[" * 5_000 + b"]" * 5_000),
        None,
    ),
    "a number of 5,000 digits": (b'{"messages":[{"content":"x"}],"seed":%b}' % (b"9" * 5_000), None),
    "an exponent past all": (b'{"messages":[{"content":"x"}],"temperature":1e999999}', None),
    "NaN": (b'{"messages":[{"content":"x"}],"temperature":NaN}', None),
    "members twice": (b'{"messages":1,"messages":[{"content":"x"}]}', 200),
    "members twice, the other way": (b'{"messages":[{"content":"x"}],"messages":1}', 400),
    "half a character": (b'{"messages":[{"content":"\\ud83d"}]}', 200),
    "half a character as model": (b'{"messages":[{"content":"x"}],"model":"\\ud83d"}', 200),
    "half a character as id": (b'{"messages":[{"content":"x"}],"prompt_cache_key":"\\ud83d"}', 400),
    "NUL as a character": (b'{"messages":[{"content":"\\u0000"}]}', 200),
    "NUL as a byte": (b'{"messages":[{"content":"\x00"}]}', 400),
    "a byte order mark": (b'\xef\xbb\xbf{"messages":[{"content":"x"}]}', 200),
    "two of them": (b'\xef\xbb\xbf\xef\xbb\xbf{"messages":[{"content":"x"}]}', 400),
    "overlong UTF-8": (b'{"messages":[{"content":"\xc0\xaf"}]}', 400),
    "UTF-16": ('{"messages":[{"content":"x"}]}'.encode("utf-16-le"), 400),
    "a string without end": (b'{"messages":[{"content":"' + b"x" * 100_000, 400),
    "a comment": (b'{"messages":[]} // evil', 400),
}
"""Body, and the status it must have; None: 400, or 200 with every byte passed on, as the reader can take it or not."""


def test_hostile_json_is_refused_or_passed_on_as_it_is(on: Stage) -> None:
    for name, (body, status) in HOSTILE.items():
        with on.plane.client() as client:
            answer = client.request(on.deployed.chat, body)
            assert answer.status == (status or answer.status), (name, answer)
            assert answer.status in (200, 400), name
            if answer.status == 400:
                assert json.loads(answer.body)["error"]["message"], name
            assert client.request(on.deployed.invocations, BODY).status == 200, name
        (host,) = on.deployed.hosts
        assert host.bodies == ([body, BODY] if answer.status == 200 else [BODY]), name
        host.clear()


def test_an_unknown_model_of_half_characters_is_named_in_the_answer(on: Stage) -> None:
    with on.plane.client() as client:
        answer = client.request("/v1/chat/completions", b'{"messages":[],"model":"\\ud83d\\u0000\\u001b"}')
    assert answer.status == 404
    assert json.loads(answer.body)["error"]["param"] == "model"

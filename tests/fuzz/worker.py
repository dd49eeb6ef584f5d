"""The part ``worker``: a real data plane over sockets, and a host that records every byte it is sent.

Judged by the independent reading: no answer is a 5xx, none is missing, and the host has got exactly the bodies of the
requests that were answered 200, in order and nothing else.
"""

import contextlib
import random
import socket
from collections.abc import Iterator
from pathlib import Path

from tests.dataplane_e2e.stage import Fleet, Stage
from tests.fakes.data_plane import DataPlane
from tests.fakes.model_host import Hosts, ModelHost, host_thread
from tests.fakes.routes import Routes
from tests.fuzz import requests
from tests.fuzz.reading import Limits, Reading, Stream, read
from tests.fuzz.report import CutOff, Finding, answers
from tests.waiting import wait_until
from warmroute.embedded.valkey import Valkey

LIMITS = Limits(32_768, 100, 100_000)
SETTINGS = {"BODY_BYTES_MAX": LIMITS.body_bytes, "READ_TIMEOUT_SECONDS": 0.5, "CONNECT_TIMEOUT_SECONDS": 2}
ANSWER_SECONDS = 10.0
"""Longer than everything that may hold an answer up, on a busy machine."""


class Worker:
    """The plane and the host, while ``running``."""

    def __init__(self, plane: DataPlane, host: ModelHost) -> None:
        self._plane = plane
        self._host = host

    def run(self, dice: random.Random) -> None:
        """Run one case. Raises Finding."""
        data = requests.stream(dice)
        pieces = requests.cut(dice, data)[:200]
        try:
            self.check(pieces)
        except Finding as finding:
            raise Finding(f"{finding}\npieces = {pieces!r}") from None

    def check(self, pieces: list[bytes]) -> None:
        """Send these pieces on a connection of their own and judge what came of it. Raises Finding."""
        stream = read(b"".join(pieces), LIMITS)
        self._host.clear()
        found, is_ended = self._exchange(pieces, stream)
        _judge(stream, [status for status, _ in found], is_ended)
        expected = [
            one.body
            for one, (status, _) in zip(stream.requests, found, strict=False)
            if status == 200 and _invokes(one)
        ]
        if self._host.bodies != expected or len(self._host.deliveries) != len(expected):
            raise Finding(f"the host got {self._host.bodies}, not {expected}")
        if any(connection._reader.buffer for connection in list(self._host._connections)):
            raise Finding("the host got the begin of something")
        if self._host.faults:
            raise Finding(f"the host got {self._host.faults}")
        if "Traceback" in self._plane.output:
            raise Finding(f"the worker printed {self._plane.output[-3_000:]}")

    def _exchange(self, pieces: list[bytes], stream: Stream) -> tuple[list[tuple[int, bytes]], bool]:
        """Return the answers, and whether the connection was ended."""
        methods = [one.method for one in stream.requests]
        with socket.create_connection(("127.0.0.1", self._plane.port)) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.settimeout(ANSWER_SECONDS)
            with contextlib.suppress(ConnectionError):
                for piece in pieces:
                    client.sendall(piece)
            data, is_ended = b"", False
            found: list[tuple[int, bytes]] = []
            while not is_ended and (len(found) < len(methods) or stream.end in ("malformed", "closed")):
                try:
                    received = client.recv(262_144)
                except ConnectionResetError:
                    received = b""
                except TimeoutError:
                    raise Finding(f"no answer within {ANSWER_SECONDS} s, after {data!r}") from None
                data, is_ended = data + received, not received
                with contextlib.suppress(CutOff):
                    found = answers(data, methods)
            if is_ended:
                found = answers(data, methods)
        return found, is_ended


def _judge(stream: Stream, statuses: list[int], is_ended: bool) -> None:
    if odd := [status for status in statuses if status != 200 and not 400 <= status < 500]:
        raise Finding(f"answered with {odd}")
    wanted = len(stream.requests)
    if len(statuses) > wanted + 1 or (len(statuses) > wanted and statuses[-1] == 200):
        raise Finding(f"answers {statuses} to {wanted} requests ({stream.end})")
    if len(statuses) < wanted and (not is_ended or not statuses):
        raise Finding(f"answers {statuses} to {wanted} requests")


def _invokes(request: Reading) -> bool:
    return request.method == b"POST" and request.target.partition(b"?")[0] in requests.PATHS


@contextlib.contextmanager
def running(directory: Path) -> Iterator[Worker]:
    """Run a data plane of one worker with an endpoint ``e`` of one host. At its end nothing may be in flight."""
    valkey = Valkey(directory / "valkey", log=directory / "valkey.log")
    url = valkey.start()
    with contextlib.ExitStack() as stack:
        stack.callback(valkey.stop)
        stage = Stage(url, directory, Routes(url))
        stack.callback(stage.close)
        fleet = Fleet(stage, Hosts(stack.enter_context(host_thread())), "fuzz")
        stack.callback(fleet.close)
        plane = stage.start(settings=SETTINGS)
        deployed = fleet.deploy(1, "LEAST_OUTSTANDING_REQUESTS", name="e")
        pids = plane.pids()
        yield Worker(plane, deployed.hosts[0])
        if plane.pids() != pids:
            raise Finding(f"the worker ended: {plane.output[-3_000:]}")
        # A request whose client has left is cancelled, which takes a moment.
        wait_until(lambda: deployed.in_flight == 0)
        fleet.expect_idle()

"""Redis stopped under load with streams open, and what requests notice of it. See docs/soak.md.

    .venv/bin/python -m tests.fleet.freeze --seconds 20

SIGSTOP: connections stay open and new ones are taken, and nothing answers. Nothing may fail, be cut or leave its home;
after GRACE_SECONDS nothing may wait; and within a lease of SIGCONT admission must be exact again.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.dataplane_e2e.stage import Deployed, Fleet, Stage, asking, chat_body, homes, prefix
from tests.fakes.answers import Gate, sse
from tests.fakes.data_plane import DataPlane
from tests.fakes.model_host import Hosts, HostThread, host_thread
from tests.fakes.routes import Routes
from tests.fleet.load import Load, Result, Shot, p95
from tests.fleet.stage import LEASE_SECONDS, SETTINGS, degraded, expect_exact, is_true_under_load, working
from tests.services import PrivateServer, PrivateServers
from tests.waiting import wait_until

RATE = 50.0
STREAMS = 6
USUAL_SECONDS = 4.0
"""Under load before the freeze."""
GRACE_SECONDS = 2.0
ADDED_SECONDS = 0.05
THRESHOLD = 8
PREFIXES = [prefix(number) for number in range(20)]


@dataclass(frozen=True)
class Frozen:
    """What a freeze did. Times in seconds; ``*_after`` count from SIGCONT."""

    seconds: float
    results: list[Result]
    failed: list[Result]
    strays: list[Result]
    usual: list[float]
    """What requests took before it."""
    first: list[float]
    """And within GRACE_SECONDS of SIGSTOP."""
    later: list[float]
    """And from then on until SIGCONT."""
    degraded: int
    up_after: float
    true_after: float
    exact_after: float
    log_lines: list[str]
    corrections: float

    def wrong(self, *, usual_least: float = 0.0, lease: float = LEASE_SECONDS) -> list[str]:
        """Return what must not be. ``usual_least``: what counts as usual at least, on a machine that others share."""
        found = [f"failed: {result}" for result in self.failed]
        found += [f"not at home: {result}" for result in self.strays]
        limit = max(p95(self.usual), usual_least) + ADDED_SECONDS
        if p95(self.later) >= limit:
            found.append(f"p95 is {p95(self.later):.3f} s after the first {GRACE_SECONDS:g} s, the limit {limit:.3f} s")
        if self.exact_after > lease:
            found.append(f"exact {self.exact_after:.2f} s after SIGCONT, later than a lease of {lease:g} s")
        if self.degraded <= len(self.later) / 2:
            found.append(f"only {self.degraded} requests were decided without Redis: was it frozen?")
        if not 0 < len(self.log_lines) < 20:
            found.append(f"{len(self.log_lines)} lines of log about Redis")
        if self.corrections:
            found.append(f"{self.corrections:.0f} releases found nothing")
        return found

    def table(self) -> str:
        rows = [
            ("frozen, s", f"{self.seconds:g}"),
            ("requests", str(len(self.results))),
            ("failed or cut", str(len(self.failed))),
            ("not at home", str(len(self.strays))),
            ("streams, all whole", str(STREAMS)),
            ("p95 before, ms", f"{p95(self.usual) * 1e3:.1f}"),
            (f"p95 in the first {GRACE_SECONDS:g} s, ms", f"{p95(self.first) * 1e3:.1f}"),
            ("p95 after them, ms", f"{p95(self.later) * 1e3:.1f}"),
            ("added by then, ms", f"{(p95(self.later) - p95(self.usual)) * 1e3:.1f}"),
            ("slowest after them, ms", f"{max(self.later) * 1e3:.1f}"),
            ("decided without Redis", str(self.degraded)),
            ("connected again after, s", f"{self.up_after:.2f}"),
            ("counts true after, s", f"{self.true_after:.2f}"),
            ("exact after, s", f"{self.exact_after:.2f}"),
            ("lease, s", f"{LEASE_SECONDS:g}"),
            ("log lines about Redis", str(len(self.log_lines))),
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value:>8}" for name, value in rows)


def freeze(
    fleet: Fleet, redis: PrivateServer, planes: list[DataPlane], thread: HostThread, seconds: float, lease: float
) -> Frozen:
    """Freeze Redis for so long. Raises AssertionError when a stream is cut or it is not exact in ``lease`` seconds."""
    deployed = fleet.deploy(4, threshold=THRESHOLD)
    with planes[0].client() as client:
        home = dict(zip(map(str, range(20)), homes(client, deployed, PREFIXES), strict=True))
    shots = [Shot(deployed.invocations, body, key=str(number)) for number, body in enumerate(PREFIXES)]
    since = [len(plane.output) for plane in planes]
    load = Load(thread, planes, shots, rate=RATE)
    with streaming(planes, deployed, STREAMS):
        alive = working(deployed)
        with load.running():
            load.wait(int(RATE * USUAL_SECONDS))
            redis.pause()
            began = time.monotonic()
            try:
                load.wait(int(RATE * seconds), seconds + 30)
            finally:
                redis.resume()
            ended = time.monotonic()
            wait_until(lambda: all(plane.metric("warmroute_store_up") == 1 for plane in planes), lease)
            up_after = time.monotonic() - ended
            wait_until(lambda: is_true_under_load(fleet, deployed, alive), lease)
            true_after = time.monotonic() - ended
        expect_exact(fleet, planes, deployed, (deployed.invocations, PREFIXES[0]), home["0"], THRESHOLD)
        exact_after = time.monotonic() - ended
    found = load.results
    return Frozen(
        seconds=seconds,
        results=found,
        failed=load.failed(),
        strays=strays(found, home),
        usual=[result.seconds for result in found if result.ended < began],
        first=[result.seconds for result in found if began < result.began < began + GRACE_SECONDS],
        later=[result.seconds for result in found if began + GRACE_SECONDS < result.began < ended],
        degraded=int(degraded(planes, deployed)),
        up_after=up_after,
        true_after=true_after,
        exact_after=exact_after,
        log_lines=about_redis(planes, since),
        corrections=sum(plane.metric("warmroute_in_flight_corrections_total") for plane in planes),
    )


@contextlib.contextmanager
def streaming(planes: list[DataPlane], deployed: Deployed, count: int) -> Iterator[None]:
    """Hold streams open in the middle; afterwards each must come to its end, byte for byte."""
    gate, before = Gate(), [host.answer for host in deployed.hosts]
    for host in deployed.hosts:
        host.answer = sse(b"data: 1\n\n", gate, b"data: 2\n\n", b"data: [DONE]\n\n")
    targets = [(deployed.chat, chat_body(f"stream {number}" * 99, stream=True)) for number in range(count)]
    with asking(planes[0], targets[::2]) as one, asking(planes[1], targets[1::2]) as two:
        heads = [client.read_head() for client in [*one, *two]]
        assert {head.status for head in heads} == {200}
        for host, answer in zip(deployed.hosts, before, strict=True):
            host.answer = answer
        yield
        gate.open()
        whole = b"data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"
        assert {b"".join(client.chunks()) for client in [*one, *two]} == {whole}


def strays(results: list[Result], home: dict[str, str]) -> list[Result]:
    """Return the requests that were answered by another host than their home."""
    return [result for result in results if result.host != home[result.shot.key]]


def about_redis(planes: list[DataPlane], since: list[int]) -> list[str]:
    """Return what the planes have said about Redis since then."""
    return [
        line
        for plane, at in zip(planes, since, strict=True)
        for line in plane.output[at:].splitlines()
        if "Redis" in line
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet.freeze", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="freeze-")))
        servers = PrivateServers(directory)
        stack.callback(servers.stop)
        redis = servers.redis()
        thread = stack.enter_context(host_thread())
        stage = Stage(redis.url, directory / "stage", Routes(redis.url))
        stack.callback(stage.close)
        fleet = Fleet(stage, Hosts(thread), "freeze")
        stack.callback(fleet.close)
        planes = [stage.start(settings=SETTINGS) for _ in range(2)]
        found = freeze(fleet, redis, planes, thread, options.seconds, LEASE_SECONDS)
    print(found.table())
    for line in found.wrong():
        print("WRONG", line)
    return 1 if found.wrong() else 0


if __name__ == "__main__":
    sys.exit(main())

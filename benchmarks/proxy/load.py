"""The requests, the load by wrk or by our own generator, and the checks without which no rate is believed."""

import http.client
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks.errors import BenchmarkError
from benchmarks.proxy.answers import JSON_BODY, STREAM_BODY
from benchmarks.proxy.latency import percentile, uncorrected
from benchmarks.proxy.processes import on_core
from benchmarks.proxy.product import HOST, Sign

SCRIPT = Path(__file__).with_name("load.lua")
PREFIXES = 8
SIGNED = 256
"""Requests signed beforehand for a window."""
TIMEOUT_SECONDS = 10
_HEAD_BYTES_MAX = 2_000
"""Beyond an answer's own bytes: headers that a proxy adds."""


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of request. ``prompt_bytes``: of the shared prefix; the body is about 130 bytes longer."""

    name: str
    prompt_bytes: int
    is_stream: bool = False

    @property
    def answer(self) -> bytes:
        return STREAM_BODY if self.is_stream else JSON_BODY

    def opening(self, model: str) -> str:
        """Return the body up to the prefix."""
        stream = '"stream":true,' if self.is_stream else ""
        return f'{{"model":"{model}",{stream}"max_tokens":16,"messages":[{{"role":"system","content":"'

    def body(self, model: str, turn: int) -> bytes:
        """Return a request's body, as load.lua writes it."""
        prefix = chr(97 + turn % PREFIXES) * self.prompt_bytes
        return f'{self.opening(model)}{prefix}"}},{{"role":"user","content":"turn {turn}"}}]}}'.encode()


JSON_2K, JSON_32K, STREAM = Load("JSON 2 KB", 1_800), Load("JSON 32 KB", 32_000), Load("SSE", 1_800, is_stream=True)
LOADS = (JSON_2K, JSON_32K, STREAM)


CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Door:
    """Where requests go in: a port, and what its owner wants to hear."""

    port: int
    model: str = "bench"
    target: str = CHAT
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of every request, beside those that all have."""
    sign: Sign | None = None

    def all_headers(self, body: bytes) -> Mapping[str, str]:
        """Return the headers of a request, less the length."""
        proof = self.sign(self.target, body) if self.sign else {}
        return {"Host": HOST, "Content-Type": "application/json", **self.headers, **proof}


class Window(msgspec.Struct, frozen=True):
    """What the generator saw in one window. ``latencies``: pairs of us and how many."""

    requests: int
    bytes: int
    seconds: float
    failed: int
    latencies: list[tuple[int, int]]

    def percentile_us(self, share: float) -> int:
        return percentile(dict(self.latencies), share)


def check(name: str, door: Door, load: Load, turn: int) -> None:
    """Send one request and compare its answer byte for byte. Raises BenchmarkError."""
    connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=TIMEOUT_SECONDS)
    body = load.body(door.model, turn)
    try:
        connection.request("POST", door.target, body, door.all_headers(body))
        answer = connection.getresponse()
        status, found = answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise BenchmarkError(f"{name}, {load.name}: no answer ({error!r})") from error
    finally:
        connection.close()
    if status != 200:
        raise BenchmarkError(f"{name}, {load.name}: answered {status}: {found[:200].decode(errors='replace')}")
    if found != load.answer:
        raise BenchmarkError(f"{name}, {load.name}: {len(found)} bytes that are not the host's {len(load.answer)}")


def believe(name: str, load: Load, connections: int, window: Window) -> None:
    """Check a window: every answer 200 and of the right length. Raises BenchmarkError.

    The generator counts errors and bytes; headers are all that may come on top of the bodies, and the answers under
    way at the end.
    """
    if not window.requests:
        raise BenchmarkError(f"{name}, {load.name}: no request was answered")
    if window.failed:
        raise BenchmarkError(f"{name}, {load.name}: {window.failed} of {window.requests} requests failed")
    least, most = window.requests, window.requests + connections
    size = len(load.answer)
    if not least * size <= window.bytes <= most * (size + _HEAD_BYTES_MAX):
        raise BenchmarkError(f"{name}, {load.name}: {window.bytes / least:.0f} bytes an answer; the host sends {size}")


@dataclass(frozen=True, slots=True)
class Generator:
    """A closed loop of so many connections: each sends its next request when it has its answer."""

    wrk: str | None
    """Path of the program; None: our own generator, slower and on the same core as the hosts."""
    core: int
    file: Path
    """For requests that the generator cannot write itself, since each has its proof."""

    @classmethod
    def choose(cls, core: int, file: Path) -> "Generator":
        return cls(shutil.which("wrk"), core, file)

    def run(self, door: Door, load: Load, connections: int, seconds: float, first_turn: int) -> Window:
        """Load the door. Raises BenchmarkError when the generator fails."""
        told = self._told(door, load, first_turn)
        program = [sys.executable, "-m", "benchmarks.proxy.python_load", str(door.port), str(connections)]
        if self.wrk:
            # -d takes whole seconds only, so it is a limit here, and the window is ended by a signal.
            program = [self.wrk, "-t1", f"-c{connections}", f"-d{seconds + TIMEOUT_SECONDS:.0f}s"]
            program += [f"--timeout={TIMEOUT_SECONDS}s", "-s", str(SCRIPT), f"http://127.0.0.1:{door.port}"]
        with on_core(self.core):
            process = subprocess.Popen(program, env=told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=seconds)
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        finally:
            process.kill()
        found = re.search(r"^RESULT (.*)$", said, re.M)
        if process.returncode or not found:
            raise BenchmarkError(f"the load generator failed: {said[-300:]}")
        window = msgspec.json.decode(found[1], type=Window)
        return _as_seen(window, connections) if self.wrk else window

    def _told(self, door: Door, load: Load, first_turn: int) -> dict[str, str]:
        """Return the generator's environment: the parts of a request whose turn it puts in, or a file of whole ones.

        Requests whose proof covers the body come again after SIGNED of them; the product remembers no signature.
        """
        if door.sign is None:
            extra = "".join(f"{name}: {value}\r\n" for name, value in door.headers.items())
            return {
                "BENCH_TARGET": door.target,
                "BENCH_OPENING": load.opening(door.model),
                "BENCH_PROMPT_BYTES": str(load.prompt_bytes),
                "BENCH_FIRST_TURN": str(first_turn),
                "BENCH_HEADERS": extra,
            }
        with self.file.open("wb") as file:
            for turn in range(first_turn, first_turn + SIGNED):
                body = load.body(door.model, turn)
                headers = {**door.all_headers(body), "Content-Length": str(len(body))}
                lines = [f"POST {door.target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
                request = "\r\n".join([*lines, "", ""]).encode() + body
                file.write(b"%d\n%s" % (len(request), request))
        return {"BENCH_SIGNED": str(self.file)}


def _as_seen(window: Window, connections: int) -> Window:
    """Take back wrk's correction. Raises BenchmarkError when what is left is not one latency for each request."""
    each = window.requests // connections
    # wrk corrects only where every connection had an answer, by whole us.
    interval = int(1e6 * window.seconds + 0.5) // each if each else 0
    seen = uncorrected(dict(window.latencies), interval)
    if sum(seen.values()) != window.requests or min(seen.values(), default=0) < 0:
        raise BenchmarkError(f"wrk's latencies are {sum(seen.values())} for {window.requests} requests")
    return msgspec.structs.replace(window, latencies=sorted(seen.items()))

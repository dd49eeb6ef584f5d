"""``warmroute up`` as its user sees it: one command, calls that work as pasted, and nothing left behind."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config

from tests.waiting import free_port, wait_until
from warmroute.embedded.processes import alive, command_line, descendants

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 40.0
"""Seconds for a start; it takes 2 to 4 on an idle machine, and tests run beside it."""


def _environment(**settings: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WARMROUTE_")}
    return kept | {f"WARMROUTE_{name}": value for name, value in settings.items()}


class Up:
    """One run of ``warmroute up``."""

    def __init__(self, data_dir: Path, *options: str, **settings: str) -> None:
        ports = [] if "--control-port" in options else ["--control-port", "0", "--data-port", "0"]
        command = [sys.executable, "-m", "warmroute", "up", *ports, "--data-dir", str(data_dir), *options]
        self.data_dir = data_dir
        self.output = data_dir.parent / f"{uuid.uuid4().hex}.out"
        with self.output.open("w") as file:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=_environment(**settings), stdout=file, stderr=subprocess.STDOUT
            )
        self.family: list[int] = []

    @property
    def text(self) -> str:
        return self.output.read_text()

    def ready(self) -> "Up":
        """Wait for the ready line."""
        wait_until(lambda: self.process.poll() is not None or self._ready_line(), LIMIT_SECONDS, "the ready line")
        assert self._ready_line(), self.text
        self.family = descendants(self.process.pid)
        return self

    def _ready_line(self) -> str:
        found = re.search(r"^warmroute ready.*$\n", self.text, re.M)
        return found[0] if found else ""

    @property
    def control(self) -> str:
        """URL of the control plane."""
        return re.findall(r"http://[\d.:]+", self._ready_line())[0]

    @property
    def data(self) -> str:
        """URL of the data plane."""
        return re.findall(r"http://[\d.:]+", self._ready_line())[1]

    def end(self, number: signal.Signals = signal.SIGINT, limit_seconds: float = 20) -> int:
        """Send a signal, wait for the end; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(limit_seconds)

    def left_behind(self) -> list[str]:
        """Return the command lines of processes that outlived it."""
        return [command_line(pid) for pid in self.family if alive(pid)]

    def member(self, words: str) -> int:
        """Return the process id of the one child whose command line holds ``words``."""
        (pid,) = [pid for pid in self.family if words in command_line(pid)]
        return pid

    def client(self, service: str) -> Any:
        url = self.control if service == "sagemaker" else self.data
        keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
        config = Config(retries={"max_attempts": 0})
        return boto3.client(service, endpoint_url=url, region_name="us-east-1", config=config, **keys)

    def homes(self, prefixes: int) -> dict[int, str]:
        """Return which simulated host answers each of some prompts."""
        return {number: self._host(f"tenant {number}") for number in range(prefixes)}

    def _host(self, prompt: str) -> str:
        body = {"model": "demo", "messages": [{"role": "user", "content": prompt}], "max_tokens": 1}
        return str(self.post("/v1/chat/completions", body)["system_fingerprint"])

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST to the data plane."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.data + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=20) as response:
            answer: dict[str, Any] = json.load(response)
        return answer


Start = Callable[..., Up]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """``start(*options, **settings) -> Up``, over one data directory; ended at the end of the test."""
    runs: list[Up] = []

    def new(*options: str, data_dir: Path = tmp_path / "data", **settings: str) -> Up:
        runs.append(Up(data_dir, *options, **settings))
        return runs[-1]

    yield new
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
        run.process.wait()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """An ``up`` with its defaults, for tests that leave it as it is."""
    up = Up(tmp_path_factory.mktemp("up") / "data")
    try:
        yield up.ready()
        assert up.end() == 0
        assert up.left_behind() == []
    finally:
        if up.process.poll() is None:
            up.process.kill()
        up.process.wait()


def pasted_calls(text: str) -> list[str]:
    calls = re.findall(r"^(?:curl (?:.*\\\n)*.*|(?:\w+=\S+ )?\S+ - <<'PY'\n(?:.*\n)*?PY)$", text, re.M)
    assert len(calls) == 4
    return calls


@pytest.fixture
def shell_path(tmp_path: Path) -> str:
    """A PATH with curl; where the machine has none, one that takes what is printed."""
    if not shutil.which("curl"):
        program = "import sys, urllib.request as u\na = sys.argv\nr = u.Request(a[2], a[a.index('-d') + 1].encode())\n"
        program += "sys.stdout.write(u.urlopen(r).read().decode())\n"
        (tmp_path / "curl").write_text(f"#!{sys.executable}\n{program}")
        (tmp_path / "curl").chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def test_every_printed_call_works_as_pasted(running: Up, shell_path: str) -> None:
    answers = []
    for call in pasted_calls(running.text):
        environment = {"PATH": shell_path, "HOME": "/nonexistent"}
        done = subprocess.run(["bash", "-c", call], cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, (call, done.stderr)
        answers.append(done.stdout)
    chat, native, openai, described = answers
    assert json.loads(chat)["usage"]["completion_tokens"] == 16
    assert native.startswith("primary ")
    assert "generated_text" in native
    assert len(openai.split()) == 16
    assert json.loads(described)["EndpointStatus"] == "InService"


def test_it_says_what_it_runs_and_where(running: Up) -> None:
    assert running.text.count("\nwarmroute ready") == 1
    for words in (
        "AUTH is off",
        f"{running.control}/docs",
        "2 workers",
        "3 simulated hosts",
        str(running.output.parent),
    ):
        assert words in running.text
    for path in (running.control + "/docs", running.control + "/health/ready", running.data + "/health/ready"):
        with urllib.request.urlopen(path, timeout=10) as response:
            assert response.status == 200


def test_the_demo_is_a_prefix_aware_endpoint_over_all_hosts(running: Up) -> None:
    endpoint = running.client("sagemaker").describe_endpoint(EndpointName="demo")
    (variant,) = endpoint["ProductionVariants"]
    assert endpoint["EndpointStatus"] == "InService"
    assert variant["CurrentInstanceCount"] == 3
    assert variant["RoutingConfig"]["RoutingStrategy"] == "PREFIX_AWARE"
    homes = running.homes(24)
    assert set(homes.values()) == {"demo-1", "demo-2", "demo-3"}
    assert running.homes(24) == homes


def test_a_worker_never_sees_the_databases_address(running: Up) -> None:
    if not Path("/proc/self/environ").exists():
        return
    for words in ("dataplane", " host "):
        for pid in running.family:
            if words in command_line(pid):
                assert b"WARMROUTE_DATABASE_URL" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_second_up_on_its_directory_is_refused(running: Up, start: Start) -> None:
    second = start(data_dir=running.data_dir)
    assert second.process.wait(15) == 2
    holder = f"in use by another `warmroute up` (process {running.process.pid})"
    assert second.text == (
        f"warmroute: --data-dir {running.data_dir} is {holder}; stop it or give another --data-dir\n"
    )
    assert running.process.poll() is None


def test_a_port_in_use_is_named_before_anything_starts(running: Up, start: Start, tmp_path: Path) -> None:
    port = urlsplit(running.data).port
    second = start("--control-port", "0", "--data-port", str(port))
    assert second.process.wait(15) == 2
    assert second.text == (
        f"warmroute: --data-port {port} is in use on 127.0.0.1; "
        "stop the program that uses it or give another --data-port\n"
    )
    assert not (tmp_path / "data").exists()


def test_data_and_homes_survive_a_kill_and_another_number_of_hosts(start: Start) -> None:
    ports = ["--control-port", str(free_port()), "--data-port", str(free_port())]
    first = start(*ports).ready()
    before = first.homes(24)
    first.client("sagemaker").create_model(ModelName="kept", PrimaryContainer={"Image": "any"})
    first.process.kill()
    first.process.wait()

    # At once, and on the same ports.
    more = start("--hosts", "4", *ports).ready()
    assert first.left_behind() == []
    assert more.client("sagemaker").describe_model(ModelName="kept")["ModelName"] == "kept"
    after = more.homes(24)
    moved = {number: after[number] for number in before if after[number] != before[number]}
    assert set(moved.values()) <= {"demo-4"}, "a prefix left its home for another old host"
    assert more.end(signal.SIGTERM) == 0
    assert more.left_behind() == []

    fewer = start("--hosts", "2").ready()
    again = fewer.homes(24)
    assert {number: again[number] for number in after if after[number] in ("demo-1", "demo-2")}.items() <= after.items()
    assert set(again.values()) == {"demo-1", "demo-2"}
    fewer.end()

    none = start("--hosts", "0").ready()
    assert none.client("sagemaker").list_endpoints()["Endpoints"] == []
    assert "WARMROUTE_HOSTS" in none.text
    assert none.end(signal.SIGHUP) == 0
    assert none.left_behind() == []


def test_a_part_that_dies_ends_it_with_its_last_words_and_a_worker_does_not(start: Start) -> None:
    up = start("--workers", "1", "--hosts", "1").ready()
    worker = up.member("dataplane.worker")
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not alive(worker) and up.homes(1) == {0: "demo-1"}, 15, "a new worker")
    up.family = descendants(up.process.pid)
    assert up.process.poll() is None

    os.kill(up.member("warmroute controlplane"), signal.SIGKILL)
    assert up.process.wait(20) == 1
    assert "warmroute: the control plane was ended by signal 9; its log " in up.text
    assert up.left_behind() == []


def test_a_second_ctrl_c_does_not_wait_for_open_streams(start: Start) -> None:
    up = start("--workers", "1", "--hosts", "1").ready()
    with _open_stream(up.data):
        up.process.send_signal(signal.SIGINT)
        wait_until(lambda: "Ctrl-C again ends it now" in up.text, 10, "the hint")
        assert up.process.poll() is None
        assert up.end(limit_seconds=10) == 0
    assert up.left_behind() == []


@contextlib.contextmanager
def _open_stream(url: str) -> Iterator[None]:
    """Hold a stream that takes minutes, from its first bytes on."""
    body = {
        "model": "demo",
        "messages": [{"role": "user", "content": "On and on"}],
        "max_tokens": 20000,
        "stream": True,
    }
    connection = HTTPConnection(urlsplit(url).netloc, timeout=10)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    try:
        with connection.getresponse() as response:
            assert response.status == 200
            assert response.read1(100)
            yield
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"SECRET_KEY": "x", "AUTH": "on"}, "WARMROUTE_SECRET_KEY is no key: key 1 is not 32 bytes in base64"),
        ({"TLS_CERT_FILE": "/c"}, "WARMROUTE_TLS_CERT_FILE is for `warmroute controlplane`"),
        ({"LEASE_SECOND": "5"}, "WARMROUTE_LEASE_SECOND is not a setting; did you mean WARMROUTE_LEASE_SECONDS"),
    ],
)
def test_a_fault_at_start_is_one_plain_sentence(start: Start, settings: dict[str, str], sentence: str) -> None:
    up = start("--hosts", "0", **settings)
    assert up.process.wait(30) == 2
    last = up.text.splitlines()[-1]
    assert last.startswith(f"warmroute: {sentence}")
    assert "Traceback" not in up.text
    assert descendants(up.process.pid) == []


def test_it_ends_cleanly_when_its_terminal_is_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "warmroute", "up", "--control-port", "0", "--data-port", "0", "--hosts", "0"]
    command += ["--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(
        command, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as up:
        assert up.stdout is not None
        while not (line := up.stdout.readline()).startswith(b"warmroute ready"):
            assert line, "it ended before it was ready"
        family = descendants(up.pid)
        up.stdout.close()
        up.send_signal(signal.SIGHUP)
        assert up.wait(20) == 0
    assert not any(alive(pid) for pid in family)

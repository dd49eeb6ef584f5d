"""What stands around the proxies: the model hosts, Redis, the load generator, and a directory for what they write."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.proxy import answers
from benchmarks.proxy.load import Generator
from benchmarks.proxy.processes import Cores, Server, cpu_seconds, on_core
from benchmarks.proxy.product import Caller, publish
from warmroute.embedded.valkey import Valkey

HOSTS = 3
SOURCE = Path(__file__).with_name("host.c")


@dataclass(frozen=True, slots=True)
class Stage:
    """All of it, running. ``left_out``: what this machine cannot do, and how it could; filled as it is found."""

    directory: Path
    cores: Cores
    generator: Generator
    hosts: Server
    host_ports: tuple[int, ...]
    host_kind: str
    redis_url: str
    redis_pid: int
    caller: Caller
    left_out: dict[str, str]
    wrap: tuple[str, ...] = ()
    """Words before a proxy's program: what counts its instructions."""

    def launch(
        self, name: str, program: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
    ) -> Server:
        """Start a proxy on its core."""
        return Server(name, [*self.wrap, *program], self.cores.proxy, log, environment)

    def redis_cpu_seconds(self) -> float:
        return cpu_seconds(self.redis_pid)


@contextmanager
def stage() -> Iterator[Stage]:
    """Bring up hosts and Redis on the core that is not the proxy's. Raises BenchmarkError, EmbeddedError."""
    cores = Cores.choose()
    with TemporaryDirectory(prefix="benchmark-") as name:
        directory = Path(name)
        program, kind = _host_program(directory)
        redis = Valkey(directory / "redis", log=directory / "redis.log")
        hosts = Server("the model hosts", program, cores.rest, directory / "hosts.log")
        try:
            hosts.wait(lambda: len(hosts.said().split()) >= HOSTS)
            with on_core(cores.rest):
                url = redis.start()
            ports = tuple(map(int, hosts.said().split()))
            caller = Caller()
            publish(url, ports, caller)
            generator = Generator.choose(cores.rest, directory / "signed")
            yield Stage(directory, cores, generator, hosts, ports, kind, url, redis.pid, caller, _missing(kind, cores))
        finally:
            hosts.stop()
            redis.stop()


def _host_program(directory: Path) -> tuple[list[str | Path], str]:
    """Return the hosts' program and what it is: C where there is a compiler, else Python."""
    answers.save(directory / "answers")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    program = directory / "host"
    if compiler:
        built = subprocess.run([compiler, "-O2", "-o", program, SOURCE], capture_output=True, text=True)
        if built.returncode == 0:
            return [program, directory / "answers"], "C"
    return [sys.executable, "-m", "benchmarks.proxy.python_host"], "Python"


def _missing(kind: str, cores: Cores) -> dict[str, str]:
    missing = {}
    if not shutil.which("wrk"):
        missing["wrk"] = "not on PATH (apt-get install wrk); our own generator in Python takes its place"
    if kind != "C":
        missing["hosts in C"] = "no C compiler (apt-get install gcc); hosts in Python take their place"
    if not cores.are_apart:
        missing["two cores"] = "this process may use one only; proxy, hosts and load share it"
    return missing

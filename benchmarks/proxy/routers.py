"""The LLM routers that a user would pick instead: their wheels, each in an environment of its own, and how they start.

Installed once from the package index that pip is set up for, below ``.bench/``; removing a directory there installs it
anew. Nothing of them is shipped with the product or needed by it.
"""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.environments import CACHE, trouble
from benchmarks.errors import BenchmarkError
from benchmarks.proxy.contenders import Contender, LeftOut, Start, answers
from benchmarks.proxy.load import Door
from benchmarks.proxy.processes import Server, free_port
from benchmarks.proxy.stage import Stage

_DONE = "installed"


@dataclass(frozen=True, slots=True)
class Wheel:
    """One router. ``begin``: the words that start it, less addresses and policy."""

    name: str
    version: str
    begin: tuple[str, ...]

    @property
    def home(self) -> Path:
        return CACHE / f"{self.name}-{self.version}"

    def install(self) -> Path:
        """Return the program, installing it if it is not there. Raises LeftOut with pip's last words."""
        program = self.home / "bin" / self.name
        if self.home.joinpath(_DONE).exists():
            return program
        shutil.rmtree(self.home, ignore_errors=True)
        steps: list[list[str | Path]] = [
            [sys.executable, "-m", "venv", "--without-pip", self.home],
            # A source distribution would need a Rust toolchain and many minutes.
            [sys.executable, "-m", "pip", "--python", self.home / "bin" / "python", "--disable-pip-version-check",
             "install", "--quiet", "--retries", "1", "--only-binary", self.name, f"{self.name}=={self.version}"],
        ]  # fmt: skip
        for step in steps:
            if words := trouble(step):
                shutil.rmtree(self.home, ignore_errors=True)
                raise LeftOut(f"its wheel {self.version} was not installed by pip: {words}")
        self.home.joinpath(_DONE).touch()
        return program

    def start(self, policy: str) -> Start:
        """Return what starts the router with a policy."""

        def start(stage: Stage) -> tuple[Server, Door]:
            program = self.install()
            port, metrics = free_port(), free_port()
            urls = [f"http://127.0.0.1:{host}" for host in stage.host_ports]
            words = [*self.begin, "--host", "127.0.0.1", "--port", str(port), "--worker-urls", *urls]
            words += ["--policy", policy, "--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics)]
            log = stage.directory / f"{self.name}-{policy}.log"
            server = stage.launch(f"{self.name} {policy}", [program, *words], log, {"HF_HUB_OFFLINE": "1"})
            door = Door(port)
            try:
                server.wait(lambda: answers(door))
            except BenchmarkError:
                server.stop()
                raise
            return server, door

        return start


SMG = Wheel(
    "smg",
    "1.13.0",
    ("launch", "--log-level", "warn", "--disable-tokenizer-autoload", "--max-concurrent-requests", "512"),
)
VLLM = Wheel("vllm-router", "0.1.17", ("--log-level", "error"))
SGLANG = Wheel("sglang-router", "0.3.2", ("launch", "--log-level", "warn"))
WHEELS = (VLLM, SGLANG, SMG)

ROUTERS = (
    # By a header with the session's name; without one, all requests have the same key.
    Contender(VLLM.name, "consistent_hash", VLLM.start("consistent_hash"), is_router=True),
    Contender(VLLM.name, "round_robin", VLLM.start("round_robin"), is_router=True),
    Contender(VLLM.name, "cache_aware", VLLM.start("cache_aware"), by_prefix=True, is_router=True),
    Contender(SGLANG.name, "cache_aware", SGLANG.start("cache_aware"), by_prefix=True, is_router=True),
    Contender(SMG.name, "prefix_hash", SMG.start("prefix_hash"), by_prefix=True, is_router=True),
    Contender(SMG.name, "cache_aware", SMG.start("cache_aware"), by_prefix=True, is_router=True),
)

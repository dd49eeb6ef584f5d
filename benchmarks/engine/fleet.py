"""The processes of a run: the engine's environment, its hosts, and the product or a rival in front of them."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import boto3
import httpx

from benchmarks.engine.load import MODEL
from benchmarks.environments import CACHE, trouble
from benchmarks.errors import BenchmarkError
from benchmarks.proxy.processes import free_port

HERE = Path(__file__).parent
CONTEXT_TOKENS = 8_192
_START_SECONDS = 60.0
_SETTLE_SECONDS = 60.0
ROLE = "arn:aws:iam::000000000000:role/warmroute"


def engine_python() -> Path:
    """Return the interpreter of the engine's environment, made when it is missing. Raises BenchmarkError."""
    environment = CACHE / "engine"
    python = environment / "bin" / "python"
    wanted = (HERE / "requirements.txt").read_text()
    marker = environment / "requirements.txt"
    if not marker.exists() or marker.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        if words := trouble([*pip, "-r", HERE / "requirements.txt"]):
            raise BenchmarkError(f"the engine's wheels were not installed by pip: {words}")
        marker.write_text(wanted)
    return python


def requirement(name: str) -> str:
    """Return the version of a package of the engine's environment."""
    lines = (HERE / "requirements.txt").read_text().splitlines()
    return next(line.partition("==")[2] for line in lines if line.startswith(f"{name}=="))


@contextlib.contextmanager
def hosts(count: int, slots: int, directory: Path) -> Iterator[list[str]]:
    """Run so many hosts of one generated model; yields their URLs."""
    python = engine_python()
    model = directory / "model.gguf"
    subprocess.run([python, HERE / "model.py", model], check=True)
    with contextlib.ExitStack() as stack:
        urls = []
        for number in range(count):
            port = free_port()
            options = ["--model", model, "--model-name", MODEL, "--port", str(port), "--slots", str(slots)]
            options += ["--context-tokens", str(CONTEXT_TOKENS)]
            command = [python, HERE / "host.py", *options]
            stack.enter_context(process(command, directory / f"host-{number}.log"))
            urls.append(f"http://127.0.0.1:{port}")
        for url in urls:
            wait_for(f"{url}/health", directory)
        yield urls


@contextlib.contextmanager
def process(command: Sequence[object], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command until the block ends; what it says goes to ``log``."""
    with log.open("wb") as output:
        running = subprocess.Popen([str(part) for part in command], stdout=output, stderr=subprocess.STDOUT)
    try:
        yield running
    finally:
        running.terminate()
        try:
            running.wait(20)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def wait_for(url: str, logs: Path) -> None:
    """Return once ``url`` answers 200. Raises TimeoutError that says where the logs are."""
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url, trust_env=False).status_code == 200:
                return
        time.sleep(0.05)
    raise TimeoutError(f"{url} did not answer 200 within {_START_SECONDS:.0f} s; see the logs in {logs}")


class Product:
    """``warmroute up`` without hosts of its own, and one endpoint over the engine's, switched from run to run."""

    def __init__(self, control: str, data: str) -> None:
        self.data_url = data
        self._control_url = control
        self._sagemaker = boto3.client(
            "sagemaker", endpoint_url=control, region_name="us-east-1",
            aws_access_key_id="local", aws_secret_access_key="local",  # noqa: S106
        )  # fmt: skip
        self._configs = 0

    def create(self, urls: Sequence[str]) -> None:
        container = {"Image": "engine", "Environment": {"WARMROUTE_PING_PATH": "/health"}}
        self._sagemaker.create_model(ModelName=MODEL, PrimaryContainer=container, ExecutionRoleArn=ROLE)
        for number, url in enumerate(urls, 1):
            # Under names that do not change with the ports, so that the same prompts have the same homes in every run.
            host = {"ModelName": MODEL, "HostName": f"host-{number}", "BaseUrl": url}
            httpx.post(f"{self._control_url}/RegisterModelHost", json=host, trust_env=False).raise_for_status()
        config = self._configure(len(urls), {"RoutingStrategy": "RANDOM"})
        self._sagemaker.create_endpoint(EndpointName=MODEL, EndpointConfigName=config)
        self._settle()

    def switch(self, count: int, routing: dict[str, object]) -> None:
        """Update the endpoint to another RoutingConfig, and return when it is in service with it."""
        config = self._configure(count, routing)
        self._sagemaker.update_endpoint(EndpointName=MODEL, EndpointConfigName=config)
        self._settle()

    def _configure(self, count: int, routing: dict[str, object]) -> str:
        self._configs += 1
        name = f"engine-{self._configs}"
        variant = {
            "VariantName": "all", "ModelName": MODEL, "InitialInstanceCount": count,
            "InstanceType": "ml.m5.large", "RoutingConfig": routing,
        }  # fmt: skip
        self._sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
        return name

    def _settle(self) -> None:
        end = time.monotonic() + _SETTLE_SECONDS
        while (said := self._sagemaker.describe_endpoint(EndpointName=MODEL))["EndpointStatus"] != "InService":
            if said["EndpointStatus"] == "Failed" or time.monotonic() > end:
                raise RuntimeError(f"the endpoint is {said['EndpointStatus']}: {said.get('FailureReason')}")
            time.sleep(0.1)


@contextlib.contextmanager
def product(urls: Sequence[str], directory: Path) -> Iterator[Product]:
    """Run the whole product in front of the hosts."""
    control, data = free_port(), free_port()
    command = [Path(sys.executable).parent / "warmroute", "up", "--hosts", "0", "--data-dir", directory / "product"]
    command += ["--control-port", str(control), "--data-port", str(data)]
    with process(command, directory / "warmroute.log"):
        wait_for(f"http://127.0.0.1:{control}/health/ready", directory)
        running = Product(f"http://127.0.0.1:{control}", f"http://127.0.0.1:{data}")
        running.create(urls)
        wait_for(f"{running.data_url}/health/ready", directory)
        yield running

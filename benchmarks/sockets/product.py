"""The processes of a run: simulated hosts, and the whole product in front of them."""

import asyncio
import contextlib
import json
import re
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from benchmarks.fleet.closed_loop import PREFIX_AWARE, Routing
from benchmarks.fleet.conversations import MODEL

_START_SECONDS = 60.0
_ROUTED_PROBES = 16
"""Fresh connections, which the kernel spreads over the workers."""
_URL = re.compile(r"http://127\.0\.0\.1:\d+")


class Endpoint:
    """One endpoint over registered hosts, which is switched from run to run."""

    def __init__(self, control: httpx.AsyncClient, hosts: int) -> None:
        self._control = control
        self._hosts = hosts
        self._configs = 0

    async def create(self, urls: dict[str, str]) -> None:
        await self._call("CreateModel", ModelName=MODEL, PrimaryContainer={"Image": "warmroute/simulated-host"})
        for name, url in urls.items():
            await self._call("RegisterModelHost", ModelName=MODEL, HostName=name, BaseUrl=url)

    async def switch(self, routing: Routing) -> None:
        """Return when the endpoint is in service as ``routing`` says."""
        self._configs += 1
        config = f"{MODEL}-{self._configs}"
        await self._call("CreateEndpointConfig", EndpointConfigName=config, ProductionVariants=[self._variant(routing)])
        operation = "CreateEndpoint" if self._configs == 1 else "UpdateEndpoint"
        await self._call(operation, EndpointName=MODEL, EndpointConfigName=config)
        async with asyncio.timeout(_START_SECONDS):
            while True:
                said = await self._call("DescribeEndpoint", EndpointName=MODEL)
                if said["EndpointStatus"] == "InService" and said["EndpointConfigName"] == config:
                    return
                if said["EndpointStatus"] == "Failed":
                    raise RuntimeError(f"the endpoint failed: {said.get('FailureReason')}")
                await asyncio.sleep(0.1)

    def _variant(self, routing: Routing) -> dict[str, Any]:
        config: dict[str, Any] = {"RoutingStrategy": routing.strategy}
        if routing.strategy == PREFIX_AWARE:
            config["PrefixAwareRoutingConfig"] = {
                "PrefixLength": routing.prefix_length, "ConcurrencyThreshold": routing.threshold,
            }  # fmt: skip
        return {
            "VariantName": "all", "ModelName": MODEL, "InstanceType": "ml.p5.48xlarge",
            "InitialInstanceCount": self._hosts, "RoutingConfig": config,
        }  # fmt: skip

    async def _call(self, operation: str, **members: Any) -> dict[str, Any]:
        answer = await self._control.post(f"/{operation}", json=members)
        answer.raise_for_status()
        said: dict[str, Any] = json.loads(answer.content or b"{}")
        return said


@contextlib.asynccontextmanager
async def product(
    host_names: Sequence[str], profile: str, speed: float, directory: Path
) -> AsyncIterator[tuple[Endpoint, str]]:
    """Run hosts and product until the block ends; yields the endpoint, not created yet, and the data plane's URL."""
    async with contextlib.AsyncExitStack() as stack:
        urls = {}
        for name in host_names:
            options = ["host", "--port", "0", "--name", name, "--profile", profile, "--speed", str(speed)]
            said = await stack.enter_async_context(_command(options, "simulated host ready on", directory))
            urls[name] = said.split()[-1]
        options = ["up", "--hosts", "0", "--data-dir", str(directory / "data")]
        options += ["--control-port", "0", "--data-port", "0"]
        said = await stack.enter_async_context(_command(options, "warmroute ready", directory))
        control_url, data_url = _URL.findall(said)
        control = await stack.enter_async_context(_client(control_url))
        endpoint = Endpoint(control, len(urls))
        await endpoint.create(urls)
        yield endpoint, data_url


async def served(data_url: str) -> None:
    """Return when the workers know the endpoint."""
    async with asyncio.timeout(_START_SECONDS):
        known = 0
        while known < _ROUTED_PROBES:
            async with _client(data_url) as client:
                answer = await client.get("/v1/models")
            known = known + 1 if MODEL in [model["id"] for model in answer.json()["data"]] else 0


def _client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, trust_env=False, timeout=30)


@contextlib.asynccontextmanager
async def _command(options: Sequence[str], ready: str, directory: Path) -> AsyncIterator[str]:
    """Run a command of the product until the block ends; yields the line that starts with ``ready``."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "warmroute", *options, stdout=PIPE, stderr=STDOUT, cwd=directory
    )
    reading: asyncio.Task[None] | None = None
    try:
        async with asyncio.timeout(_START_SECONDS):
            said = await _said(process, ready)
        assert process.stdout is not None, "it is a pipe"
        reading = asyncio.create_task(_drain(process.stdout))
        yield said
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        if reading is not None:
            await reading


async def _said(process: Process, ready: str) -> str:
    assert process.stdout is not None, "it is a pipe"
    said = ""
    async for line in process.stdout:
        text = line.decode()
        if text.startswith(ready):
            return text
        said += text
    raise RuntimeError(f"the product did not start:\n{said}")


async def _drain(stream: asyncio.StreamReader) -> None:
    # A pipe that nobody reads would stop the process that writes into it.
    while await stream.read(65_536):
        pass

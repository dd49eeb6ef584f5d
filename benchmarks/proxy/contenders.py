"""The proxies compared: how each is started, and where its requests go in."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from benchmarks.errors import BenchmarkError
from benchmarks.proxy.load import JSON_2K, Door, check
from benchmarks.proxy.processes import Server, accepts, free_port
from benchmarks.proxy.product import Caller, endpoint_name
from benchmarks.proxy.stage import Stage
from contract.routing_table import Strategy

Start = Callable[[Stage], tuple[Server, Door]]


class LeftOut(Exception):
    """This machine or version does not have the contender; the message says why and what would help."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One proxy with one policy."""

    program: str
    policy: str
    start: Start
    by_prefix: bool = False
    """Routes by prefix or by what it believes of the caches: what the product is compared with."""

    is_router: bool = False
    """Of others, for LLMs: one that fails is left out of the comparison, by name."""

    @property
    def name(self) -> str:
        return f"{self.program} {self.policy}".strip()


def nginx_program() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def nginx_version() -> str:
    """Return the version that nginx says it is; empty where there is none."""
    program = nginx_program()
    said = subprocess.run([program, "-v"], capture_output=True, text=True).stderr if program else ""
    match = re.search(r"nginx/([\d.]+)", said)
    return match[1] if match else ""


def _nginx(stage: Stage) -> tuple[Server, Door]:
    program = nginx_program()
    if program is None:
        raise LeftOut("not on PATH (apt-get install nginx)")
    port = free_port()
    home = stage.directory / "nginx"
    home.mkdir(exist_ok=True)
    config = home / "nginx.conf"
    hosts = " ".join(f"server 127.0.0.1:{host};" for host in stage.host_ports)
    # What counts instructions is not let into a worker that has given up its rights.
    master = "off" if stage.wrap else "on"
    config.write_text(NGINX.format(home=home, hosts=hosts, port=port, master=master))
    server = stage.launch("nginx", [program, "-p", home, "-e", "stderr", "-c", config], home / "log")
    server.wait(lambda: accepts(port))
    return server, Door(port)


NGINX = """\
worker_processes 1; daemon off; master_process {master}; pid {home}/pid; error_log stderr;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_timeout 3600; keepalive_requests 100000000;
  client_body_buffer_size 128k; client_max_body_size 50m;
  client_body_temp_path {home}; proxy_temp_path {home}; fastcgi_temp_path {home}; uwsgi_temp_path {home};
  scgi_temp_path {home};
  upstream hosts {{ least_conn; {hosts} keepalive 64; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://hosts; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""


def _warmroute(strategy: Strategy, proof: Callable[[Caller, Door], Door] | None = None) -> Start:
    """``proof``: AUTH on, and how callers say who they are; None: AUTH off."""

    def start(stage: Stage) -> tuple[Server, Door]:
        environment = {"WARMROUTE_REDIS_URL": stage.redis_url}
        if proof is not None:
            environment |= {"WARMROUTE_AUTH": "on", "WARMROUTE_SECRET_KEY": stage.caller.secret_key}
        if stage.wrap:
            # Everything takes many times as long there, and Redis must not seem slow.
            environment["WARMROUTE_STORE_BUDGET_SECONDS"] = "5"
        port = free_port()
        home = stage.directory / f"warmroute-{port}"
        home.mkdir()
        program = [sys.executable, "-m", "warmroute", "dataplane", "--port", str(port), "--workers", "1"]
        server = stage.launch("warmroute", [*program, "--data-dir", home / "data"], home / "log", environment)
        door = Door(port, endpoint_name(strategy))
        door = proof(stage.caller, door) if proof else door
        try:
            server.wait(lambda: answers(door))
        except BenchmarkError:
            server.stop()
            raise
        return server, door

    return start


def _bearing(caller: Caller, door: Door) -> Door:
    return replace(door, headers=caller.bearing())


def _signing(caller: Caller, door: Door) -> Door:
    # AWS' clients have an API of their own; the OpenAI routes take no signatures.
    return replace(door, target=f"/endpoints/{door.model}/invocations", sign=caller.sign)


def answers(door: Door) -> bool:
    """Tell whether a request is answered as it must be: routers listen before they know their hosts."""
    with suppress(BenchmarkError):
        check("", door, JSON_2K, 0)
        return True
    return False


NGINX_PROXY = Contender("nginx", "", _nginx)
WARMROUTE = tuple(
    Contender("warmroute", strategy, _warmroute(strategy), by_prefix=strategy is Strategy.PREFIX_AWARE)
    for strategy in (Strategy.PREFIX_AWARE, Strategy.LEAST_OUTSTANDING_REQUESTS, Strategy.RANDOM)
)
WITH_AUTH = (
    Contender("warmroute", "PREFIX_AWARE (API key)", _warmroute(Strategy.PREFIX_AWARE, _bearing)),
    Contender("warmroute", "PREFIX_AWARE (signed)", _warmroute(Strategy.PREFIX_AWARE, _signing)),
)

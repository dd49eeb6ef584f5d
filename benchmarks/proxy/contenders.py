"""The proxies compared: how each is started, and where its requests go in."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass

import redis

from benchmarks.proxy.load import LOADS, Door, check
from benchmarks.proxy.processes import BenchmarkError, Server, accepts, free_port
from benchmarks.proxy.stage import Stage
from contract import redis_keys
from contract.routing_table import Endpoint, Instance, RoutingTable, Strategy, Variant, encode

ENDPOINT = "bench"
PREFIX_LENGTH = 1024
THRESHOLD = 64
"""Above what a home meets with 32 connections: the counts are exact, and no request leaves its home."""

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

    @property
    def name(self) -> str:
        return f"{self.program} {self.policy}".strip()


def _nginx(stage: Stage) -> tuple[Server, Door]:
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise LeftOut("not on PATH (apt-get install nginx)")
    port = free_port()
    home = stage.directory / "nginx"
    home.mkdir(exist_ok=True)
    config = home / "nginx.conf"
    hosts = " ".join(f"server 127.0.0.1:{host};" for host in stage.host_ports)
    config.write_text(NGINX.format(home=home, hosts=hosts, port=port))
    server = Server("nginx", [program, "-p", home, "-e", "stderr", "-c", config], stage.cores.proxy, home / "log")
    server.wait(lambda: accepts(port))
    return server, Door(port)


NGINX = """\
worker_processes 1; daemon off; pid {home}/pid; error_log stderr;
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


def _warmroute(strategy: Strategy, *, auth: bool = False) -> Start:
    def start(stage: Stage) -> tuple[Server, Door]:
        home = stage.directory / f"warmroute-{strategy}-{auth}"
        home.mkdir(exist_ok=True)
        endpoint = f"{ENDPOINT}-{strategy.lower().replace('_', '-')}"
        publish(stage)
        port = free_port()
        program = [sys.executable, "-m", "warmroute", "dataplane", "--port", str(port), "--workers", "1"]
        environment = {"WARMROUTE_REDIS_URL": stage.redis_url, "WARMROUTE_AUTH": "on" if auth else "off"}
        server = Server(
            "warmroute", [*program, "--data-dir", home / "data"], stage.cores.proxy, home / "log", environment
        )
        door = Door(port, model=endpoint)
        try:
            server.wait(lambda: accepts(port) and _serves(door))
        except BenchmarkError as error:
            server.stop()
            if auth and "AUTH" in str(error):
                raise LeftOut(str(error)) from None
            raise
        return server, door

    return start


def publish(stage: Stage) -> None:
    """Put a routing table into Redis: an endpoint for each strategy, all on the same hosts."""
    urls = [f"http://127.0.0.1:{port}" for port in stage.host_ports]
    instances = tuple(Instance(url, number, url) for number, url in enumerate(urls, 1))
    endpoints = []
    for strategy in Strategy:
        by_prefix = strategy is Strategy.PREFIX_AWARE
        variant = Variant("AllTraffic", 1.0, instances, strategy, PREFIX_LENGTH if by_prefix else None,
                          THRESHOLD if by_prefix else None)  # fmt: skip
        name = f"{ENDPOINT}-{strategy.lower().replace('_', '-')}"
        endpoints.append(Endpoint(name, name, 1, (variant,)))
    table = encode(RoutingTable("benchmark", 1, "000000000000", "us-east-1", tuple(endpoints)))
    with redis.Redis.from_url(stage.redis_url) as client:
        client.hset(redis_keys.ROUTES, mapping={"epoch": "benchmark", "generation": 1, "table": table})


def _serves(door: Door) -> bool:
    try:
        check("", door, LOADS[0], 0)
    except BenchmarkError:
        return False
    return True


NGINX_PROXY = Contender("nginx", "", _nginx)
WARMROUTE = tuple(
    Contender("warmroute", strategy, _warmroute(strategy), by_prefix=strategy is Strategy.PREFIX_AWARE)
    for strategy in (Strategy.PREFIX_AWARE, Strategy.LEAST_OUTSTANDING_REQUESTS, Strategy.RANDOM)
)
WITH_AUTH = Contender(
    "warmroute", "PREFIX_AWARE, AUTH on", _warmroute(Strategy.PREFIX_AWARE, auth=True), by_prefix=True
)

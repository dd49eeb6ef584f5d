"""``warmroute up``: the whole product on one machine, in the foreground, from an empty directory to a served endpoint.

It only starts and watches processes and speaks to them over HTTP. Everything it starts ends with it, also when it is
killed (embedded/leash.py). Data is kept in one directory, which one `up` may use at a time.
"""

import math
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from contract.settings import Settings
from warmroute import demo, network, ports, ready_text
from warmroute.children import BEHIND, FRONT, SERVERS, Children, Died, Part, Stopped, handled_signals
from warmroute.embedded.directory import hold
from warmroute.embedded.postgres import Postgres
from warmroute.embedded.valkey import Valkey
from warmroute.faults import Fault
from warmroute.first_keys import FirstKeys, first_keys, secret_key

_HOST = "127.0.0.1"
_START_SECONDS = 60.0
"""For each part. On an idle machine the slowest takes one second."""
_PORT_PATIENCE_SECONDS = 3.0
"""Twice what the parts of a killed run took to end on a busy machine."""
_UNREADY_PATIENCE_SECONDS = 5.0
"""For the parts of a start that is given up; they need less than one."""


@dataclass(frozen=True)
class Plan:
    """What to start."""

    control_port: int
    data_port: int
    workers: int
    hosts: int
    """Simulated model hosts; with none there is no endpoint ``demo``."""
    data_dir: Path


def run(plan: Plan, settings: Settings, environ: Mapping[str, str]) -> int:
    """Start everything, serve until a signal comes, end everything; return the exit code. Raises Fault at start."""
    if settings.tls_cert_file:
        planes = "`warmroute controlplane` and `warmroute dataplane`"
        raise Fault(f"WARMROUTE_TLS_CERT_FILE is for {planes}; `up` serves loopback, and that without TLS")
    plan = replace(
        plan,
        control_port=network.claim_port(_HOST, plan.control_port, "--control-port", _PORT_PATIENCE_SECONDS),
        data_port=network.claim_port(_HOST, plan.data_port, "--data-port", _PORT_PATIENCE_SECONDS),
    )
    ready = False
    with hold(plan.data_dir), handled_signals() as signals:
        logs = plan.data_dir / "logs"
        logs.mkdir(exist_ok=True)
        children = Children(logs, signals)
        try:
            began = time.monotonic()
            keys = _start(plan, settings, environ, children)
            _say(ready_text.write(plan, settings, keys, seconds=time.monotonic() - began))
            ready = True
            children.watch()
        except Stopped:
            _say("\nwarmroute: stopping")
        except Died as death:
            if not ready:
                raise
            with suppress(OSError):
                print(f"warmroute: {death}", file=sys.stderr)
            return 1
        finally:
            # Before it was ready, nobody's requests are under way.
            patience = math.inf if ready else _UNREADY_PATIENCE_SECONDS
            children.stop(lambda text: _say(f"warmroute: {text}"), patience)
    return 0


def _start(plan: Plan, settings: Settings, environ: Mapping[str, str], children: Children) -> FirstKeys | None:
    """Start all parts in their order; return the first keys, None with AUTH off."""
    _say(f"warmroute: starting; data is kept in {plan.data_dir}, logs in {children.logs}")
    host_ports = ports.keep(plan.data_dir / "host-ports", plan.hosts)
    for number, port in enumerate(host_ports, start=1):
        plain = _environment(environ, "DATABASE_URL", "REDIS_URL", "SECRET_KEY")
        children.start(
            f"host-{number}", ["host", "--port", str(port), "--name", f"{demo.NAME}-{number}"], plain, stage=BEHIND
        )
    redis_url = settings.redis_url or _embedded_valkey(plan, children)
    database_url = settings.database_url or _embedded_postgres(plan, children)
    # A worker never sees the database's credentials.
    secret = secret_key(plan.data_dir, settings)
    worker = _environment(environ, "DATABASE_URL", REDIS_URL=redis_url, **secret)
    control = _environment(environ, DATABASE_URL=database_url, REDIS_URL=redis_url, **secret)
    data_plane = ["dataplane", "--port", str(plan.data_port), "--workers", str(plan.workers)]
    data_plane += ["--data-dir", str(plan.data_dir / "dataplane")]
    # Beyond the drain itself and the 5 s in which the data plane ends its workers by force.
    children.start("data plane", data_plane, worker, stage=FRONT, patience_seconds=settings.drain_seconds + 7)
    children.start("control plane", ["controlplane", "--port", str(plan.control_port)], control, stage=BEHIND)
    control_url, data_url = network.url(_HOST, plan.control_port), network.url(_HOST, plan.data_port)
    _await(children, control_url + "/health/ready", "the control plane was not ready")
    for number, port in enumerate(host_ports, start=1):
        _await(children, network.url(_HOST, port) + "/ping", f"simulated host {number} was not ready")
    _await(children, data_url + "/health/ready", "the data plane was not ready")
    keys = first_keys(plan.data_dir, settings, control, demo.NAME) if settings.auth == "on" else None
    demo.prepare(demo.ControlPlane(control_url, keys.admin if keys else None), host_ports, children)
    if plan.hosts:
        demo.await_served(data_url, plan.workers, children, keys.demo if keys else None)
    return keys


def _embedded_postgres(plan: Plan, children: Children) -> str:
    server = Postgres(plan.data_dir / "postgres", log=children.log("postgres"))
    url = server.start()
    children.add(Part("embedded Postgres", server.log, server.poll, lambda: None, server.stop, 0, SERVERS))
    return url


def _embedded_valkey(plan: Plan, children: Children) -> str:
    server = Valkey(plan.data_dir / "valkey", log=children.log("valkey"))
    url = server.start()
    children.add(Part("embedded Valkey", server.log, server.poll, lambda: None, server.stop, 0, SERVERS))
    return url


def _environment(environ: Mapping[str, str], *dropped: str, **added: str) -> dict[str, str]:
    """Return a child's environment: without the settings ``dropped``, with those ``added``."""
    kept = {name: value for name, value in environ.items() if name.removeprefix("WARMROUTE_") not in dropped}
    return kept | {f"WARMROUTE_{name}": value for name, value in added.items()}


def _await(children: Children, url: str, what: str) -> None:
    children.wait_until(lambda: answers(url), _START_SECONDS, what)


def answers(url: str) -> bool:
    """Tell whether a GET of ``url`` answers 200 within a second."""
    parts = urlsplit(url)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=1)
    try:
        connection.request("GET", parts.path)
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _say(text: str) -> None:
    # A terminal that is gone must not keep the rest from running, or from being ended.
    with suppress(OSError):
        print(text, flush=True)

"""The command ``warmroute``: parses, reads the settings once, and imports a plane only when it is asked for.

Whatever its user can mend ends a command with one plain sentence and exit code 2; WARMROUTE_LOG_LEVEL=debug adds the
traceback.
"""

import argparse
import asyncio
import importlib.metadata
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from contract import settings as contract_settings
from contract.settings import Settings, SettingsError
from warmroute import audit, first_keys, keys, network
from warmroute.advise import command as advise
from warmroute.faults import Fault

CONTROL_PORT, DATA_PORT = 7070, 7080
DATA_DIR = Path(".warmroute")
"""Below the directory where the command is started."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    environ = os.environ
    try:
        given = sys.argv[1:] if arguments is None else arguments
        options = build_parser(host_options="host" in given[:1]).parse_args(given)
        run: Callable[[argparse.Namespace, Settings], int] = options.run
        return run(options, contract_settings.load(environ))
    except (Fault, SettingsError) as fault:
        if environ.get("WARMROUTE_LOG_LEVEL") == "debug":
            traceback.print_exc()
        print(f"warmroute: {fault}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def build_parser(*, host_options: bool = True) -> argparse.ArgumentParser:
    """Return the parser of all commands; ``run`` in its result is the command's function.

    ``host_options`` False spares the import of the simulator, which a plane's installation may lack.
    """
    parser = argparse.ArgumentParser(
        prog="warmroute",
        description="A self-hosted SageMaker endpoint whose router keeps prompts on the host that is already warm.",
        epilog="Start with `warmroute up`: it brings everything it needs. Settings are environment variables named "
        "WARMROUTE_...; the README lists them.",
    )
    parser.add_argument("--version", action="version", version=f"warmroute {_version()}")
    commands = parser.add_subparsers(metavar="command", required=True)
    _add_up(commands)
    _add_controlplane(commands)
    _add_dataplane(commands)
    migrate = commands.add_parser(
        "migrate",
        help="bring the database's tables to this version",
        description="Bring the tables in WARMROUTE_DATABASE_URL to this version. Safe to repeat, and to run from "
        "several machines at once.",
    )
    migrate.set_defaults(run=_migrate)
    _add_keys(commands)
    _add_audit(commands)
    _add_host(commands, host_options)
    _add_advise(commands)
    return parser


def _add_up(commands: Any) -> None:
    parser = commands.add_parser(
        "up",
        help="the whole product on this machine, with its own Postgres and Valkey",
        description="Start the whole product in the foreground: Postgres and Valkey (or the ones in "
        "WARMROUTE_DATABASE_URL and WARMROUTE_REDIS_URL), both planes, simulated model hosts and an endpoint `demo`. "
        "Prints `warmroute ready` when requests can be served. Ctrl-C ends all of it.",
    )
    parser.add_argument(
        "--control-port", type=_port, default=CONTROL_PORT, metavar="PORT", help=_port_help(CONTROL_PORT)
    )
    parser.add_argument("--data-port", type=_port, default=DATA_PORT, metavar="PORT", help=_port_help(DATA_PORT))
    parser.add_argument("--workers", type=_workers, metavar="N", help="data-plane processes (WARMROUTE_WORKERS, 2)")
    parser.add_argument(
        "--hosts",
        type=_hosts,
        default=3,
        metavar="N",
        help="simulated model hosts (3); 0: none, and no endpoint `demo`",
    )
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, metavar="DIR", help=f"what is kept ({DATA_DIR})")
    parser.set_defaults(run=_up)


def _add_controlplane(commands: Any) -> None:
    parser = commands.add_parser(
        "controlplane",
        help="the control plane alone: SageMaker's API for models and endpoints",
        description="Serve the control plane. Needs WARMROUTE_DATABASE_URL (after `warmroute migrate`) and "
        "WARMROUTE_REDIS_URL. Several may run side by side.",
    )
    _add_address(parser, CONTROL_PORT)
    parser.set_defaults(run=_controlplane)


def _add_dataplane(commands: Any) -> None:
    parser = commands.add_parser(
        "dataplane",
        help="the data plane alone: workers that route requests to model hosts",
        description="Serve the data plane. Needs WARMROUTE_REDIS_URL and nothing else. Several may run side by side.",
    )
    _add_address(parser, DATA_PORT)
    parser.add_argument("--workers", type=_workers, metavar="N", help="processes on the port (WARMROUTE_WORKERS, 2)")
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help=f"keeps the last routing table, for a start while Redis is away ({DATA_DIR}/dataplane-PORT)",
    )
    parser.set_defaults(run=_dataplane)


def _add_keys(commands: Any) -> None:
    parser = commands.add_parser(
        "keys",
        help="keys of principals: who may call, and what",
        description="Make, list, disable, rotate and delete keys, straight on WARMROUTE_DATABASE_URL. Access keys are "
        "kept sealed under WARMROUTE_SECRET_KEY or WARMROUTE_SECRET_KEY_FILE.",
    )
    _add_running(parser)
    keys.add_arguments(parser)
    parser.set_defaults(run=_on_database(keys.run))


def _add_running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="of a running `warmroute up`: its database and its secret key"
    )


def _add_audit(commands: Any) -> None:
    parser = commands.add_parser(
        "audit",
        help="who changed what on the control plane",
        description="Print the audit records of WARMROUTE_DATABASE_URL: every attempt to change something, and how it "
        "ended. They are kept for WARMROUTE_AUDIT_DAYS.",
    )
    _add_running(parser)
    audit.add_arguments(parser)
    parser.set_defaults(run=_on_database(audit.run))


def _add_host(commands: Any, options: bool) -> None:
    parser = commands.add_parser(
        "host",
        help="one simulated model host",
        description="Serve a simulated model host: the container contract and the OpenAI API in front of a model of an "
        "inference engine with a prefix cache.",
    )
    parser.set_defaults(run=_host)
    if not options:
        return
    _need("host")
    from simulator import command

    command.add_arguments(parser)


def _add_advise(commands: Any) -> None:
    parser = commands.add_parser(
        "advise",
        help="PrefixLength and ConcurrencyThreshold for a log of requests",
        description="Read a log of requests, replay it in virtual time for candidate pairs of PrefixLength and "
        "ConcurrencyThreshold, and recommend one. Prints no prompts. docs/advise.md says how to read the page.",
    )
    advise.add_arguments(parser)
    parser.set_defaults(run=_advise)


def _add_address(parser: argparse.ArgumentParser, port: int) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=_port, default=port, help=_port_help(port))


def _up(options: argparse.Namespace, settings: Settings) -> int:
    _need("controlplane", "dataplane", "host")
    from warmroute import up

    plan = up.Plan(
        control_port=options.control_port,
        data_port=options.data_port,
        workers=options.workers or settings.workers,
        hosts=options.hosts,
        data_dir=options.data_dir,
    )
    return up.run(plan, settings, os.environ)


def _controlplane(options: argparse.Namespace, settings: Settings) -> int:
    for name in ("DATABASE_URL", "REDIS_URL"):
        contract_settings.require(settings, name)
    _need("controlplane")
    from controlplane import main as plane

    ready = _announcer("controlplane", options.host, settings)
    return _translated(plane, lambda: asyncio.run(plane.serve(settings, options.host, options.port, on_ready=ready)))


def _migrate(_options: argparse.Namespace, settings: Settings) -> int:
    url = contract_settings.require(settings, "DATABASE_URL")
    _need("controlplane")
    from controlplane import main as plane

    return _translated(plane, lambda: plane.migrate(url))


def _on_database(
    action: Callable[[argparse.Namespace, Settings], int],
) -> Callable[[argparse.Namespace, Settings], int]:
    def run(options: argparse.Namespace, settings: Settings) -> int:
        _need("controlplane")
        if options.data_dir is not None:
            settings = first_keys.of_running(options.data_dir, settings)
        contract_settings.require(settings, "DATABASE_URL")
        return action(options, settings)

    return run


def _dataplane(options: argparse.Namespace, settings: Settings) -> int:
    contract_settings.require(settings, "REDIS_URL")
    _need("dataplane")
    from dataplane import main as plane

    ready = _announcer("dataplane", options.host, settings)
    workers = options.workers or settings.workers
    data_dir = options.data_dir or _own_data_dir(options.port)
    return _translated(
        plane, lambda: plane.run(settings, options.host, options.port, workers, data_dir, on_ready=ready)
    )


def _own_data_dir(port: int) -> Path | None:
    """Return the default directory of the data plane on ``port``; None: one that passes. Two must not share theirs."""
    if not port:
        return None
    directory = DATA_DIR / f"dataplane-{port}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(
            f"warmroute: {directory} cannot be made ({error.strerror}); without --data-dir a start needs Redis",
            file=sys.stderr,
        )
        return None
    return directory


def _host(options: argparse.Namespace, _settings: Settings) -> int:
    from simulator import command

    return command.run(options)


def _advise(options: argparse.Namespace, _settings: Settings) -> int:
    _need("advise")
    return advise.run(options)


def _translated(plane: Any, action: Callable[[], Any]) -> int:
    """Run a plane; its StartupError becomes a Fault."""
    try:
        return action() or 0
    except plane.StartupError as error:
        raise Fault(str(error)) from error


def _announcer(plane: str, host: str, settings: Settings) -> Callable[[int], None]:
    def announce(port: int) -> None:
        print(f"warmroute {plane} ready on {network.url(host, port, tls=bool(settings.tls_cert_file))}", flush=True)

    return announce


def _version() -> str:
    try:
        return importlib.metadata.version("warmroute")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _need(*extras: str) -> None:
    """Raise Fault when a package of one of our extras is not installed. Installed versions are pip's concern."""
    try:
        requirements = importlib.metadata.requires("warmroute") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for requirement in requirements:
        name, extra = re.match(r"[\w.-]+", requirement), re.search(r"extra == .(\w+)", requirement)
        if name and extra and extra[1] in extras:
            try:
                importlib.metadata.version(name[0])
            except importlib.metadata.PackageNotFoundError:
                wanted = extras[0] if len(extras) == 1 else "embedded"
                raise Fault(f"the package {name[0]} is not installed; install warmroute[{wanted}]") from None


def _port(text: str) -> int:
    return _whole(text, 0, 65535)


def _workers(text: str) -> int:
    return _whole(text, 1, 256)


def _hosts(text: str) -> int:
    return _whole(text, 0, 64)


def _whole(text: str, low: int, high: int) -> int:
    if not text.isdecimal() or not low <= int(text) <= high:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
    return int(text)


def _port_help(default: int) -> str:
    return f"TCP port ({default}); 0: any free one"

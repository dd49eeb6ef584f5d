"""Commands: what they take, and one plain sentence for each fault that a user can mend."""

import argparse
import contextlib
import importlib.metadata
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.services import PrivateServer
from tests.waiting import free_port
from warmroute import cli
from warmroute.faults import Fault

SECONDS_MAX = 15.0


def _environment(**settings: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WARMROUTE_")}
    return kept | {f"WARMROUTE_{name}": value for name, value in settings.items()}


def _run(tmp_path: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "warmroute", *arguments]
    return subprocess.run(
        command, cwd=tmp_path, env=_environment(**settings), capture_output=True, text=True, timeout=SECONDS_MAX
    )


def _refusal(done: subprocess.CompletedProcess[str]) -> str:
    """Return the one sentence of a command that was refused."""
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("warmroute: ")]
    assert len(lines) == 1, done.stderr
    assert done.stderr.splitlines()[-1] == lines[0]
    return lines[0].removeprefix("warmroute: ")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on and never answers at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


# --- parsing ----------------------------------------------------------------------------------------------------------


def test_the_contracts_commands_and_defaults() -> None:
    parse = cli.build_parser().parse_args
    up = parse(["up"])
    assert (up.control_port, up.data_port, up.workers, up.hosts, up.data_dir) == (
        7070,
        7080,
        None,
        3,
        Path(".warmroute"),
    )
    controlplane = parse(["controlplane", "--host", "::1", "--port", "1"])
    assert (controlplane.host, controlplane.port) == ("::1", 1)
    dataplane = parse(["dataplane", "--port", "2", "--workers", "4", "--data-dir", "d"])
    assert (dataplane.host, dataplane.port, dataplane.workers, dataplane.data_dir) == ("127.0.0.1", 2, 4, Path("d"))
    assert parse(["host", "--port", "3"]).port == 3
    assert parse(["migrate"]).run


@pytest.mark.parametrize(
    "arguments",
    [
        ["dataplane", "--port", "65536"],
        ["dataplane", "--port", "x"],
        ["dataplane", "--workers", "0"],
        ["up", "--hosts", "-1"],
        ["up", "--hosts", "1.5"],
        ["nonsense"],
        [],
    ],
)
def test_bad_options_name_what_would_be_right(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    text = capsys.readouterr().err
    assert re.search(r"is not a whole number from \d+ to \d+|invalid choice|required: command", text)


def test_every_command_has_help_that_names_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    parser = cli.build_parser()
    (commands,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    assert set(commands.choices) == {"up", "controlplane", "dataplane", "migrate", "keys", "audit", "host", "advise"}
    for name in commands.choices:
        with pytest.raises(SystemExit) as ended:
            cli.main([name, "--help"])
        assert ended.value.code == 0
        text = capsys.readouterr().out
        for action in commands.choices[name]._actions:
            assert action.help
            assert max(action.option_strings, default="") in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"warmroute {importlib.metadata.version('warmroute')}\n"


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "settings", "sentence"),
    [
        ("controlplane", {}, "WARMROUTE_DATABASE_URL is not set; give a URL such as postgresql://"),
        (
            "controlplane",
            {"DATABASE_URL": "postgresql://h/d"},
            "WARMROUTE_REDIS_URL is not set; give a URL such as redis://",
        ),
        ("dataplane", {}, "WARMROUTE_REDIS_URL is not set; give a URL such as redis://"),
        ("migrate", {}, "WARMROUTE_DATABASE_URL is not set"),
        (
            "migrate",
            {"DATABASE_URL": "mysql://root:secret@h/d"},
            "WARMROUTE_DATABASE_URL must start with postgresql://",
        ),
        ("dataplane", {"REDIS_URL": "redis://h:port"}, "WARMROUTE_REDIS_URL is not a URL"),
        (
            "dataplane",
            {"REDIS_ULR": "redis://h"},
            "WARMROUTE_REDIS_ULR is not a setting; did you mean WARMROUTE_REDIS_URL?",
        ),
        ("host", {"NONSENSE": "1"}, "WARMROUTE_NONSENSE is not a setting"),
        ("dataplane", {"REDIS_URL": "redis://h", "LEASE_SECONDS": "soon"}, "WARMROUTE_LEASE_SECONDS must be a number"),
        ("dataplane", {"REDIS_URL": "redis://h", "AUTH": "on"}, "WARMROUTE_AUTH=on needs WARMROUTE_SECRET_KEY or"),
    ],
)
def test_a_setting_at_fault_is_named(
    command: str,
    settings: dict[str, str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in [name for name in os.environ if name.startswith("WARMROUTE_")]:
        monkeypatch.delenv(name)
    for name, value in settings.items():
        monkeypatch.setenv(f"WARMROUTE_{name}", value)
    assert cli.main([command]) == 2
    text = capsys.readouterr().err
    assert text.startswith(f"warmroute: {sentence}")
    assert text.count("\n") == 1
    assert "secret" not in text


@pytest.mark.parametrize("plane", ["controlplane", "dataplane"])
def test_a_port_in_use_is_named(plane: str, tmp_path: Path, taken: int) -> None:
    settings = {"DATABASE_URL": "postgresql://127.0.0.1:1/d", "REDIS_URL": "redis://127.0.0.1:1"}
    sentence = _refusal(_run(tmp_path, plane, "--port", str(taken), **settings))
    assert str(taken) in sentence
    assert "--port" in sentence
    assert "in use" in sentence


@pytest.mark.parametrize("plane", ["controlplane", "dataplane"])
@pytest.mark.parametrize("host", ["0.0.0.0", "nowhere.invalid"])
def test_an_address_that_cannot_be_served_is_named(plane: str, host: str, tmp_path: Path) -> None:
    settings = {"DATABASE_URL": "postgresql://127.0.0.1:1/d", "REDIS_URL": "redis://127.0.0.1:1"}
    assert host in _refusal(_run(tmp_path, plane, "--host", host, **settings))


def test_an_unreachable_database_is_named_in_time(tmp_path: Path, taken: int) -> None:
    with contextlib.ExitStack() as stack:
        runs = []
        for port, *command in ((taken, "controlplane", "--port", "0"), (free_port(), "migrate")):
            url = f"postgresql://user:secret@127.0.0.1:{port}/none"
            settings = _environment(DATABASE_URL=url, REDIS_URL="redis://127.0.0.1:1")
            program = [sys.executable, "-m", "warmroute", *command]
            run = subprocess.Popen(program, cwd=tmp_path, env=settings, stderr=subprocess.PIPE, text=True)
            runs.append(stack.enter_context(run))
        for run in runs:
            stack.callback(run.kill)
        # The promise is 15 s; other tests share the processors here.
        deadline = time.monotonic() + SECONDS_MAX + 5
        for run in runs:
            _, errors = run.communicate(timeout=deadline - time.monotonic())
            sentence = _refusal(subprocess.CompletedProcess(run.args, run.returncode, "", errors))
            assert "WARMROUTE_DATABASE_URL" in sentence
            assert "secret" not in errors


def test_a_database_that_does_not_exist_is_named(tmp_path: Path, postgres_url: str) -> None:
    url = re.sub(r"/[^/?]+(\?|$)", r"/no_such_database\1", postgres_url, count=1)
    sentence = _refusal(_run(tmp_path, "migrate", DATABASE_URL=url))
    assert "WARMROUTE_DATABASE_URL" in sentence
    assert "no_such_database" in sentence


def test_debug_adds_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WARMROUTE_LOG_LEVEL", "debug")
    monkeypatch.delenv("WARMROUTE_REDIS_URL", raising=False)
    assert cli.main(["dataplane"]) == 2
    text = capsys.readouterr().err
    assert "Traceback" in text
    assert text.splitlines()[-1].startswith("warmroute: WARMROUTE_REDIS_URL is not set")


@pytest.mark.parametrize(
    ("extras", "package", "install"),
    [
        (("dataplane",), "uvloop", "warmroute[dataplane]"),
        (("controlplane",), "asyncpg", "warmroute[controlplane]"),
        (("controlplane", "dataplane", "host"), "starlette", "warmroute[embedded]"),
    ],
)
def test_a_missing_extra_is_named(
    extras: tuple[str, ...], package: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name == package:
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    cli._need(*extras)
    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(Fault, match=rf"^the package {package} is not installed; install {re.escape(install)}$"):
        cli._need(*extras)


def test_a_command_imports_no_plane_but_its_own() -> None:
    script = "import sys; from warmroute import cli; cli.build_parser(host_options=False); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert {name.partition(".")[0] for name in loaded}.isdisjoint(
        {"controlplane", "dataplane", "simulator", "fastapi", "sqlalchemy", "uvloop", "redis", "starlette"}
    )


# --- planes alone -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _plane(tmp_path: Path, *arguments: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "warmroute", *arguments]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            command, cwd=tmp_path, env=_environment(**settings), stdout=subprocess.PIPE, stderr=log, text=True
        ) as plane,
    ):
        try:
            yield plane
        finally:
            plane.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_each_plane_says_where_it_is_and_ends_when_told(
    tmp_path: Path, database_url: str, private_redis: Callable[..., PrivateServer], number: signal.Signals
) -> None:
    stores = {"DATABASE_URL": database_url, "REDIS_URL": private_redis().url}
    with (
        _plane(tmp_path, "controlplane", "--port", "0", **stores) as control,
        _plane(tmp_path, "dataplane", "--port", "0", "--workers", "1", REDIS_URL=stores["REDIS_URL"]) as data,
        _plane(tmp_path, "host", "--port", "0") as host,
    ):
        for name, plane in (
            ("warmroute controlplane", control),
            ("warmroute dataplane", data),
            ("simulated host", host),
        ):
            assert plane.stdout is not None
            assert re.fullmatch(rf"{name} ready on http://127\.0\.0\.1:\d+\n", plane.stdout.readline())
        for plane in (control, data, host):
            plane.send_signal(number)
            assert plane.wait(15) == 0
    assert not (tmp_path / ".warmroute").exists(), "a data plane on any port keeps nothing"


def test_a_data_plane_keeps_its_table_below_its_port(
    tmp_path: Path, private_redis: Callable[..., PrivateServer]
) -> None:
    port = free_port()
    with _plane(tmp_path, "dataplane", "--port", str(port), "--workers", "1", REDIS_URL=private_redis().url) as data:
        assert data.stdout is not None
        assert f":{port}\n" in data.stdout.readline()
        data.terminate()
        assert data.wait(15) == 0
    assert (tmp_path / ".warmroute" / f"dataplane-{port}").is_dir()


def test_migrate_may_be_repeated(tmp_path: Path, database_url: str) -> None:
    for _ in range(2):
        assert _run(tmp_path, "migrate", DATABASE_URL=database_url).returncode == 0

"""The embedded Valkey: on a port of its own, and ended with its starter."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.waiting import wait_until
from warmroute.embedded import EmbeddedError, binaries, valkey
from warmroute.embedded.processes import alive
from warmroute.embedded.valkey import Valkey

STARTER = """
import sys, time
from pathlib import Path
from warmroute.embedded.processes import alive
from warmroute.embedded.valkey import Valkey
server = Valkey(Path(sys.argv[1]), log=Path(sys.argv[1]) / "log")
print(server.start(), server.pid, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Valkey]:
    server = Valkey(tmp_path, log=tmp_path / "log")
    yield server
    server.stop()


def test_it_serves_functions_scripts_and_channels(server: Valkey) -> None:
    with redis.Redis.from_url(server.start()) as client:
        assert client.function_load("#!lua name=l\nredis.register_function('f', function() return 5 end)") == b"l"
        assert client.fcall("f", 0) == 5
        assert client.publish("channel", "") == 0


def test_it_listens_on_loopback_alone_and_keeps_its_port(server: Valkey) -> None:
    url = server.start()
    assert url.startswith("redis://127.0.0.1:")
    with redis.Redis.from_url(url) as client:
        assert client.config_get("bind") == {"bind": "127.0.0.1"}
        assert client.config_get("save") == {"save": ""}
    server.stop()
    assert server.start() == url


def test_it_ends_with_a_killed_starter(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline().split()[1])
        assert alive(pid)
        starter.send_signal(signal.SIGKILL)
    wait_until(lambda: not alive(pid), 5, "end of Valkey")


def test_a_port_that_was_taken_meanwhile_is_replaced(
    server: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Valkey(tmp_path / "other", log=tmp_path / "other.log")
    other.start()
    ports = iter([other.port, 0])
    real = valkey._free_port
    monkeypatch.setattr(valkey, "_free_port", lambda: next(ports) or real())
    try:
        url = server.start()
        with redis.Redis.from_url(url) as client:
            assert client.info("server")["process_id"] == server.pid
        assert server.port != other.port
    finally:
        other.stop()


def test_a_given_port_in_use_is_a_fault(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = Valkey(tmp_path, log=tmp_path / "log", port=taken.getsockname()[1])
        with pytest.raises(EmbeddedError, match="Valkey did not start: "):
            server.start()


def test_second_sources_and_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = binaries.valkey_server()
    monkeypatch.setattr(binaries, "_package_dir", lambda _package: None)
    (tmp_path / "redis-server").symlink_to(real)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert binaries.valkey_server() == tmp_path / "redis-server"
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(EmbeddedError, match=r"install warmroute\[embedded\], or set WARMROUTE_REDIS_URL"):
        binaries.valkey_server()

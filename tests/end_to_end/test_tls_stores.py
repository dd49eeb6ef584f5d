"""Postgres and Redis over TLS: used with the authorities given, refused with others."""

import subprocess
import sys
from pathlib import Path

from access.files import listener_tls
from contract.settings import Settings
from tests.end_to_end.stack import SETTINGS, Stack, User, invoke, prefix_aware
from tests.fakes.certificates import Authority
from tests.fakes.control_plane import ControlPlane
from tests.fakes.data_plane import DataPlane
from tests.fakes.model_host import Hosts
from tests.fakes.plane_process import clean_environ
from tests.fakes.tls_front import tls_front
from tests.services import PrivateServer


def test_both_stores_over_tls(database_url: str, own_redis: PrivateServer, hosts: Hosts, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue()
    tls = listener_tls(Settings(tls_cert_file=str(certificate), tls_key_file=str(key)))
    assert tls is not None
    trusting = {"SSL_CERT_FILE": str(authority.ca)}
    with tls_front(database_url, tls) as postgres, tls_front(own_redis.url, tls) as redis:
        secure = postgres.url("postgresql", f"sslmode=verify-full&sslrootcert={authority.ca}")
        stack = Stack(secure, redis.url("rediss"), tmp_path / "stack")
        try:
            control = ControlPlane(stack.database_url, stack.redis_url, tmp_path / "control", settings=SETTINGS)
            control.environ |= trusting
            stack.controls.append(control.start())
            plane = DataPlane(stack.redis_url, tmp_path / "plane", settings=SETTINGS, environ=trusting)
            stack.planes.append(plane.start())
            user = User(stack, "tls")
            endpoint = user.deploy("e", hosts.make(2), prefix_aware())
            assert invoke(stack.runtime(), endpoint, b"hello " * 500)
            assert plane.metric("warmroute_store_up") == 1, "counts are kept in Redis, over TLS"
            user.delete(endpoint)
        finally:
            stack.close()
        assert postgres.connections
        assert redis.connections

        before = redis.connections
        (tmp_path / "stranger").mkdir()
        stranger = Authority(tmp_path / "stranger")
        checked = f"sslmode=verify-full&sslrootcert={stranger.ca}"
        said = _refusal(postgres.url("postgresql", checked), redis.url("rediss"))
        assert "certificate verify failed" in said
        assert "WARMROUTE_DATABASE_URL" in said
        lonely = DataPlane(redis.url("rediss"), tmp_path / "lonely", settings=SETTINGS)
        try:
            lonely.start(wait=False)
            assert not lonely.is_ready(), "without the authority there is no Redis, so there are no routes"
        finally:
            lonely.close()
        assert redis.connections == before


def _refusal(database_url: str, redis_url: str) -> str:
    settings = {"WARMROUTE_DATABASE_URL": database_url, "WARMROUTE_REDIS_URL": redis_url}
    command = [sys.executable, "-m", "warmroute", "controlplane", "--port", "0"]
    done = subprocess.run(command, env=clean_environ() | settings, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    return done.stderr

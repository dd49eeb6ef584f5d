"""One stack for all tests that leave it whole; a stack of its own for each test that breaks something."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.stack import Stack, User
from tests.fakes.fixtures import hosts_thread as hosts_thread
from tests.fakes.model_host import Hosts, HostThread
from tests.services import PrivateServer, new_database
from warmroute.embedded.valkey import Valkey


@pytest.fixture(scope="session")
def stack(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A control plane and two workers, each with an address of its own."""
    directory = tmp_path_factory.mktemp("stack")
    valkey = Valkey(directory, log=directory / "valkey.log")
    with new_database(postgres_url) as database_url:
        stack = Stack(database_url, valkey.start(), directory)
        try:
            stack.start_control()
            stack.start_plane()
            stack.start_plane()
            yield stack
        finally:
            stack.close()
            valkey.stop()


@pytest.fixture
def hosts(hosts_thread: HostThread) -> Iterator[Hosts]:
    """Hosts of one test."""
    hosts = Hosts(hosts_thread)
    yield hosts
    hosts.close()


@pytest.fixture
def scope(request: pytest.FixtureRequest) -> str:
    """A short name that no other test has."""
    return "t" + hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:10]


@pytest.fixture
def user(stack: Stack, hosts: Hosts, scope: str) -> Iterator[User]:
    """A user of the shared stack. Nothing that it does may leave a traceback in any log."""
    parts = [*stack.controls, *stack.planes]
    printed = [len(part.output) for part in parts]
    user = User(stack, scope)
    yield user
    user.close()
    for part, start in zip(parts, printed, strict=True):
        assert "Traceback" not in part.output[start:], part.output[start:]


@pytest.fixture
def own_redis(private_redis: Callable[..., PrivateServer]) -> PrivateServer:
    """A Redis that the test may break."""
    return private_redis()


@pytest.fixture
def own_stack(database_url: str, own_redis: PrivateServer, tmp_path: Path) -> Iterator[Stack]:
    """A stack of the test's own, nothing of it started."""
    stack = Stack(database_url, own_redis.url, tmp_path / "stack")
    yield stack
    stack.close()

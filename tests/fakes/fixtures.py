"""Fixtures that the tests of running planes share; a conftest imports what it needs."""

from collections.abc import Iterator

import pytest

from tests.fakes.model_host import HostThread, host_thread


@pytest.fixture(scope="session")
def hosts_thread() -> Iterator[HostThread]:
    """The thread on which all fake model hosts of this test process run."""
    with host_thread() as thread:
        yield thread

from collections.abc import Iterator

import pytest

from tests.dataplane.state.script import Store


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    """The counts of an endpoint of the test's own. Whatever the test did, the store's own law holds at its end."""
    store = Store(redis_url)
    yield store
    store.check()
    store.lose_everything()
    store.close()

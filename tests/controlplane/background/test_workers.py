"""Whether the workers follow, from what they report."""

from datetime import UTC, datetime

import pytest

from controlplane.background.workers import Reports, all_serve, follow
from controlplane.store.fleet import EndpointRows
from controlplane.store.tables import Endpoint, PublishedEndpoint

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("reports", "serve"),
    [
        ({}, True),
        (None, False),
        ({"a": "e:5"}, True),
        ({"a": "e:6", "b": "e:5"}, True),
        ({"a": "e:5", "b": "e:4"}, False),
        ({"a": "f:9"}, False),
        ({"a": ""}, False),
        ({"a": "nonsense"}, False),
        ({"a": "e:-5"}, False),
    ],
)
def test_every_live_worker_counts(reports: Reports, serve: bool) -> None:
    assert all_serve(reports, "e", 5) is serve


def rows(revision: int, published: PublishedEndpoint | None) -> EndpointRows:
    endpoint = Endpoint(
        id="1",
        name="e",
        status="InService",
        config_name="c",
        sent_config={},
        revision=revision,
        created_at=NOW,
        modified_at=NOW,
    )
    return EndpointRows(endpoint, None, (), (), (), published)


def test_only_the_present_revision_can_be_followed() -> None:
    published = PublishedEndpoint(endpoint_id="1", revision=2, generation=5)
    assert follow({"a": "e:5"}, "e", rows(2, published))
    assert not follow({"a": "e:5"}, "e", rows(3, published))
    assert not follow({"a": "e:4"}, "e", rows(2, published))
    assert not follow({}, "e", rows(0, None))

"""Schemathesis over the OpenAPI document: requests that fit it and requests that do not, against a real database.

No answer is a 5xx, none differs from what the document says, and a request that the document forbids is refused.
"""

from collections.abc import Iterator

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import positive_data_acceptance

from controlplane.api.app import build_app
from controlplane.operations.registry import OPERATIONS
from controlplane.store.session import Database
from tests.controlplane.api.stubs import served
from tests.controlplane.api.test_guard import open_door
from tests.controlplane.stage import ACCOUNT, REGION, SEALING

EXAMPLES = 6
"""Of each operation, with AUTH off and on: some 20 s in all."""
QUIET = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


def fuzz(url: str, key: str = "") -> None:
    """Call every operation of the document with what is made from its schema."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    document = httpx.get(f"{url}/openapi.json", headers=headers, trust_env=False).json()
    schema = schemathesis.openapi.from_dict(document)
    seen = set()
    for found in schema.get_all_operations():
        operation = found.ok()
        seen.add(operation.path)

        # A page without parameters can be asked for in one way only.
        modes = tuple(GenerationMode)[: 2 if operation.path[1:] in OPERATIONS else 1]
        for mode in modes:

            @QUIET
            @given(case=operation.as_strategy(generation_mode=mode))
            def run(case: schemathesis.Case) -> None:
                # AWS answers 400 for what does not exist, however well it is named.
                case.call_and_validate(base_url=url, headers=headers, excluded_checks=[positive_data_acceptance])

            run()
    assert {f"/{name}" for name in OPERATIONS} <= seen


@pytest.fixture
def url(migrated_url: str) -> Iterator[str]:
    database = Database(migrated_url)
    app = build_app(
        database=database,
        account_id=ACCOUNT,
        region=REGION,
        is_ready=lambda: (True, ""),
        metrics=lambda: "warmroute_up 1\n",
        sealing=SEALING,
    )
    with served(app, database.dispose) as url:
        yield url


def test_without_auth_every_answer_is_as_documented(url: str) -> None:
    fuzz(url)


def test_with_auth_every_answer_is_as_documented(migrated_url: str) -> None:
    with open_door(migrated_url) as door:
        fuzz(door.url, door.make(Role="admin", Kind="api-key")["ApiKey"])

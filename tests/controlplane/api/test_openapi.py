import re
from typing import Any

import httpx
import pytest

from controlplane.api.descriptions import DESCRIPTIONS
from controlplane.operations.registry import OPERATIONS
from tests.controlplane.api.stubs import Stubs


@pytest.fixture
async def document() -> dict[str, Any]:
    stubs = Stubs()
    for name in OPERATIONS:
        stubs.add(name)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(stubs.app()), base_url="http://test") as client:
        response = await client.get("/openapi.json")
    return dict(response.json())


def test_every_operation_has_its_request_and_errors(document: dict[str, Any]) -> None:
    for name in OPERATIONS:
        operation = document["paths"][f"/{name}"]["post"]
        body = operation["requestBody"]["content"]["application/json"]
        assert body["example"] == DESCRIPTIONS[name].example
        assert body["schema"]["$ref"].endswith(f"/{name}Input")
        assert operation["responses"].keys() == {"200", "400", "403", "500", "503"}


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    references = set(re.findall(r"#/components/schemas/(\w+)", str(document)))
    assert references <= schemas.keys()
    assert "RoutingConfig" in schemas
    assert not [name for name in schemas if name.endswith("Shape")]


def test_bounds_and_notes_are_in_the_schemas(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    block = schemas["PrefixAwareRoutingConfig"]["properties"]
    assert {"type": "integer", "minimum": 1024, "maximum": 65536} in block["PrefixLength"]["anyOf"]
    variant = schemas["ProductionVariant"]["properties"]
    assert variant["InstanceType"]["description"].startswith("Stored only")
    assert variant["ServerlessConfig"]["description"] == "Not supported by this version."

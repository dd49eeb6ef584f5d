import httpx
import pytest

from tests.controlplane.api.stubs import Stubs


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/CreateEndpointConfig", 405),
        ("PUT", "/", 405),
        ("GET", "/", 405),
        ("POST", "/health/live", 405),
        ("POST", "/NoSuchThing", 404),
        ("POST", "/DeleteEndpoint/", 404),
        ("POST", "//DeleteEndpoint", 404),
        ("POST", "/deleteendpoint", 404),
        ("POST", "/%2e%2e/DeleteEndpoint", 404),
        ("POST", "/DeleteEndpoint%00", 404),
        ("POST", "/DeleteEndpoint%0aINFO", 404),
        ("GET", "/redoc", 404),
    ],
)
async def test_paths_and_methods_that_are_not_served(
    client: httpx.AsyncClient, stubs: Stubs, method: str, path: str, status: int
) -> None:
    url = client.base_url.copy_with(raw_path=path.encode())
    response = await client.request(method, url, content=b'{"EndpointName": "e1"}')
    assert response.status_code == status
    document = response.json()
    assert document.keys() == {"__type", "message"}
    assert document["message"].isprintable()
    assert response.headers["x-amzn-requestid"]
    assert stubs.calls == []


async def test_a_wrong_method_is_told_the_right_one(client: httpx.AsyncClient) -> None:
    assert (await client.get("/DeleteEndpoint")).headers["allow"] == "POST"


async def test_health(client: httpx.AsyncClient, stubs: Stubs) -> None:
    assert (await client.get("/health/live")).status_code == 200
    assert (await client.get("/health/ready")).json() == {"status": "ready"}
    stubs.ready = (False, "The database schema is older than this program.")
    response = await client.get("/health/ready")
    assert response.status_code == 503
    assert response.json() == {"status": "not ready", "reason": "The database schema is older than this program."}
    assert (await client.get("/health/live")).status_code == 200


async def test_metrics(client: httpx.AsyncClient) -> None:
    response = await client.get("/metrics")
    assert response.text == "warmroute_up 1\n"
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_a_fault_outside_the_operations_has_no_details(client: httpx.AsyncClient, stubs: Stubs) -> None:
    def broken() -> str:
        raise RuntimeError("canary")

    stubs.metrics = broken
    response = await client.get("/metrics")
    assert response.status_code == 500
    assert response.json()["__type"] == "InternalFailure"
    assert "canary" not in response.text

"""The endpoint ``demo`` of ``warmroute up``: made through the public API like anybody's, and made to fit at each start.

Its hosts are registered under stable names, so prefixes stay at home over restarts and with another number of hosts.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from warmroute import network
from warmroute.children import Children
from warmroute.faults import Fault
from warmroute.signing import Key, signed

NAME = "demo"
"""Of the endpoint, its config and its model."""
VARIANT = "primary"
PREFIX_LENGTH, CONCURRENCY_THRESHOLD = 1024, 8
"""The shortest prefix, so that short prompts show routing, too; and half of what a simulated host runs at once."""
_IN_SERVICE_SECONDS = 60.0
_STEADY = ("InService", "Failed")
_ROUTED_PROBES = 4
"""Fresh connections a worker: the kernel spreads them, so each worker is very likely asked."""


class Refused(Exception):
    """The control plane refused a call."""


class ControlPlane:
    """The API's REST door, as any client sees it. ``key``: signs, where AUTH is on."""

    def __init__(self, url: str, key: Key | None = None) -> None:
        self._url, self._key = url, key
        self._address = urlsplit(url)

    def call(self, operation: str, **members: Any) -> dict[str, Any]:
        """Call one operation. Raises Refused for an error, and OSError or HTTPException for no answer."""
        connection = HTTPConnection(str(self._address.hostname), self._address.port, timeout=10)
        try:
            content, headers = json.dumps(members).encode(), {"content-type": "application/json"}
            if self._key is not None:
                headers = signed(self._key, "POST", f"{self._url}/{operation}", content, datetime.now(UTC))
            connection.request("POST", f"/{operation}", content, headers)
            response = connection.getresponse()
            body: dict[str, Any] = json.loads(response.read() or b"{}")
        finally:
            connection.close()
        if response.status != 200:
            raise Refused(f"{operation}: {body.get('message', response.status)}")
        return body

    def describe(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return what DescribeModel, -EndpointConfig or -Endpoint says, or None when there is none of that name."""
        try:
            return self.call(f"Describe{kind}", **{f"{kind}Name": name})
        except Refused as error:
            if "Could not find" in str(error):
                return None
            raise


def prepare(control: ControlPlane, ports: Sequence[int], children: Children) -> None:
    """Make the endpoint and its hosts as ``ports`` say, or remove them when there are none. Raises Fault."""
    try:
        if ports:
            _prepare(control, ports, children)
        else:
            _remove(control, children)
    except (Refused, OSError, HTTPException) as error:
        raise Fault(f"the endpoint {NAME} could not be prepared ({error}); another --data-dir starts afresh") from None


def await_served(data_url: str, workers: int, children: Children, api_key: str | None = None) -> None:
    """Wait until the data plane's workers know the endpoint, and the key where AUTH is on. Raises Fault."""

    def served() -> bool:
        return all(NAME in _models(data_url, api_key) for _ in range(workers * _ROUTED_PROBES))

    children.wait_until(served, _IN_SERVICE_SECONDS, f"the data plane did not serve the endpoint {NAME}")


def _prepare(control: ControlPlane, ports: Sequence[int], children: Children) -> None:
    if control.describe("Model", NAME) is None:
        control.call("CreateModel", ModelName=NAME, PrimaryContainer={"Image": "warmroute/simulated-host"})
    wanted = {f"{NAME}-{number}": network.url("127.0.0.1", port) for number, port in enumerate(ports, start=1)}
    for name, url in wanted.items():
        control.call("RegisterModelHost", ModelName=NAME, HostName=name, BaseUrl=url)
    for name in _registered(control) - wanted.keys():
        control.call("DeregisterModelHost", ModelName=NAME, HostName=name)
    endpoint = _settled(control, children)
    if endpoint and endpoint["EndpointStatus"] == "Failed":
        _delete_endpoint(control, children)
        endpoint = None
    if endpoint is None:
        _create_endpoint(control, len(ports))
    else:
        _resize(control, endpoint, len(ports))
    endpoint = _settled(control, children)
    if endpoint is None or endpoint["EndpointStatus"] != "InService":
        reason = (endpoint or {}).get("FailureReason", "it is gone")
        raise Fault(f"the endpoint {NAME} did not become InService: {reason}")


def _create_endpoint(control: ControlPlane, hosts: int) -> None:
    if control.describe("EndpointConfig", NAME):
        control.call("DeleteEndpointConfig", EndpointConfigName=NAME)
    variant = {
        "VariantName": VARIANT,
        "ModelName": NAME,
        "InstanceType": "ml.g5.xlarge",
        "InitialInstanceCount": hosts,
        "RoutingConfig": {
            "RoutingStrategy": "PREFIX_AWARE",
            "PrefixAwareRoutingConfig": {
                "PrefixLength": PREFIX_LENGTH,
                "ConcurrencyThreshold": CONCURRENCY_THRESHOLD,
            },
        },
    }
    control.call("CreateEndpointConfig", EndpointConfigName=NAME, ProductionVariants=[variant])
    control.call("CreateEndpoint", EndpointName=NAME, EndpointConfigName=NAME)


def _resize(control: ControlPlane, endpoint: dict[str, Any], hosts: int) -> None:
    """Give the endpoint all hosts there are now, unless its user has split it into variants since."""
    variants = endpoint.get("ProductionVariants", [])
    if len(variants) == 1 and variants[0].get("DesiredInstanceCount") != hosts:
        change = {"VariantName": variants[0]["VariantName"], "DesiredInstanceCount": hosts}
        control.call("UpdateEndpointWeightsAndCapacities", EndpointName=NAME, DesiredWeightsAndCapacities=[change])


def _remove(control: ControlPlane, children: Children) -> None:
    if _settled(control, children):
        _delete_endpoint(control, children)
    if control.describe("EndpointConfig", NAME):
        control.call("DeleteEndpointConfig", EndpointConfigName=NAME)
    if control.describe("Model", NAME):
        for name in _registered(control):
            control.call("DeregisterModelHost", ModelName=NAME, HostName=name)
        control.call("DeleteModel", ModelName=NAME)


def _delete_endpoint(control: ControlPlane, children: Children) -> None:
    control.call("DeleteEndpoint", EndpointName=NAME)
    what = f"the endpoint {NAME} was not deleted"
    children.wait_until(lambda: control.describe("Endpoint", NAME) is None, _IN_SERVICE_SECONDS, what)


def _settled(control: ControlPlane, children: Children) -> dict[str, Any] | None:
    """Return the endpoint once nothing is under way with it."""
    found: list[dict[str, Any] | None] = [None]

    def settled() -> bool:
        found[0] = control.describe("Endpoint", NAME)
        return found[0] is None or found[0]["EndpointStatus"] in _STEADY

    children.wait_until(settled, _IN_SERVICE_SECONDS, f"the endpoint {NAME} did not become InService")
    return found[0]


def _registered(control: ControlPlane) -> set[str]:
    """Return the names of the model's hosts that an ``up`` registered; a user may have added others."""
    hosts = control.call("ListModelHosts", ModelName=NAME, MaxResults=100)["Hosts"]
    names = {str(host["HostName"]) for host in hosts}
    return {name for name in names if name.removeprefix(f"{NAME}-").isdecimal()}


def _models(data_url: str, api_key: str | None) -> list[str]:
    parts = urlsplit(data_url)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=1)
    try:
        connection.request("GET", "/v1/models", headers={"authorization": f"Bearer {api_key}"} if api_key else {})
        response = connection.getresponse()
        return [model["id"] for model in json.loads(response.read())["data"]] if response.status == 200 else []
    except (OSError, HTTPException, ValueError):
        return []
    finally:
        connection.close()

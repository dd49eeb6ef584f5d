"""Every operation of the API with its shapes, by name. Both doors serve exactly these."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from controlplane.operations import endpoint_configs, endpoints, hosts, keys, models, tags
from controlplane.operations.context import Context
from controlplane.shapes import endpoint_configs as config_shapes
from controlplane.shapes import endpoints as endpoint_shapes
from controlplane.shapes import hosts as host_shapes
from controlplane.shapes import keys as key_shapes
from controlplane.shapes import models as model_shapes
from controlplane.shapes import tags as tag_shapes
from controlplane.shapes.base import Shape


@dataclass(frozen=True)
class Operation:
    """One operation: shapes in and out (None: no output), and the function that runs it in one transaction."""

    name: str
    input: type[Shape]
    output: type[Shape] | None
    run: Callable[[Context, Any], Awaitable[Shape | None]]


def _operation(shapes: Any, name: str, run: Callable[[Context, Any], Awaitable[Shape | None]]) -> Operation:
    return Operation(name, getattr(shapes, f"{name}Input"), getattr(shapes, f"{name}Output", None), run)


OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        _operation(model_shapes, "CreateModel", models.create_model),
        _operation(model_shapes, "DescribeModel", models.describe_model),
        _operation(model_shapes, "ListModels", models.list_models),
        _operation(model_shapes, "DeleteModel", models.delete_model),
        _operation(host_shapes, "RegisterModelHost", hosts.register_model_host),
        _operation(host_shapes, "DeregisterModelHost", hosts.deregister_model_host),
        _operation(host_shapes, "ListModelHosts", hosts.list_model_hosts),
        _operation(config_shapes, "CreateEndpointConfig", endpoint_configs.create_endpoint_config),
        _operation(config_shapes, "DescribeEndpointConfig", endpoint_configs.describe_endpoint_config),
        _operation(config_shapes, "ListEndpointConfigs", endpoint_configs.list_endpoint_configs),
        _operation(config_shapes, "DeleteEndpointConfig", endpoint_configs.delete_endpoint_config),
        _operation(endpoint_shapes, "CreateEndpoint", endpoints.create_endpoint),
        _operation(endpoint_shapes, "DescribeEndpoint", endpoints.describe_endpoint),
        _operation(endpoint_shapes, "UpdateEndpoint", endpoints.update_endpoint),
        _operation(endpoint_shapes, "ListEndpoints", endpoints.list_endpoints),
        _operation(endpoint_shapes, "DeleteEndpoint", endpoints.delete_endpoint),
        _operation(
            endpoint_shapes, "UpdateEndpointWeightsAndCapacities", endpoints.update_endpoint_weights_and_capacities
        ),
        _operation(tag_shapes, "AddTags", tags.add_tags),
        _operation(tag_shapes, "ListTags", tags.list_tags),
        _operation(tag_shapes, "DeleteTags", tags.delete_tags),
        _operation(key_shapes, "CreateAccessKey", keys.create_access_key),
        _operation(key_shapes, "ListAccessKeys", keys.list_access_keys),
        _operation(key_shapes, "UpdateAccessKey", keys.update_access_key),
        _operation(key_shapes, "RotateAccessKey", keys.rotate_access_key),
        _operation(key_shapes, "DeleteAccessKey", keys.delete_access_key),
    )
}

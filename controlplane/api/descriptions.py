"""What a person reads about each operation, with an example that works as it stands."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Description:
    """``family`` groups operations on the page; ``example`` is a valid request body."""

    family: str
    summary: str
    description: str
    example: dict[str, Any]


_MODELS, _CONFIGS, _ENDPOINTS = "Models", "Endpoint configurations", "Endpoints"
_TAGS, _HOSTS, _KEYS = "Tags", "Model hosts", "Access keys"
_KEY = "AKWRABCDEFGHIJKLMN23"
_ARN = "arn:aws:sagemaker:us-east-1:000000000000:endpoint/chat"
_LIST = {"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": 10}

DESCRIPTIONS: dict[str, Description] = {
    "CreateModel": Description(
        _MODELS,
        "Create a model and its pool of hosts",
        "WARMROUTE_HOSTS in the container's Environment lists the base URLs of running model servers. Leave it out "
        "when hosts come and go, and use RegisterModelHost. WARMROUTE_PING_PATH names the health path (default /ping). "
        "Models are immutable.",
        {
            "ModelName": "llama",
            "PrimaryContainer": {"Environment": {"WARMROUTE_HOSTS": "http://10.0.0.1:8000,http://10.0.0.2:8000"}},
        },
    ),
    "DescribeModel": Description(_MODELS, "Read a model", "Members are as they were sent.", {"ModelName": "llama"}),
    "ListModels": Description(_MODELS, "List models", "Newest first unless SortBy says otherwise.", _LIST),
    "DeleteModel": Description(
        _MODELS,
        "Delete a model",
        "Endpoints that use its hosts keep serving until they are updated or deleted.",
        {"ModelName": "llama"},
    ),
    "CreateEndpointConfig": Description(
        _CONFIGS,
        "Create an endpoint configuration: variants and how each is routed",
        "RoutingStrategy is RANDOM (the default), LEAST_OUTSTANDING_REQUESTS or PREFIX_AWARE. PREFIX_AWARE takes "
        "PrefixLength (bytes of the body, or characters of the messages of a chat request) and ConcurrencyThreshold "
        "(requests in flight at which an instance overflows to another). Configurations are immutable: to change one, "
        "create another and call UpdateEndpoint.",
        {
            "EndpointConfigName": "chat-prefix-aware",
            "ProductionVariants": [
                {
                    "VariantName": "main",
                    "ModelName": "llama",
                    "InitialInstanceCount": 2,
                    "RoutingConfig": {
                        "RoutingStrategy": "PREFIX_AWARE",
                        "PrefixAwareRoutingConfig": {"PrefixLength": 4096, "ConcurrencyThreshold": 8},
                    },
                }
            ],
        },
    ),
    "DescribeEndpointConfig": Description(
        _CONFIGS,
        "Read an endpoint configuration",
        "Members are as they were sent.",
        {"EndpointConfigName": "chat-prefix-aware"},
    ),
    "ListEndpointConfigs": Description(
        _CONFIGS, "List endpoint configurations", "Newest first unless SortBy says otherwise.", _LIST
    ),
    "DeleteEndpointConfig": Description(
        _CONFIGS,
        "Delete an endpoint configuration",
        "One that an endpoint uses can be deleted, as on AWS; that endpoint can then no longer be updated.",
        {"EndpointConfigName": "chat-prefix-aware"},
    ),
    "CreateEndpoint": Description(
        _ENDPOINTS,
        "Create an endpoint",
        "Answers at once; the endpoint is Creating, then InService, or Failed with a FailureReason.",
        {"EndpointName": "chat", "EndpointConfigName": "chat-prefix-aware"},
    ),
    "DescribeEndpoint": Description(
        _ENDPOINTS,
        "Read an endpoint's status, weights and instance counts",
        "During an update PendingDeploymentSummary shows what comes; EndpointConfigName changes at the end.",
        {"EndpointName": "chat"},
    ),
    "ListEndpoints": Description(_ENDPOINTS, "List endpoints", "Newest first unless SortBy says otherwise.", _LIST),
    "UpdateEndpoint": Description(
        _ENDPOINTS,
        "Switch an endpoint to another configuration",
        "Requests keep being served throughout. Weights and instance counts become those of the new configuration "
        "unless RetainAllVariantProperties is true.",
        {"EndpointName": "chat", "EndpointConfigName": "chat-prefix-aware"},
    ),
    "UpdateEndpointWeightsAndCapacities": Description(
        _ENDPOINTS,
        "Change weights and instance counts of a running endpoint",
        "The endpoint configuration stays as it is.",
        {
            "EndpointName": "chat",
            "DesiredWeightsAndCapacities": [{"VariantName": "main", "DesiredWeight": 1, "DesiredInstanceCount": 2}],
        },
    ),
    "DeleteEndpoint": Description(
        _ENDPOINTS, "Delete an endpoint", "Its hosts return to their models' pools.", {"EndpointName": "chat"}
    ),
    "AddTags": Description(
        _TAGS,
        "Add or overwrite tags",
        "ResourceArn is that of a model, an endpoint configuration or an endpoint.",
        {"ResourceArn": _ARN, "Tags": [{"Key": "team", "Value": "search"}]},
    ),
    "ListTags": Description(_TAGS, "List the tags of a resource", "Sorted by key.", {"ResourceArn": _ARN}),
    "DeleteTags": Description(
        _TAGS, "Delete tags", "Keys that are not there are passed over.", {"ResourceArn": _ARN, "TagKeys": ["team"]}
    ),
    "RegisterModelHost": Description(
        _HOSTS,
        "Add a running model server to a model's pool",
        "HostName is the host's stable identity, the base URL by default. With TtlSeconds the host leaves the pool "
        "unless it is registered again in time. Not part of AWS's API.",
        {"ModelName": "llama", "BaseUrl": "http://10.0.0.3:8000", "HostName": "gpu-3", "TtlSeconds": 60},
    ),
    "DeregisterModelHost": Description(
        _HOSTS,
        "Take a registered host out of a model's pool",
        "Not part of AWS's API.",
        {"ModelName": "llama", "HostName": "gpu-3"},
    ),
    "ListModelHosts": Description(
        _HOSTS,
        "List the hosts of a model and what each is bound to",
        "Sorted by HostName. Not part of AWS's API.",
        {"ModelName": "llama"},
    ),
    "CreateAccessKey": Description(
        _KEYS,
        "Create a key for a principal",
        "Role is admin, operator, reader or invoke. Endpoints limits the key to endpoint names that match one of these "
        "patterns (* and ?). With a Tenant it sees and invokes only what that tenant's keys made. The limits hold over "
        "all workers. The secret is shown in this answer and never again. Not part of AWS's API.",
        {"Role": "invoke", "Tenant": "search", "Endpoints": ["chat-*"], "RequestsPerSecond": 50},
    ),
    "ListAccessKeys": Description(
        _KEYS, "List keys, without their secrets", "Sorted by AccessKeyId. Not part of AWS's API.", {"MaxResults": 10}
    ),
    "UpdateAccessKey": Description(
        _KEYS,
        "Disable or enable a key",
        "Workers follow within a moment, at the latest after WARMROUTE_RESYNC_SECONDS. Not part of AWS's API.",
        {"AccessKeyId": _KEY, "Enabled": False},
    ),
    "RotateAccessKey": Description(
        _KEYS,
        "Replace a key by a new one that may do the same",
        "The old key stays valid for GraceSeconds (a day by default). Not part of AWS's API.",
        {"AccessKeyId": _KEY, "GraceSeconds": 3600},
    ),
    "DeleteAccessKey": Description(
        _KEYS, "Delete a key", "It is refused from then on. Not part of AWS's API.", {"AccessKeyId": _KEY}
    ),
}

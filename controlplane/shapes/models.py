"""CreateModel, DescribeModel, ListModels, DeleteModel."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from controlplane.shapes import types as t
from controlplane.shapes.base import Accepts, Failure, Items, Refused, Shape, StoredOnly
from controlplane.shapes.common import (
    NO_CONTAINERS,
    OWN_METRICS,
    ListInput,
    TagList,
    VpcConfigShape,
    publish_frequency,
    repeated,
)
from controlplane.shapes.hosts import (
    AUTHORIZATION_VARIABLE,
    HOSTS_VARIABLE,
    PING_PATH_VARIABLE,
    InvalidBaseUrl,
    is_authorization,
    is_ping_path,
    split_hosts,
)

ENVIRONMENT_BYTES_MAX = 32 * 1024
"""All keys and values of all containers of a request together, from the text of botocore's service model."""
OWN_VARIABLES = (HOSTS_VARIABLE, PING_PATH_VARIABLE, AUTHORIZATION_VARIABLE)


class RepositoryAuthConfigShape(Shape):
    RepositoryCredentialsProviderArn: t.RepositoryCredentialsProviderArn


class ImageConfigShape(Shape):
    RepositoryAccessMode: t.RepositoryAccessMode
    RepositoryAuthConfig: RepositoryAuthConfigShape | None = None


class ModelAccessConfigShape(Shape):
    AcceptEula: bool


class InferenceHubAccessConfig(Shape):
    HubContentArn: t.HubContentArn


class S3ModelDataSource(Shape):
    S3Uri: t.S3ModelUri
    S3DataType: t.S3ModelDataType
    CompressionType: t.ModelCompressionType
    ModelAccessConfig: ModelAccessConfigShape | None = None
    HubAccessConfig: InferenceHubAccessConfig | None = None
    ManifestS3Uri: t.S3ModelUri | None = None
    ETag: t.String | None = None
    ManifestEtag: t.String | None = None


class ModelDataSourceShape(Shape):
    S3DataSource: S3ModelDataSource | None = None


class AdditionalModelDataSource(Shape):
    ChannelName: t.AdditionalModelChannelName
    S3DataSource: S3ModelDataSource


class MultiModelConfigShape(Shape):
    ModelCacheSetting: t.ModelCacheSetting | None = None


class MetricsEndpoint(Shape):
    MetricsEndpointPath: t.MetricsEndpointPath
    MetricPublishFrequencyInSeconds: t.MetricPublishFrequencyInSeconds | None = None

    @classmethod
    def rules(cls, sent: Mapping[str, Any]) -> Iterator[Failure]:
        yield from publish_frequency(sent)


class ContainerMetricsConfigShape(Shape):
    MetricsEndpoints: Annotated[tuple[MetricsEndpoint, ...], Items(0, 1)] | None = None


class ContainerDefinition(Shape):
    ContainerHostname: Annotated[t.ContainerHostname | None, NO_CONTAINERS] = None
    Image: Annotated[t.ContainerImage | None, NO_CONTAINERS] = None
    ImageConfig: Annotated[ImageConfigShape | None, NO_CONTAINERS] = None
    Mode: Annotated[t.ContainerMode | None, Accepts(("SingleModel",))] = None
    ModelDataUrl: Annotated[t.Url | None, NO_CONTAINERS] = None
    ModelDataSource: Annotated[ModelDataSourceShape | None, NO_CONTAINERS] = None
    AdditionalModelDataSources: Annotated[
        Annotated[tuple[AdditionalModelDataSource, ...], Items(0, 5)] | None, NO_CONTAINERS
    ] = None
    Environment: Annotated[dict[t.EnvironmentKey, t.EnvironmentValue], Items(0, 100)] | None = None
    """WARMROUTE_HOSTS, WARMROUTE_PING_PATH and WARMROUTE_HOST_AUTHORIZATION have an effect; every other variable is
    only stored."""
    ModelPackageName: Annotated[t.VersionedArnOrName | None, NO_CONTAINERS] = None
    InferenceSpecificationName: Annotated[t.InferenceSpecificationName | None, NO_CONTAINERS] = None
    MultiModelConfig: Annotated[MultiModelConfigShape | None, Refused()] = None
    ContainerMetricsConfig: Annotated[ContainerMetricsConfigShape | None, OWN_METRICS] = None

    @classmethod
    def rules(cls, sent: Mapping[str, Any]) -> Iterator[Failure]:
        environment = sent.get("Environment")
        if not isinstance(environment, Mapping):
            return
        for name, value in environment.items():
            if name.startswith("WARMROUTE_") and isinstance(value, str) and len(value) <= 1024:
                constraint = _own_variable(name, value)
                if constraint:
                    yield Failure(("Environment", name), constraint)


def _own_variable(name: str, value: str) -> str:
    """Return what is wrong with one of warmroute's own variables, or an empty string."""
    if name == HOSTS_VARIABLE:
        try:
            split_hosts(value)
        except InvalidBaseUrl as error:
            return f"Member must be base URLs separated by commas, such as http://10.0.0.1:8000: {error}"
        return ""
    if name == PING_PATH_VARIABLE:
        return "" if is_ping_path(value) else "Member must be a URL path that starts with /, such as /health"
    if name == AUTHORIZATION_VARIABLE:
        wanted = "Member must be the value of an Authorization header, such as Bearer and a key: printable ASCII"
        return "" if is_authorization(value) else wanted
    near = difflib.get_close_matches(name, OWN_VARIABLES, n=1, cutoff=0)[0]
    return f"Unknown variable of warmroute; did you mean {near}?"


class InferenceExecutionConfigShape(Shape):
    Mode: Annotated[t.InferenceExecutionMode, Accepts(("Serial",))]


class CreateModelInput(Shape):
    ModelName: t.ModelName
    PrimaryContainer: ContainerDefinition | None = None
    Containers: Annotated[tuple[ContainerDefinition, ...], Items(0, 15)] | None = None
    """One container is served as PrimaryContainer is; inference pipelines are refused."""
    InferenceExecutionConfig: Annotated[
        InferenceExecutionConfigShape | None, StoredOnly("a model has one container, so there is no order to execute")
    ] = None
    ExecutionRoleArn: Annotated[t.RoleArn | None, NO_CONTAINERS] = None
    Tags: TagList | None = None
    VpcConfig: Annotated[VpcConfigShape | None, NO_CONTAINERS] = None
    EnableNetworkIsolation: Annotated[bool | None, NO_CONTAINERS] = None

    @property
    def environment(self) -> Mapping[str, str]:
        """The Environment of the one container, empty if none was given."""
        container = self.PrimaryContainer or next(iter(self.Containers or ()), None)
        return (container.Environment if container else None) or {}

    @classmethod
    def rules(cls, sent: Mapping[str, Any]) -> Iterator[Failure]:
        primary, containers = sent.get("PrimaryContainer"), sent.get("Containers")
        listed = containers if isinstance(containers, list) else []
        if primary is not None and listed:
            yield Failure(("Containers",), "Member must be absent when PrimaryContainer is given")
        if len(listed) > 1:
            yield Failure(
                ("Containers",),
                "Inference pipelines of more than one container are not supported by this version",
            )
        yield from repeated("Tags", "Key", sent.get("Tags"))
        size = sum(map(_environment_bytes, [primary, *listed]))
        if size > ENVIRONMENT_BYTES_MAX:
            member = "PrimaryContainer" if primary is not None else "Containers"
            yield Failure(
                (member,),
                f"Environment keys and values must have {ENVIRONMENT_BYTES_MAX} bytes or less in all",
            )


def _environment_bytes(container: object) -> int:
    environment = container.get("Environment") if isinstance(container, Mapping) else None
    if not isinstance(environment, Mapping):
        return 0
    return sum(
        len(name.encode(errors="surrogatepass")) + len(value.encode(errors="surrogatepass"))
        for name, value in environment.items()
        if isinstance(value, str)
    )


class CreateModelOutput(Shape):
    ModelArn: t.ModelArn


class DescribeModelInput(Shape):
    ModelName: t.ModelName


class DescribeModelOutput(Shape):
    ModelName: t.ModelName
    PrimaryContainer: ContainerDefinition | None = None
    Containers: Annotated[tuple[ContainerDefinition, ...], Items(0, 15)] | None = None
    InferenceExecutionConfig: InferenceExecutionConfigShape | None = None
    ExecutionRoleArn: t.RoleArn | None = None
    VpcConfig: VpcConfigShape | None = None
    CreationTime: t.Timestamp
    ModelArn: t.ModelArn
    EnableNetworkIsolation: bool | None = None


class ListModelsInput(ListInput): ...


class ModelSummary(Shape):
    ModelName: t.ModelName
    ModelArn: t.ModelArn
    CreationTime: t.Timestamp


class ListModelsOutput(Shape):
    Models: Annotated[tuple[ModelSummary, ...], Items()]
    NextToken: t.NextToken | None = None


class DeleteModelInput(Shape):
    ModelName: t.ModelName

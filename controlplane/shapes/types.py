"""Scalar types of the API under the service model's names, with its lengths, patterns, ranges and sets of values."""

from datetime import datetime
from typing import Annotated

from controlplane.shapes.base import Bounds, Moment, OneOf, Text
from controlplane.shapes.value_sets import INSTANCE_TYPES, TEXT_LANGUAGES

_NAME = r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"
_S3_URL = r"(https|s3)://([^/]+)/?(.*)"

Timestamp = Annotated[datetime, Moment()]

# Names
ModelName = Annotated[str, Text(0, 63, r"[a-zA-Z0-9]([\-a-zA-Z0-9]*[a-zA-Z0-9])?")]
EndpointConfigName = Annotated[str, Text(0, 63, _NAME)]
EndpointName = Annotated[str, Text(0, 63, _NAME)]
VariantName = Annotated[str, Text(0, 63, _NAME)]
ContainerHostname = Annotated[str, Text(0, 63, _NAME)]
InferenceSpecificationName = Annotated[str, Text(1, 63, _NAME)]
AlarmName = Annotated[str, Text(1, 255, r"(?!\s*$).+")]
TagKey = Annotated[str, Text(1, 128, r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)")]
TagValue = Annotated[str, Text(0, 256, r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)")]
String = Annotated[str, Text()]

# ARNs and identifiers of AWS
RoleArn = Annotated[str, Text(20, 2048, r"arn:aws[a-z\-]*:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+")]
ResourceArn = Annotated[str, Text(0, 256, r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]*:[0-9]{12}:.+")]
ModelArn = Annotated[str, Text(20, 2048, r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:model/.*")]
EndpointConfigArn = Annotated[
    str, Text(20, 2048, r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:endpoint-config/.*")
]
EndpointArn = Annotated[str, Text(20, 2048, r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:endpoint/.*")]
HubContentArn = Annotated[str, Text(0, 255, ".*")]
RepositoryCredentialsProviderArn = Annotated[str, Text(1, 2048, ".*")]
SnsTopicArn = Annotated[str, Text(0, 2048, r"arn:aws[a-z\-]*:sns:[a-z0-9\-]*:[0-9]{12}:[a-zA-Z0-9_.-]+")]
MlReservationArn = Annotated[str, Text(20, 258, r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:[a-z0-9\-]{1,14}/.*")]
VersionedArnOrName = Annotated[
    str,
    Text(
        1,
        176,
        r"(arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:[a-z\-]*\/)?"
        r"([a-zA-Z0-9]([a-zA-Z0-9-]){0,62})(?<!-)(\/[0-9]{1,9})?",
    ),
]
KmsKeyId = Annotated[str, Text(0, 2048, r"[a-zA-Z0-9:/_-]*")]
SecurityGroupId = Annotated[str, Text(0, 32, r"[-0-9a-zA-Z]+")]
SubnetId = Annotated[str, Text(0, 32, r"[-0-9a-zA-Z]+")]

# Containers
ContainerImage = Annotated[str, Text(0, 255, r"[\S]+")]
RepositoryAccessMode = Annotated[str, OneOf(("Platform", "Vpc"))]
ContainerMode = Annotated[str, OneOf(("SingleModel", "MultiModel"))]
ModelCacheSetting = Annotated[str, OneOf(("Enabled", "Disabled"))]
Url = Annotated[str, Text(0, 1024, _S3_URL)]
S3ModelUri = Annotated[str, Text(0, 1024, _S3_URL)]
S3ModelDataType = Annotated[str, OneOf(("S3Prefix", "S3Object"))]
ModelCompressionType = Annotated[str, OneOf(("None", "Gzip"))]
AdditionalModelChannelName = Annotated[str, Text(1, 64, r"[A-Za-z0-9\.\-_]+")]
EnvironmentKey = Annotated[str, Text(0, 1024, r"[a-zA-Z_][a-zA-Z0-9_]*")]
EnvironmentValue = Annotated[str, Text(0, 1024, r"[\S\s]*")]
MetricsEndpointPath = Annotated[str, Text(0, 256, r"/(?!.*\.\.)[a-zA-Z0-9/_.\-]+")]
MetricPublishFrequencyInSeconds = Annotated[int, Bounds()]
InferenceExecutionMode = Annotated[str, OneOf(("Serial", "Direct"))]

# Variants
InitialTaskCount = Annotated[int, Bounds(1)]
TaskCount = Annotated[int, Bounds(0)]
VariantWeight = Annotated[float, Bounds(0)]
InstanceType = Annotated[str, OneOf(INSTANCE_TYPES)]
InstancePoolPriority = Annotated[int, Bounds(1, 5)]
VariantInstanceProvisionTimeoutInSeconds = Annotated[int, Bounds(300, 3600)]
VolumeSizeInGB = Annotated[int, Bounds(1, 512)]
ModelDataDownloadTimeoutInSeconds = Annotated[int, Bounds(60, 3600)]
ContainerStartupHealthCheckTimeoutInSeconds = Annotated[int, Bounds(60, 3600)]
AcceleratorType = Annotated[
    str,
    OneOf(
        ("ml.eia1.medium", "ml.eia1.large", "ml.eia1.xlarge", "ml.eia2.medium", "ml.eia2.large", "ml.eia2.xlarge"),
    ),
]
InferenceAmiVersion = Annotated[
    str,
    OneOf(
        (
            "al2-ami-sagemaker-inference-gpu-2",
            "al2-ami-sagemaker-inference-gpu-2-1",
            "al2-ami-sagemaker-inference-gpu-3-1",
            "al2-ami-sagemaker-inference-neuron-2",
            "al2023-ami-sagemaker-inference-gpu-4-1",
        )
    ),
]
RoutingStrategy = Annotated[str, OneOf(("LEAST_OUTSTANDING_REQUESTS", "RANDOM", "PREFIX_AWARE", "KV_AWARE"))]
PrefixLength = Annotated[int, Bounds(1024, 65536)]
ConcurrencyThreshold = Annotated[int, Bounds(1, 1024)]
ServerlessMemorySizeInMB = Annotated[int, Bounds(1024, 6144)]
ServerlessMaxConcurrency = Annotated[int, Bounds(1, 200)]
ServerlessProvisionedConcurrency = Annotated[int, Bounds(1, 200)]
ManagedInstanceScalingStatus = Annotated[str, OneOf(("ENABLED", "DISABLED"))]
ManagedInstanceScalingMinInstanceCount = Annotated[int, Bounds(0)]
ManagedInstanceScalingMaxInstanceCount = Annotated[int, Bounds(1)]
ScaleInStrategy = Annotated[str, OneOf(("IDLE_RELEASE", "CONSOLIDATION"))]
ScaleInMaximumStepSize = Annotated[int, Bounds(1, 100)]
ScaleInCooldownInMinutes = Annotated[int, Bounds(5, 1440)]
CapacityReservationPreference = Annotated[str, OneOf(("capacity-reservations-only",))]
AcceleratorPartitionType = Annotated[str, Text(0, 32, r"mig-[0-9]+g\.[0-9]+gb([+-][a-z0-9.]+)*")]

# Capture, asynchronous inference, explanations, traffic between regions
DestinationS3Uri = Annotated[str, Text(0, 512, r"(https|s3)://([^/])/?(.*)")]
SamplingPercentage = Annotated[int, Bounds(0, 100)]
CaptureMode = Annotated[str, OneOf(("Input", "Output", "InputAndOutput"))]
_CONTENT_TYPE = r"[a-zA-Z0-9](-*[a-zA-Z0-9])*\/[a-zA-Z0-9](-*[a-zA-Z0-9.])*"
CsvContentType = Annotated[str, Text(1, 256, _CONTENT_TYPE)]
JsonContentType = Annotated[str, Text(1, 256, _CONTENT_TYPE)]
MaxConcurrentInvocationsPerInstance = Annotated[int, Bounds(1, 1000)]
AsyncNotificationTopicType = Annotated[str, OneOf(("SUCCESS_NOTIFICATION_TOPIC", "ERROR_NOTIFICATION_TOPIC"))]
ClarifyText = Annotated[str, Text(1, 64, ".*")]
ClarifyMaxRecordCount = Annotated[int, Bounds(1)]
ClarifyMaxPayloadInMB = Annotated[int, Bounds(1, 25)]
ClarifyIndex = Annotated[int, Bounds(0)]
ClarifyFeatureType = Annotated[str, OneOf(("numerical", "categorical", "text"))]
ClarifyMimeType = Annotated[str, Text(0, 255, r"[a-zA-Z0-9](-*[a-zA-Z0-9])*\/[a-zA-Z0-9](-*[a-zA-Z0-9+.])*")]
ClarifyShapBaseline = Annotated[str, Text(1, 4096, r"[\s\S]+")]
ClarifyShapNumberOfSamples = Annotated[int, Bounds(1)]
ClarifyShapSeed = Annotated[int, Bounds()]
ClarifyTextLanguage = Annotated[str, OneOf(TEXT_LANGUAGES)]
ClarifyTextGranularity = Annotated[str, OneOf(("token", "sentence", "paragraph"))]
CrossRegionMaxInvocationsPerSecondPerInstance = Annotated[int, Bounds(1, 10000)]
CrossRegionPercentPerEndpoint = Annotated[int, Bounds(1, 100)]

# Deployments
TrafficRoutingConfigType = Annotated[str, OneOf(("ALL_AT_ONCE", "CANARY", "LINEAR"))]
WaitIntervalInSeconds = Annotated[int, Bounds(0, 3600)]
CapacitySizeType = Annotated[str, OneOf(("INSTANCE_COUNT", "CAPACITY_PERCENT"))]
CapacitySizeValue = Annotated[int, Bounds(1)]
TerminationWaitInSeconds = Annotated[int, Bounds(0, 3600)]
MaximumExecutionTimeoutInSeconds = Annotated[int, Bounds(600, 28800)]
VariantPropertyType = Annotated[str, OneOf(("DesiredInstanceCount", "DesiredWeight", "DataCaptureConfig"))]

# Lists and results
SortKey = Annotated[str, OneOf(("Name", "CreationTime"))]
EndpointSortKey = Annotated[str, OneOf(("Name", "CreationTime", "Status"))]
OrderKey = Annotated[str, OneOf(("Ascending", "Descending"))]
NextToken = Annotated[str, Text(0, 8192, ".*")]
MaxResults = Annotated[int, Bounds(1, 100)]
ListTagsMaxResults = Annotated[int, Bounds(50)]
NameContains = Annotated[str, Text(0, 63, "[a-zA-Z0-9-]+")]
EndpointStatus = Annotated[
    str,
    OneOf(
        (
            "OutOfService",
            "Creating",
            "Updating",
            "SystemUpdating",
            "RollingBack",
            "InService",
            "Deleting",
            "Failed",
            "UpdateRollbackFailed",
        )
    ),
]
VariantStatus = Annotated[str, OneOf(("Creating", "Updating", "Deleting", "ActivatingTraffic", "Baking"))]
VariantStatusMessage = Annotated[str, Text(0, 1024)]
FailureReason = Annotated[str, Text(0, 1024)]

# Ours: model hosts
HostName = Annotated[str, Text(1, 1024, r"[a-zA-Z0-9][a-zA-Z0-9._~%+:/\[\]\-]*")]
BaseUrl = Annotated[str, Text(1, 1024, r"[\x21-\x7e]+")]
TtlSeconds = Annotated[int, Bounds(1, 86400)]
HostSource = Annotated[str, OneOf(("Environment", "Registration"))]

# Keys of principals, an extension of ours
AccessKeyId = Annotated[str, Text(19, 20, r"AKWR[A-Z2-7]{16}|sk-[a-z2-7]{16}")]
KeyKind = Annotated[str, OneOf(("access-key", "api-key"))]
KeyRole = Annotated[str, OneOf(("admin", "operator", "reader", "invoke"))]
Tenant = Annotated[str, Text(1, 63, _NAME)]
EndpointPattern = Annotated[str, Text(1, 63, r"[a-zA-Z0-9*?\-]+")]
KeyDescription = Annotated[str, Text(0, 256, r"[^\p{C}]*")]
RequestsPerSecond = Annotated[float, Bounds(0, 1_000_000)]
ConcurrentRequests = Annotated[int, Bounds(1, 1_000_000)]
GraceSeconds = Annotated[int, Bounds(0, 30 * 86400)]

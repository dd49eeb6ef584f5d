"""Structures of AWS features that this version refuses by name. They stand here so that every member is known."""

from typing import Annotated

from controlplane.shapes import types as t
from controlplane.shapes.base import Items, Shape


class CaptureOption(Shape):
    CaptureMode: t.CaptureMode


class CaptureContentTypeHeaderShape(Shape):
    CsvContentTypes: Annotated[tuple[t.CsvContentType, ...], Items(1, 10)] | None = None
    JsonContentTypes: Annotated[tuple[t.JsonContentType, ...], Items(1, 10)] | None = None


class DataCaptureConfigShape(Shape):
    EnableCapture: bool | None = None
    InitialSamplingPercentage: t.SamplingPercentage
    DestinationS3Uri: t.DestinationS3Uri
    KmsKeyId: t.KmsKeyId | None = None
    CaptureOptions: Annotated[tuple[CaptureOption, ...], Items(1, 32)]
    CaptureContentTypeHeader: CaptureContentTypeHeaderShape | None = None


class AsyncInferenceClientConfig(Shape):
    MaxConcurrentInvocationsPerInstance: t.MaxConcurrentInvocationsPerInstance | None = None


class AsyncInferenceNotificationConfig(Shape):
    SuccessTopic: t.SnsTopicArn | None = None
    ErrorTopic: t.SnsTopicArn | None = None
    IncludeInferenceResponseIn: Annotated[tuple[t.AsyncNotificationTopicType, ...], Items(0, 2)] | None = None


class AsyncInferenceOutputConfig(Shape):
    KmsKeyId: t.KmsKeyId | None = None
    S3OutputPath: t.DestinationS3Uri | None = None
    NotificationConfig: AsyncInferenceNotificationConfig | None = None
    S3FailurePath: t.DestinationS3Uri | None = None


class AsyncInferenceConfigShape(Shape):
    ClientConfig: AsyncInferenceClientConfig | None = None
    OutputConfig: AsyncInferenceOutputConfig


class ClarifyInferenceConfig(Shape):
    FeaturesAttribute: t.ClarifyText | None = None
    ContentTemplate: t.ClarifyText | None = None
    MaxRecordCount: t.ClarifyMaxRecordCount | None = None
    MaxPayloadInMB: t.ClarifyMaxPayloadInMB | None = None
    ProbabilityIndex: t.ClarifyIndex | None = None
    LabelIndex: t.ClarifyIndex | None = None
    ProbabilityAttribute: t.ClarifyText | None = None
    LabelAttribute: t.ClarifyText | None = None
    LabelHeaders: Annotated[tuple[t.ClarifyText, ...], Items(1, 16)] | None = None
    FeatureHeaders: Annotated[tuple[t.ClarifyText, ...], Items(1, 256)] | None = None
    FeatureTypes: Annotated[tuple[t.ClarifyFeatureType, ...], Items(1, 256)] | None = None


class ClarifyShapBaselineConfig(Shape):
    MimeType: t.ClarifyMimeType | None = None
    ShapBaseline: t.ClarifyShapBaseline | None = None
    ShapBaselineUri: t.Url | None = None


class ClarifyTextConfig(Shape):
    Language: t.ClarifyTextLanguage
    Granularity: t.ClarifyTextGranularity


class ClarifyShapConfig(Shape):
    ShapBaselineConfig: ClarifyShapBaselineConfig
    NumberOfSamples: t.ClarifyShapNumberOfSamples | None = None
    UseLogit: bool | None = None
    Seed: t.ClarifyShapSeed | None = None
    TextConfig: ClarifyTextConfig | None = None


class ClarifyExplainerConfigShape(Shape):
    EnableExplanations: t.ClarifyText | None = None
    InferenceConfig: ClarifyInferenceConfig | None = None
    ShapConfig: ClarifyShapConfig


class ExplainerConfigShape(Shape):
    ClarifyExplainerConfig: ClarifyExplainerConfigShape | None = None


class InstancePool(Shape):
    InstanceType: t.InstanceType
    ModelNameOverride: t.ModelName | None = None
    Priority: t.InstancePoolPriority


class CoreDumpConfigShape(Shape):
    DestinationS3Uri: t.DestinationS3Uri
    KmsKeyId: t.KmsKeyId | None = None


class ServerlessConfigShape(Shape):
    MemorySizeInMB: t.ServerlessMemorySizeInMB
    MaxConcurrency: t.ServerlessMaxConcurrency
    ProvisionedConcurrency: t.ServerlessProvisionedConcurrency | None = None


class ServerlessUpdateConfigShape(Shape):
    MaxConcurrency: t.ServerlessMaxConcurrency | None = None
    ProvisionedConcurrency: t.ServerlessProvisionedConcurrency | None = None


class ScaleInPolicyShape(Shape):
    Strategy: t.ScaleInStrategy
    MaximumStepSize: t.ScaleInMaximumStepSize | None = None
    CooldownInMinutes: t.ScaleInCooldownInMinutes | None = None


class ManagedInstanceScalingShape(Shape):
    Status: t.ManagedInstanceScalingStatus | None = None
    MinInstanceCount: t.ManagedInstanceScalingMinInstanceCount | None = None
    MaxInstanceCount: t.ManagedInstanceScalingMaxInstanceCount | None = None
    ScaleInPolicy: ScaleInPolicyShape | None = None


class CapacityReservationConfigShape(Shape):
    CapacityReservationPreference: t.CapacityReservationPreference | None = None
    MlReservationArn: t.MlReservationArn | None = None


class AcceleratorPartitionLayout(Shape):
    AcceleratorPartitionTypes: Annotated[tuple[t.AcceleratorPartitionType, ...], Items(0, 32)] | None = None

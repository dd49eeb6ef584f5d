from controlplane.shapes.value_sets import INSTANCE_TYPES, TEXT_LANGUAGES
from tests.controlplane.shapes.service_model import aws_shape


def test_the_sets_are_those_of_the_service_model() -> None:
    assert list(INSTANCE_TYPES) == aws_shape("ProductionVariantInstanceType")["enum"]
    assert list(TEXT_LANGUAGES) == aws_shape("ClarifyTextLanguage")["enum"]

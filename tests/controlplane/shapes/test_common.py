import re

import pytest

from controlplane.shapes.common import PUBLISH_FREQUENCIES, publish_frequency, repeated
from tests.controlplane.shapes.service_model import aws_shape


def test_each_later_item_with_the_same_name_is_a_failure() -> None:
    items = [{"Key": "a"}, {"Key": "b"}, {"Key": "a"}, {"Key": "A"}, {"Key": "a"}]
    assert [failure.path for failure in repeated("Tags", "Key", items)] == [("Tags", 2, "Key"), ("Tags", 4, "Key")]


WRONG = [None, "aa", {"Key": "a"}, [None, None], [{"Key": 1}, {"Key": 1}], [{}, {}], [[], []]]


@pytest.mark.parametrize("items", WRONG)
def test_values_of_wrong_type_are_passed_over(items: object) -> None:
    assert list(repeated("Tags", "Key", items)) == []


def test_publish_frequencies_are_those_of_the_service_models_text() -> None:
    text = aws_shape("MetricsConfig")["members"]["MetricPublishFrequencyInSeconds"]["documentation"]
    valid = re.sub("<[^>]*>", "", text).split("Valid values: ")[1].split(".")[0]
    assert valid == ", ".join(map(str, PUBLISH_FREQUENCIES))
    assert all(not list(publish_frequency({"MetricPublishFrequencyInSeconds": n})) for n in PUBLISH_FREQUENCIES)
    assert list(publish_frequency({"MetricPublishFrequencyInSeconds": 61}))

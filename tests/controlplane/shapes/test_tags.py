from typing import Any

import pytest

from controlplane.errors import ServiceError, ValidationException
from controlplane.shapes.parse import parse
from controlplane.shapes.tags import AddTagsInput, DeleteTagsInput, DeleteTagsOutput, ListTagsInput

ARN = "arn:aws:sagemaker:us-east-1:000000000000:endpoint/e"


@pytest.mark.parametrize("key", ["k", "caf\u00e9 x", "a:b/c=d+e-f@g_h.i", "\u30ad\u30fc", "\u0661"])
def test_keys_may_be_in_any_script(key: str) -> None:
    sent = {"ResourceArn": ARN, "Tags": [{"Key": key, "Value": ""}]}
    assert parse(AddTagsInput, sent).to_wire() == sent


@pytest.mark.parametrize(
    "tag",
    [
        {"Key": "k\0", "Value": "v"},
        {"Key": "k", "Value": "\ud83d"},
        {"Key": "", "Value": "v"},
        {"Key": "k\n", "Value": "v"},
        {"Key": "k", "Value": "v" * 257},
        {"Key": "k" * 129, "Value": "v"},
        {"Key": "k#", "Value": "v"},
        {"Key": "k"},
        {"Key": "aws:k", "Value": "v"},
    ],
)
def test_tags_that_are_refused(tag: dict[str, str]) -> None:
    with pytest.raises(ValidationException, match=r"tags\.1\.member"):
        parse(AddTagsInput, {"ResourceArn": ARN, "Tags": [tag]})


@pytest.mark.parametrize("arn", ["", "x", "arn:aws:s3:::b", f"{ARN}\n", "arn:aws:sagemaker:r:1:x"])
def test_what_is_no_resource_arn(arn: str) -> None:
    with pytest.raises(ValidationException, match="resourceArn"):
        parse(ListTagsInput, {"ResourceArn": arn})


@pytest.mark.parametrize("keys", [[], ["k"] * 51, [None], ["a\0"], "k"])
def test_lists_of_keys_that_are_refused(keys: Any) -> None:
    with pytest.raises(ServiceError, match="tagKeys"):
        parse(DeleteTagsInput, {"ResourceArn": ARN, "TagKeys": keys})


def test_pages_of_tags() -> None:
    assert parse(ListTagsInput, {"ResourceArn": ARN}).MaxResults == 50
    with pytest.raises(ValidationException, match="greater than or equal to 50"):
        parse(ListTagsInput, {"ResourceArn": ARN, "MaxResults": 49})


def test_deleting_answers_with_an_empty_structure() -> None:
    assert DeleteTagsOutput().to_wire() == {}

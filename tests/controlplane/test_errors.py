import pytest

from controlplane import errors
from controlplane.errors import ServiceError, ValidationException

ERRORS = ServiceError.__subclasses__()
MODELLED = {"ResourceInUse", "ResourceNotFound", "ResourceLimitExceeded", "ConflictException"}


def test_the_code_is_the_class_name() -> None:
    assert {error.__name__ for error in ERRORS} == {error.code for error in ERRORS}


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("ValidationException", 400),
        ("SerializationException", 400),
        ("AccessDeniedException", 403),
        ("UnknownOperationException", 404),
        ("RequestTimeoutException", 408),
        ("RequestEntityTooLargeException", 413),
        ("InternalFailure", 500),
        ("ServiceUnavailable", 503),
        *((name, 400) for name in sorted(MODELLED)),
    ],
)
def test_status(code: str, status: int) -> None:
    assert getattr(errors, code).status == status


def test_modelled_errors_are_botocores() -> None:
    from tests.controlplane.shapes.service_model import aws_shape

    assert all(aws_shape(name)["exception"] for name in MODELLED)


def test_the_log_detail_is_apart_from_the_message() -> None:
    error = errors.InternalFailure("for the caller", log="for the operator")
    assert str(error) == error.message == "for the caller"
    assert error.log == "for the operator"


ARN = "arn:aws:sagemaker:us-east-1:000000000000:endpoint/e1"


@pytest.mark.parametrize(
    ("error", "start"),
    [
        (errors.not_found_endpoint(ARN), f'Could not find endpoint "{ARN}".'),
        (errors.not_found_endpoint_config(ARN), f'Could not find endpoint configuration "{ARN}".'),
        (errors.not_found_model(ARN), f'Could not find model "{ARN}".'),
        (errors.not_found_model_host("h", ARN), 'Could not find model host "h"'),
        (errors.not_found_resource(ARN), f'Could not find resource "{ARN}".'),
        (errors.existing_endpoint(ARN), f'Cannot create already existing endpoint "{ARN}".'),
        (errors.existing_model(ARN), f'Cannot create already existing model "{ARN}".'),
        (errors.endpoint_in_progress(ARN), f'Cannot update in-progress endpoint "{ARN}".'),
        (errors.endpoint_failed(ARN), f'Cannot update failed endpoint "{ARN}".'),
        (errors.repeated_variant("v"), 'The variant name "v" was non-unique within the request.'),
        (
            errors.unknown_variants(["a", "b"], "c1"),
            'The variant name(s) "a", "b" is/are not present within endpoint configuration "c1".',
        ),
    ],
)
def test_texts_that_tools_match(error: ServiceError, start: str) -> None:
    assert isinstance(error, ValidationException)
    assert error.message.startswith(start)


def test_an_existing_config_says_how_to_change_it() -> None:
    message = errors.existing_endpoint_config(ARN).message
    assert message.startswith(f'Cannot create already existing endpoint configuration "{ARN}".')
    assert "immutable" in message
    assert "UpdateEndpoint" in message

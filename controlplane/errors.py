"""Errors of the control-plane API. The class name is the name on the wire; the texts are those that AWS sends.

Most failures are ValidationException, an unknown name included: boto3's waiters and other AWS tools rely on that code
and on the opening words of these messages. Sources: AWS API reference (Common Errors) and texts seen in public issues.
"""

from collections.abc import Sequence
from typing import ClassVar


class ServiceError(Exception):
    """A refusal or failure. ``message`` goes to the caller, ``log`` to the operator's log only."""

    status: ClassVar[int] = 400
    code: ClassVar[str] = "ServiceError"

    def __init_subclass__(cls) -> None:
        cls.code = cls.__name__

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.log = log


class ValidationException(ServiceError): ...


class SerializationException(ServiceError): ...


class ResourceInUse(ServiceError): ...


class ResourceNotFound(ServiceError): ...


class ResourceLimitExceeded(ServiceError): ...


class ConflictException(ServiceError): ...


class AccessDeniedException(ServiceError):
    status = 403


class UnknownOperationException(ServiceError):
    status = 404


class RequestTimeoutException(ServiceError):
    status = 408


class RequestEntityTooLargeException(ServiceError):
    status = 413


class InternalFailure(ServiceError):
    status = 500


class ServiceUnavailable(ServiceError):
    status = 503


def not_found_endpoint(arn: str) -> ValidationException:
    return ValidationException(f'Could not find endpoint "{arn}".')


def not_found_endpoint_config(arn: str) -> ValidationException:
    return ValidationException(f'Could not find endpoint configuration "{arn}".')


def not_found_model(arn: str) -> ValidationException:
    return ValidationException(f'Could not find model "{arn}".')


def not_found_model_host(host_name: str, model_arn: str) -> ValidationException:
    return ValidationException(f'Could not find model host "{host_name}" registered for model "{model_arn}".')


def not_found_access_key(key_id: str) -> ValidationException:
    return ValidationException(f'Could not find access key "{key_id}".')


def not_found_resource(arn: str) -> ValidationException:
    """For the tag operations: the ARN is well formed but names nothing that exists here."""
    return ValidationException(f'Could not find resource "{arn}".')


def existing_endpoint(arn: str) -> ValidationException:
    return ValidationException(
        f'Cannot create already existing endpoint "{arn}". Endpoint names are unique regardless of case.'
    )


def existing_endpoint_config(arn: str) -> ValidationException:
    return ValidationException(
        f'Cannot create already existing endpoint configuration "{arn}". Endpoint configurations are immutable: '
        "create one under another name, then call UpdateEndpoint with that name; running requests are not interrupted."
    )


def existing_model(arn: str) -> ValidationException:
    return ValidationException(
        f'Cannot create already existing model "{arn}". Models are immutable: create one under another name, then '
        "switch to it with a new endpoint configuration and UpdateEndpoint."
    )


def endpoint_in_progress(arn: str) -> ValidationException:
    """Update, delete or re-weight of an endpoint that is being created or changed."""
    return ValidationException(f'Cannot update in-progress endpoint "{arn}".')


def endpoint_failed(arn: str) -> ValidationException:
    """Anything but DeleteEndpoint on a Failed endpoint."""
    return ValidationException(
        f'Cannot update failed endpoint "{arn}". DeleteEndpoint is the only operation that a Failed endpoint allows.'
    )


def unknown_variants(variant_names: Sequence[str], endpoint_config_name: str) -> ValidationException:
    names = ", ".join(f'"{name}"' for name in variant_names)
    return ValidationException(
        f'The variant name(s) {names} is/are not present within endpoint configuration "{endpoint_config_name}".'
    )


def repeated_variant(variant_name: str) -> ValidationException:
    return ValidationException(f'The variant name "{variant_name}" was non-unique within the request.')

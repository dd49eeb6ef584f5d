"""What can go wrong, once each, and how either API says it.

Native: SageMaker Runtime's shapes and statuses (botocore's service model; AWS common errors). OpenAI: the envelope
``{"error": {message, type, param, code}}`` with SageMaker's own codes where AWS's answers were measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Fault:
    """One kind of failure. ``code`` and ``status`` are the native API's."""

    code: str
    status: int
    chat_status: int
    chat_type: str
    chat_code: str
    retry: bool = True
    """False: the host may be running the request, so clients must not send it again by themselves."""


VALIDATION = Fault("ValidationError", 400, 400, "invalid_request_error", "validation_error")
MODEL_UNKNOWN = Fault("ValidationError", 400, 404, "invalid_request_error", "model_not_found")
MALFORMED = Fault("MalformedHttpRequestException", 400, 400, "invalid_request_error", "malformed_request")
NOT_FOUND = Fault("UnknownOperationException", 404, 404, "invalid_request_error", "not_found")
METHOD = Fault("UnknownOperationException", 405, 405, "invalid_request_error", "method_not_allowed")
SLOW_REQUEST = Fault("RequestTimeoutException", 408, 408, "invalid_request_error", "request_timeout")
TOO_LARGE = Fault("RequestEntityTooLargeException", 413, 413, "invalid_request_error", "request_too_large")
HEAD_TOO_LARGE = Fault("MalformedHttpRequestException", 431, 431, "invalid_request_error", "head_too_large")
MODEL = Fault("ModelError", 424, 502, "server_error", "model_error", retry=False)
MODEL_TIMEOUT = Fault("ModelError", 424, 504, "server_error", "model_timeout", retry=False)
UNAVAILABLE = Fault("ServiceUnavailable", 503, 503, "server_error", "service_unavailable")
INTERNAL = Fault("InternalFailure", 500, 500, "server_error", "internal_error")

# Who one is (401 to OpenAI's clients, where AWS has only 403), and what one may.
MISSING_TOKEN = Fault(
    "MissingAuthenticationTokenException", 403, 401, "invalid_request_error", "missing_authentication_token"
)
INCOMPLETE_SIGNATURE = Fault("IncompleteSignatureException", 403, 401, "invalid_request_error", "invalid_api_key")
UNRECOGNIZED_CLIENT = Fault("UnrecognizedClientException", 403, 401, "invalid_request_error", "invalid_api_key")
INVALID_SIGNATURE = Fault("InvalidSignatureException", 403, 403, "invalid_request_error", "invalid_signature")
EXPIRED_TOKEN = Fault("ExpiredTokenException", 403, 403, "invalid_request_error", "expired_token")
FORBIDDEN = Fault("AccessDeniedException", 403, 403, "invalid_request_error", "access_denied")
THROTTLED = Fault("ThrottlingException", 429, 429, "requests", "rate_limit_exceeded")

BY_CODE = {
    fault.code: fault
    for fault in (MISSING_TOKEN, INCOMPLETE_SIGNATURE, UNRECOGNIZED_CLIENT, INVALID_SIGNATURE, EXPIRED_TOKEN,
                  FORBIDDEN, THROTTLED)
}  # fmt: skip
"""Of callers that are turned away, by the code that ``access`` names."""

BY_STATUS = {fault.status: fault for fault in (MALFORMED, SLOW_REQUEST, TOO_LARGE, HEAD_TOO_LARGE, UNAVAILABLE)}
"""For refusals of the wire, which knows only statuses."""

Answer = tuple[int, bytes, bytes]
"""Status, complete header lines, body."""


class Refused(Exception):
    """A request that is answered without asking a host."""

    def __init__(self, fault: Fault, message: str, param: str | None = None, headers: bytes = b"") -> None:
        """``headers``: complete lines beside the fault's own."""
        super().__init__(message)
        self.fault = fault
        self.message = message
        self.param = param
        self.headers = headers


def native(fault: Fault, message: str, **members: object) -> Answer:
    """Return an error of SageMaker Runtime; ``members`` are the shape's others. The code goes into the header too."""
    headers = b"content-type: application/json\r\nx-amzn-errortype: %b\r\n" % fault.code.encode()
    if fault is UNAVAILABLE:
        headers += b"retry-after: 1\r\n"
    return fault.status, headers, _encode({"Message": _plain(message), **members})


def openai(fault: Fault, message: str, param: str | None = None) -> Answer:
    """Return an error in OpenAI's envelope, with the header by which OpenAI's clients know whether to try again."""
    headers = b"content-type: application/json\r\n"
    if fault.chat_status == 401:
        headers += b"www-authenticate: Bearer\r\n"
    if fault is UNAVAILABLE:
        headers += b"retry-after: 1\r\n"
    elif not fault.retry:
        headers += b"x-should-retry: false\r\n"
    return fault.chat_status, headers, openai_body(fault, message, param)


def openai_body(fault: Fault, message: str, param: str | None = None) -> bytes:
    error = {"message": _plain(message), "type": fault.chat_type, "param": param, "code": fault.chat_code}
    return _encode({"error": error})


def ids(request_id: bytes) -> bytes:
    """Return the header lines by which an answer is found in the log."""
    return b"x-amzn-RequestId: %b\r\nx-request-id: %b\r\n" % (request_id, request_id)


def _plain(message: str) -> str:
    """A message may quote what a client sent, half characters included."""
    return message.encode("utf-8", "replace").decode()


TIMED_OUT = (
    "Your invocation timed out while waiting for a response from container primary. Review the latency metrics for "
    "each container in Amazon CloudWatch, resolve the issue, and try again."
)
"""AWS's words; clients match on them."""


def no_variant(endpoint: str, variants: Sequence[str], target: str | None) -> str:
    """Return why no variant takes a request."""
    if target is not None:
        return f"Variant {target} of endpoint {endpoint} not found; its variants are {', '.join(variants)}."
    return f"All variants of endpoint {endpoint} have weight 0; name one with TargetVariant."

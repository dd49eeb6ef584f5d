"""Why a caller is turned away: one table of AWS's codes, statuses and words.

Sources: "Common errors" of the AWS API reference; texts as AWS's services send them. Nothing a caller sent is repeated
but key ids, dates and scopes: a text that quoted a credential would carry it into logs.
"""

from enum import Enum


class Denial(Enum):
    """``code`` and ``status`` of an error. Values: (code, status)."""

    MISSING = ("MissingAuthenticationTokenException", 403)
    INCOMPLETE = ("IncompleteSignatureException", 403)
    SIGNATURE = ("InvalidSignatureException", 403)
    UNRECOGNIZED = ("UnrecognizedClientException", 403)
    EXPIRED = ("ExpiredTokenException", 403)
    FORBIDDEN = ("AccessDeniedException", 403)
    THROTTLED = ("ThrottlingException", 429)

    @property
    def code(self) -> str:
        return self.value[0]

    @property
    def status(self) -> int:
        return self.value[1]


class Refusal(Exception):
    """A caller that is turned away; the message is for the caller."""

    def __init__(self, denial: Denial, message: str) -> None:
        super().__init__(message)
        self.denial = denial
        self.message = message


MISSING = "Missing Authentication Token"
UNRECOGNIZED = "The security token included in the request is invalid."
MISMATCH = (
    "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key "
    "and signing method. Consult the service documentation for details."
)


def mismatch() -> Refusal:
    return Refusal(Denial.SIGNATURE, MISMATCH)


def unrecognized() -> Refusal:
    """An unknown key, and a known one that is disabled: a stranger cannot tell which."""
    return Refusal(Denial.UNRECOGNIZED, UNRECOGNIZED)


def forbidden(principal_id: str, operation: str, resource: str) -> Refusal:
    """``resource``: the ARN or the name of what the caller may not touch."""
    said = f"User: {principal_id} is not authorized to perform: sagemaker:{operation} on resource: {resource}"
    return Refusal(Denial.FORBIDDEN, said)

"""InvokeEndpoint and InvokeEndpointWithResponseStream, as SageMaker Runtime speaks them."""

from collections.abc import Sequence

import msgspec

from dataplane.api import event_stream, faults, headers
from dataplane.api.call import Call, Context, Head
from dataplane.api.faults import VALIDATION, Answer, Fault, Refused
from dataplane.wire.http import AnswerHead, Request

MESSAGE_CHARACTERS_MAX = 2_048
"""Of Message and OriginalMessage (service model)."""
PARTS_MAX = 256
"""Of what came together. More are tiny, and their frames many times their bytes: what is buffered has its bound."""

_TYPE = b"content-type"
_ACCEPT = b"accept"
_STREAM_ACCEPT = b"x-amzn-sagemaker-accept"
_ATTRIBUTES = b"x-amzn-sagemaker-custom-attributes"
_INFERENCE_ID = b"x-amzn-sagemaker-inference-id"
_TARGET_VARIANT = b"x-amzn-sagemaker-target-variant"
_PREFIX_ID = b"x-amzn-sagemaker-prefix-aware-id"
_COMPONENT = b"x-amzn-sagemaker-inference-component"

_CHECKS: dict[bytes, tuple[str, headers.Check | None]] = {
    _TYPE: ("contentType", headers.text),
    _ACCEPT: ("accept", headers.text),
    _STREAM_ACCEPT: ("accept", headers.text),
    _ATTRIBUTES: ("customAttributes", headers.text),
    _INFERENCE_ID: ("inferenceId", headers.identifier),
    _TARGET_VARIANT: ("targetVariant", headers.name),
    _PREFIX_ID: ("prefixAwareId", headers.identifier),
    b"x-amzn-sagemaker-target-model": ("TargetModel", None),
    b"x-amzn-sagemaker-target-container-hostname": ("TargetContainerHostname", None),
    b"x-amzn-sagemaker-enable-explanations": ("EnableExplanations", None),
    b"x-amzn-sagemaker-session-id": ("SessionId", None),
}
_TO_HOST = ((_TYPE, b"Content-Type"), (_ATTRIBUTES, b"X-Amzn-SageMaker-Custom-Attributes"),
            (_INFERENCE_ID, b"X-Amzn-SageMaker-Inference-Id"))  # fmt: skip
"""All other headers of the client stay here, as AWS strips them."""

_NO_COMPONENTS = (
    "Inference Component Name header is not allowed for endpoints to which you dont plan to deploy inference "
    "components. Please remove the Inference Component Name header and try again."
)

_encode = msgspec.json.Encoder().encode


class Invoke:
    """InvokeEndpoint: the host's body and content type as they come; any failure of the host is a ModelError."""

    label = "invoke"
    host_path = b"/invocations"

    def read(self, request: Request, endpoint_name: str) -> Call:
        """Return the call. Raises Refused."""
        found = headers.read(request, _CHECKS)
        if _COMPONENT in request.headers:
            raise Refused(VALIDATION, _NO_COMPONENTS)
        lines = b"".join([b"%b: %b\r\n" % (name, found[key]) for key, name in _TO_HOST if key in found])
        accept = self._accept(found)
        if accept is not None:
            lines += b"Accept: %b\r\n" % accept
        target = found.get(_TARGET_VARIANT)
        return Call(
            api=self,
            endpoint_name=endpoint_name,
            target_variant=target.decode() if target is not None else None,
            isolation=found.get(_PREFIX_ID),
            headers=lines,
            chat=None,
            is_stream=self.is_stream,
        )

    is_stream = False

    def _accept(self, found: dict[bytes, bytes]) -> bytes | None:
        return found.get(_ACCEPT)

    def answer_head(self, answer: AnswerHead, variant: bytes, request_id: bytes) -> Head | None:
        if not 200 <= answer.status < 300:
            return None
        named = answer.named
        lines = b"x-Amzn-Invoked-Production-Variant: %b\r\nx-amzn-RequestId: %b\r\n" % (variant, request_id)
        if _ATTRIBUTES in named:
            lines += b"X-Amzn-SageMaker-Custom-Attributes: %b\r\n" % named[_ATTRIBUTES]
        length = named.get(b"content-length")
        return self._head(
            answer.status,
            lines,
            int(length) if length is not None else None,
            named.get(_TYPE),
            named.get(b"content-encoding"),
        )

    def _head(self, status: int, lines: bytes, length: int | None, kind: bytes | None, encoding: bytes | None) -> Head:
        if encoding is not None:
            lines += b"Content-Encoding: %b\r\n" % encoding
        if kind is None:
            return Head(status, lines, length, False)
        return Head(status, lines + b"Content-Type: %b\r\n" % kind, length, kind.startswith(b"text/event-stream"))

    def answer_parts(self, parts: Sequence[bytes]) -> bytes:
        return b"".join(parts)

    def answer_whole(self, status: int, body: bytes, whole: bool, context: Context) -> Answer:
        original = body.decode("utf-8", "replace")[:MESSAGE_CHARACTERS_MAX]
        side = "client" if status < 500 else "server"
        said = f'with message "{original}"' if whole else "and could not load the entire response body"
        return _model_error(status, f"Received {side} error ({status}) from primary {said}.", original, context)

    def broken_part(self, message: str, timed_out: bool, before: bytes) -> tuple[bytes, bool]:
        return b"", False

    def failure(self, fault: Fault, message: str, param: str | None, context: Context | None) -> Answer:
        if fault in (faults.MODEL, faults.MODEL_TIMEOUT) and context is not None:
            return _model_error(
                0, f'Received server error (0) from primary with message "{message}".', message, context
            )
        return faults.native(fault, message)


class InvokeWithResponseStream(Invoke):
    """InvokeEndpointWithResponseStream: the host's bytes in PayloadPart frames; a failure midway is a last frame."""

    label = "invoke_stream"
    is_stream = True

    def _accept(self, found: dict[bytes, bytes]) -> bytes | None:
        return found.get(_STREAM_ACCEPT)

    def _head(self, status: int, lines: bytes, length: int | None, kind: bytes | None, encoding: bytes | None) -> Head:
        # The frames are neither the host's length nor its encoding.
        if kind is not None:
            lines += b"X-Amzn-SageMaker-Content-Type: %b\r\n" % kind
        return Head(200, lines + b"Content-Type: application/vnd.amazon.eventstream\r\n", None, True)

    def answer_parts(self, parts: Sequence[bytes]) -> bytes:
        if len(parts) > PARTS_MAX:
            return event_stream.payload_part(b"".join(parts))
        return b"".join(map(event_stream.payload_part, parts))

    def broken_part(self, message: str, timed_out: bool, before: bytes) -> tuple[bytes, bool]:
        code = "ModelInvocationTimeExceeded" if timed_out else "StreamBroken"
        return event_stream.exception("ModelStreamError", _encode({"Message": message, "ErrorCode": code})), True


def _model_error(status: int, said: str, original: str, context: Context) -> Answer:
    group = f"/aws/sagemaker/Endpoints/{context.endpoint}"
    region, account = context.region, context.account_id
    where = (
        f" See https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}#logEventViewer:group={group}"
        f" in account {account} for more information."
    )
    return faults.native(
        faults.MODEL,
        said[: MESSAGE_CHARACTERS_MAX - len(where)] + where,
        ErrorCode="CLIENT_ERROR_FROM_MODEL" if 400 <= status < 500 else "INTERNAL_FAILURE_FROM_MODEL",
        OriginalStatusCode=status,
        OriginalMessage=original,
        LogStreamArn=f"arn:aws:logs:{region}:{account}:log-group:{group}",
    )

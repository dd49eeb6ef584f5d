"""Chat completions, as OpenAI's clients speak them: bodies pass through both ways byte for byte."""

from collections.abc import Sequence

from dataplane.api import faults, headers
from dataplane.api.call import Call, Context, Head
from dataplane.api.faults import MODEL, MODEL_TIMEOUT, VALIDATION, Answer, Fault, Refused
from dataplane.routing.prefix_key import BadChat, read_chat
from dataplane.wire.http import HOP_BY_HOP, AnswerHead, Request, write_headers

TO_HOST = {
    b"content-type": b"Content-Type",
    b"accept": b"Accept",
    b"accept-encoding": b"Accept-Encoding",
    b"user-agent": b"User-Agent",
    b"traceparent": b"traceparent",
    b"tracestate": b"tracestate",
}
"""Headers that a host may see. Credentials, cookies and everything else stay here."""

_COMPONENT = b"x-amzn-sagemaker-inference-component"
_TARGET_VARIANT = b"x-amzn-sagemaker-target-variant"
_CHECKS: dict[bytes, tuple[str, headers.Check | None]] = {_TARGET_VARIANT: ("targetVariant", headers.name)}
_NOT_FORWARDED = HOP_BY_HOP | {b"content-length", b"location"}


class ChatCompletions:
    """POST chat completions on one endpoint."""

    label = "chat"
    host_path = b"/v1/chat/completions"

    def read(self, request: Request, endpoint_name: str | None) -> Call:
        """Return the call; ``endpoint_name`` None means that ``model`` names the endpoint. Raises Refused."""
        target = headers.read(request, _CHECKS).get(_TARGET_VARIANT) if _TARGET_VARIANT in request.headers else None
        if _COMPONENT in request.headers:
            raise Refused(
                VALIDATION,
                "The X-Amzn-SageMaker-Inference-Component header is not allowed on this route; "
                "name the inference component in the path.",
            )
        try:
            chat = read_chat(request.body)
        except BadChat as bad:
            raise Refused(VALIDATION, str(bad), bad.param) from None
        if endpoint_name is None:
            endpoint_name = _named_by_model(chat.model)
        return Call(
            api=self,
            endpoint_name=endpoint_name,
            target_variant=target.decode() if target is not None else None,
            isolation=None,
            headers=_to_host(request),
            chat=chat,
            is_stream=chat.stream,
        )

    def answer_head(self, answer: AnswerHead, variant: bytes, request_id: bytes) -> Head | None:
        status, named = answer.status, answer.named
        if 300 <= status < 400 and status != 304:
            return None
        dropped = _NOT_FORWARDED | _listed(answer) if b"connection" in named else _NOT_FORWARDED
        lines = b"x-Amzn-Invoked-Production-Variant: %b\r\nx-amzn-RequestId: %b\r\n%b" % (
            variant,
            request_id,
            write_headers([header for header in answer.headers if header[0] not in dropped]),
        )
        if b"x-request-id" not in named:
            lines += b"x-request-id: %b\r\n" % request_id
        is_stream = named.get(b"content-type", b"").startswith(b"text/event-stream")
        if is_stream:
            lines += _stream_headers(answer)
        length = named.get(b"content-length")
        return Head(status, lines, int(length) if length is not None else None, is_stream)

    def answer_parts(self, parts: Sequence[bytes]) -> bytes:
        return b"".join(parts)

    def answer_whole(self, status: int, body: bytes, whole: bool, context: Context) -> Answer:
        """A redirect: it is not followed, and where it points stays here."""
        return faults.openai(MODEL, f"The model host answered with a redirect ({status}), which is not followed.")

    def broken_part(self, message: str, timed_out: bool, before: bytes) -> tuple[bytes, bool]:
        fault = MODEL_TIMEOUT if timed_out else MODEL
        # A blank line ends an event that the failure cut in two.
        start = b"" if not before or before.endswith((b"\n\n", b"\r\n\r\n")) else b"\n\n"
        return b"%bdata: %b\n\n" % (start, faults.openai_body(fault, message)), False

    def failure(self, fault: Fault, message: str, param: str | None, context: Context | None) -> Answer:
        return faults.openai(fault, message, param)


def _named_by_model(model: object) -> str:
    if not isinstance(model, str):
        raise Refused(VALIDATION, "model is required: a string, the name of an endpoint", "model")
    return model


def _to_host(request: Request) -> bytes:
    lines = [b"%b: %b\r\n" % (TO_HOST[name], value) for name, value in request.headers.items() if name in TO_HOST]
    if request.repeated:
        lines += [b"%b: %b\r\n" % (TO_HOST[name], value) for name, value in request.repeated if name in TO_HOST]
    return b"".join(lines)


def _listed(answer: AnswerHead) -> frozenset[bytes]:
    """Return the headers that the host declares its connection's own."""
    values = [value for name, value in answer.headers if name == b"connection"]
    return frozenset(name.strip().lower() for value in values for name in value.split(b","))


def _stream_headers(answer: AnswerHead) -> bytes:
    """Keep proxies in front from holding events back."""
    lines = b"" if b"cache-control" in answer.named else b"cache-control: no-cache\r\n"
    return lines if b"x-accel-buffering" in answer.named else lines + b"x-accel-buffering: no\r\n"

"""Chat completions, as OpenAI's clients speak them: bodies pass through both ways byte for byte."""

from dataplane.api import faults, headers
from dataplane.api.call import Call, Context, Head
from dataplane.api.faults import MODEL, MODEL_TIMEOUT, VALIDATION, Answer, Fault, Refused
from dataplane.routing.prefix_key import BadChat, read_chat
from dataplane.wire.http import HOP_BY_HOP, Headers, Request

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
        found = headers.read(request.headers, _CHECKS)
        if request.header(_COMPONENT) is not None:
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
        target = found.get(_TARGET_VARIANT)
        return Call(
            api=self,
            endpoint_name=endpoint_name,
            target_variant=target.decode() if target is not None else None,
            isolation=None,
            headers=b"".join(
                [b"%b: %b\r\n" % (TO_HOST[name], value) for name, value in request.headers if name in TO_HOST]
            ),
            chat=chat,
            is_stream=chat.stream,
        )

    def answer_head(self, status: int, answer: Headers, variant: str, request_id: bytes) -> Head | None:
        if 300 <= status < 400 and status != 304:
            return None
        lines = [b"x-Amzn-Invoked-Production-Variant: %b\r\nx-amzn-RequestId: %b\r\n" % (variant.encode(), request_id)]
        length: int | None = None
        is_stream = has_id = False
        named = {value.strip().lower() for name, v in answer if name == b"connection" for value in v.split(b",")}
        for name, value in answer:
            if name == b"content-length":
                length = int(value)
            if name in _NOT_FORWARDED or name in named:
                continue
            if name == b"content-type":
                is_stream = value.startswith(b"text/event-stream")
            elif name == b"x-request-id":
                has_id = True
            lines.append(b"%b: %b\r\n" % (name, value))
        if not has_id:
            lines.append(b"x-request-id: %b\r\n" % request_id)
        if is_stream:
            lines.append(_stream_headers(answer))
        return Head(status, b"".join(lines), length, is_stream)

    def answer_part(self, data: bytes) -> bytes:
        return data

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


def _stream_headers(answer: Headers) -> bytes:
    """Keep proxies in front from holding events back."""
    names = {name for name, _ in answer}
    lines = b"" if b"cache-control" in names else b"cache-control: no-cache\r\n"
    return lines if b"x-accel-buffering" in names else lines + b"x-accel-buffering: no\r\n"

"""Shapes of ``POST /invocations``: whatever bytes a SageMaker caller sends.

A JSON object with ``messages`` is a chat completion, as in vLLM's container; one with ``inputs`` or ``prompt`` is a
text generation, as in the TGI and LMI containers; anything else is a prompt as it is, byte for byte.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from simulator.live import Answer
from simulator.openai_api import BadRequest, ChatRequest, chat_request, invalid, usage

_Count = Annotated[int, Meta(ge=1)]


class _Parameters(Struct):
    max_new_tokens: _Count | None = None
    max_tokens: _Count | None = None
    stop: str | list[str] | None = None


class _Text(Struct):
    inputs: str | None = None
    prompt: str | None = None
    parameters: _Parameters | None = None
    max_new_tokens: _Count | None = None
    max_tokens: _Count | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None


@dataclass(frozen=True, slots=True)
class TextRequest:
    """A text generation as asked for."""

    prompt: bytes
    max_tokens: int | None
    stop: tuple[str, ...]
    stream: bool


def parse(body: bytes, accept: str) -> TextRequest | ChatRequest:
    """Return the request in ``body``; ``accept`` may ask for a stream. Raises BadRequest."""
    stream = "text/event-stream" in accept.lower()
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    if isinstance(found, dict) and "messages" in found:
        return chat_request(found | {"stream": True} if stream else found)
    if not isinstance(found, dict) or not ({"inputs", "prompt"} & found.keys()):
        if not body:
            raise BadRequest("The body is empty; send a prompt, or JSON with 'inputs', 'prompt' or 'messages'.")
        return TextRequest(body, None, (), stream)
    return _text_request(found, stream)


def _text_request(found: dict[str, Any], stream: bool) -> TextRequest:
    try:
        text = msgspec.convert(found, _Text)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from None
    prompt = text.inputs if text.inputs is not None else text.prompt
    if not prompt:
        member = "inputs" if "inputs" in found else "prompt"
        raise BadRequest(f"'{member}' is empty; send a prompt.", member)
    inner = text.parameters or _Parameters()
    limits = (inner.max_new_tokens, inner.max_tokens, text.max_new_tokens, text.max_tokens)
    stop = inner.stop if inner.stop is not None else text.stop
    words = (stop,) if isinstance(stop, str) else tuple(stop or ())
    return TextRequest(
        prompt=prompt.encode(),
        max_tokens=next((limit for limit in limits if limit is not None), None),
        stop=tuple(word for word in words if word),
        stream=stream or bool(text.stream),
    )


def whole(answer: Answer, host: str) -> dict[str, Any]:
    """Return the whole answer as one object."""
    generation = answer.generation
    head = {"generated_text": generation.text, "finish_reason": generation.finish_reason}
    return {**head, "usage": usage(answer), "host": host}


async def events(answer: Answer, host: str) -> AsyncIterator[bytes]:
    """Yield the data of the server-sent events of a streamed answer; the last one is the whole."""
    async for part in answer.parts():
        yield msgspec.json.encode({"token": {"text": part}})
    yield msgspec.json.encode(whole(answer, host))

"""Shapes of OpenAI's chat completions, as vLLM serves them: what comes in, what goes out, and errors."""

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from simulator.live import Answer
from simulator.tokens import render_chat


class BadRequest(Exception):
    """The client's mistake: a sentence that says what would be right, and the member it is about."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class _Part(Struct):
    type: str
    text: str | None = None


class _Message(Struct):
    role: str
    content: str | list[_Part] | None = None


class _StreamOptions(Struct):
    include_usage: bool | None = None


ROLES = ("system", "developer", "user", "assistant", "tool", "function")

_Count = Annotated[int, Meta(ge=1)]


class _Chat(Struct):
    messages: Annotated[list[_Message], Meta(min_length=1)]
    model: str | None = None
    max_tokens: _Count | None = None
    max_completion_tokens: _Count | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    cache_salt: str | None = None


# Members whose effect this host does not simulate: refused unless they ask for nothing.
_REFUSED: dict[str, Callable[[Any], bool]] = {
    "n": lambda value: value not in (None, 1),
    "logprobs": bool,
    "top_logprobs": bool,
    "response_format": lambda value: value is not None and value != {"type": "text"},
    "tool_choice": lambda value: value not in (None, "none", "auto"),
    "function_call": lambda value: value not in (None, "none", "auto"),
    "modalities": lambda value: value not in (None, ["text"]),
    "audio": lambda value: value is not None,
}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat completion as asked for. ``model`` is empty if none was named."""

    prompt: bytes
    model: str
    max_tokens: int | None
    stop: tuple[str, ...]
    stream: bool
    include_usage: bool
    salt: str


def parse_chat(body: bytes) -> ChatRequest:
    """Return the request in ``body``. Raises BadRequest."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"The body is not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise BadRequest("The body must be a JSON object with the member 'messages'.")
    return chat_request(found)


def chat_request(found: dict[str, Any]) -> ChatRequest:
    """Return the request in a decoded body. Raises BadRequest."""
    try:
        chat = msgspec.convert(found, _Chat)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from None
    for name, is_asked in _REFUSED.items():
        if is_asked(found.get(name)):
            raise BadRequest(f"'{name}' is not supported by this simulated host; leave it out.", name)
    for number, message in enumerate(chat.messages):
        _check_message(message, f"messages[{number}]")
    if chat.stream_options is not None and not chat.stream:
        raise BadRequest("'stream_options' is only allowed when 'stream' is true.", "stream_options")
    stop = (chat.stop,) if isinstance(chat.stop, str) else tuple(chat.stop or ())
    limit = chat.max_completion_tokens if chat.max_completion_tokens is not None else chat.max_tokens
    return ChatRequest(
        prompt=render_chat(found["messages"]),
        model=chat.model or "",
        max_tokens=limit,
        stop=tuple(word for word in stop if word),
        stream=bool(chat.stream),
        include_usage=bool(chat.stream_options and chat.stream_options.include_usage),
        salt=chat.cache_salt or "",
    )


def _check_message(message: _Message, where: str) -> None:
    if message.role not in ROLES:
        raise BadRequest(f"'{where}.role' must be one of {', '.join(ROLES)}.", f"{where}.role")
    for number, part in enumerate(message.content if isinstance(message.content, list) else ()):
        if part.type == "text" and part.text is None:
            member = f"{where}.content[{number}].text"
            raise BadRequest(f"'{member}' is missing; a part of type 'text' has a text.", member)


def invalid(text: str) -> BadRequest:
    """Say where and what, from msgspec's "Expected `int`, got `str` - at `$.max_tokens`"."""
    where = re.search(r" - at `\$\.?(.*)`$", text)
    missing = re.search(r"missing required field `(\w+)`", text)
    member = where[1] if where else ""
    if missing:
        member = f"{member}.{missing[1]}".lstrip(".")
        return BadRequest(f"'{member}' is missing.", member)
    what = text[: where.start()] if where else text
    return BadRequest(f"'{member}' is wrong: {what[0].lower()}{what[1:]}.", member or None)


def error_body(
    message: str, param: str | None = None, kind: str = "invalid_request_error", code: str | None = None
) -> dict[str, Any]:
    """Return OpenAI's error envelope."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def usage(answer: Answer) -> dict[str, Any]:
    """Return the usage member; the engine has admitted the request by then."""
    prompt, output = answer.request.prompt_tokens, answer.request.output_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": answer.request.cached_tokens},
    }


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every object of one completion repeats."""

    id: str
    created: int
    model: str
    host: str

    def completion(self, answer: Answer) -> dict[str, Any]:
        """Return the whole answer as one object."""
        generation = answer.generation
        message = {"role": "assistant", "content": generation.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": generation.finish_reason}
        return self._object("chat.completion", [choice]) | {"usage": usage(answer)}

    def chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        """Return one chunk of a stream."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._object("chat.completion.chunk", [choice])

    def usage_chunk(self, answer: Answer) -> dict[str, Any]:
        """Return the last chunk of a stream whose client asked for the usage."""
        return self._object("chat.completion.chunk", []) | {"usage": usage(answer)}

    def _object(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        head = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        return {**head, "choices": choices, "system_fingerprint": self.host}


async def events(answer: Answer, envelope: Envelope, include_usage: bool) -> AsyncIterator[bytes]:
    """Yield the data of the server-sent events of a streamed completion; the role comes with the first token."""
    encode = msgspec.json.encode
    await answer.start()
    yield encode(envelope.chunk({"role": "assistant", "content": ""}))
    async for part in answer.parts():
        yield encode(envelope.chunk({"content": part}))
    yield encode(envelope.chunk({}, answer.generation.finish_reason))
    if include_usage:
        yield encode(envelope.usage_chunk(answer))
    yield b"[DONE]"

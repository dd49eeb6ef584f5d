import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.native_api import TextRequest, parse
from simulator.openai_api import BadRequest, ChatRequest


def text(found: object, accept: str = "") -> TextRequest:
    asked = parse(json.dumps(found).encode(), accept)
    assert isinstance(asked, TextRequest)
    return asked


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"inputs": "a"}, TextRequest(b"a", None, (), False)),
        ({"prompt": "a", "max_tokens": 3, "stop": "x", "stream": True}, TextRequest(b"a", 3, ("x",), True)),
        (
            {"inputs": "a", "parameters": {"max_new_tokens": 4, "stop": ["x", "y"]}},
            TextRequest(b"a", 4, ("x", "y"), False),
        ),
        ({"inputs": "a", "max_tokens": 9, "parameters": {"max_tokens": 5}}, TextRequest(b"a", 5, (), False)),
        ({"inputs": "a", "parameters": {"temperature": 0.1}, "x": 1}, TextRequest(b"a", None, (), False)),
    ],
)
def test_text_generation_bodies(found: dict[str, Any], expected: TextRequest) -> None:
    assert text(found) == expected


@given(st.binary(min_size=1).filter(lambda body: not body.strip().startswith(b"{")))
def test_any_other_bytes_are_the_prompt(body: bytes) -> None:
    assert parse(body, "") == TextRequest(body, None, (), False)


def test_json_without_a_prompt_is_the_prompt() -> None:
    assert parse(b'{"features": [1, 2]}', "") == TextRequest(b'{"features": [1, 2]}', None, (), False)


def test_messages_are_a_chat_completion() -> None:
    asked = parse(b'{"messages": [{"role": "user", "content": "a"}]}', "")
    assert isinstance(asked, ChatRequest)
    assert not asked.stream


@pytest.mark.parametrize("body", [b'{"messages": [{"role": "user", "content": "a"}]}', b'{"inputs": "a"}', b"raw"])
def test_accept_asks_for_a_stream(body: bytes) -> None:
    assert parse(body, "text/event-stream").stream


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "The body is empty"),
        (b'{"inputs": ""}', "'inputs' is empty"),
        (b'{"prompt": ""}', "'prompt' is empty"),
        (b'{"inputs": 3}', "'inputs' is wrong: expected `str | null`, got `int`."),
        (b'{"inputs": "a", "parameters": {"max_new_tokens": 0}}', "'parameters.max_new_tokens' is wrong"),
        (b'{"messages": []}', "'messages' is wrong"),
    ],
)
def test_mistakes_are_named(body: bytes, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(body, "")
    assert message in caught.value.message

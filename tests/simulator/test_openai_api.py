import json
from typing import Any

import pytest

from simulator.openai_api import BadRequest, parse_chat
from simulator.tokens import render_chat

HELLO = [{"role": "user", "content": "hello"}]


def body(**members: Any) -> bytes:
    return json.dumps({"messages": HELLO} | members).encode()


def test_members_are_read() -> None:
    asked = parse_chat(
        body(model="m", max_tokens=7, stop="x", stream=True, stream_options={"include_usage": True}, cache_salt="s")
    )
    assert asked.prompt == render_chat(HELLO)
    assert (asked.model, asked.max_tokens, asked.stop, asked.salt) == ("m", 7, ("x",), "s")
    assert asked.stream
    assert asked.include_usage


def test_what_is_not_given_has_its_default() -> None:
    asked = parse_chat(body(max_tokens=None, stop=None, stream=None, stream_options=None))
    assert (asked.model, asked.max_tokens, asked.stop, asked.stream, asked.include_usage) == (
        "",
        None,
        (),
        False,
        False,
    )


def test_the_newer_name_of_the_limit_wins() -> None:
    assert parse_chat(body(max_tokens=7, max_completion_tokens=9)).max_tokens == 9


def test_members_without_effect_on_a_fixed_answer_are_accepted() -> None:
    extra = {"temperature": 0.2, "seed": 1, "user": "u", "prompt_cache_key": "k", "n": 1, "tools": [], "x": {"y": 1}}
    assert parse_chat(body(**extra)).prompt == parse_chat(body()).prompt


@pytest.mark.parametrize(
    ("members", "param", "message"),
    [
        ({"messages": []}, "messages", "'messages' is wrong: expected `array` of length >= 1."),
        ({"messages": "hi"}, "messages", "'messages' is wrong: expected `array`, got `str`."),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content", "got `int`"),
        ({"messages": [{"content": "a"}]}, "messages[0].role", "'messages[0].role' is missing."),
        (
            {"messages": [{"role": "boss", "content": "a"}]},
            "messages[0].role",
            "must be one of system, developer, user",
        ),
        (
            {"messages": [*HELLO, {"role": "user", "content": [{"type": "text"}]}]},
            "messages[1].content[0].text",
            "a part of type 'text' has a text",
        ),
        ({"max_tokens": 0}, "max_tokens", "'max_tokens' is wrong: expected `int` >= 1."),
        ({"max_tokens": "7"}, "max_tokens", "'max_tokens' is wrong: expected `int | null`, got `str`."),
        ({"stream": "yes"}, "stream", "'stream' is wrong"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "only allowed when 'stream' is true"),
        ({"n": 2}, "n", "'n' is not supported"),
        ({"logprobs": True}, "logprobs", "'logprobs' is not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format", "not supported"),
        ({"tool_choice": "required"}, "tool_choice", "not supported"),
    ],
)
def test_mistakes_are_named(members: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_chat(body(**members))
    assert caught.value.param == param
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"messages": "\\ud800"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "must be a JSON object"),
        (b"{}", "'messages' is missing."),
    ],
)
def test_bodies_that_are_no_request_are_refused(raw: bytes, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_chat(raw)
    assert message in caught.value.message

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.routing.prefix_key import chat_key, native_key, read_chat
from simulator.tokens import render_chat
from tests.warmroute.advise.logs import SECRET, chat_body
from warmroute.advise.entry import BadLine
from warmroute.advise.forms import FORMS, Members, Reader, detect, time_of

TEXT = f"{SECRET} " * 100
BODY = json.dumps({"inputs": TEXT, "parameters": {"max_new_tokens": 9}})


def read(form: str, line: str, **members: str) -> Any:
    return Reader(form, Members(**members), 200).read(line.encode())


# --- keys are the product's -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1024, 2000, 65_536])
def test_a_native_key_is_of_the_bytes_of_the_line(length: int) -> None:
    assert read("native", BODY).key(length) == native_key(BODY.encode(), length, None)
    spaced = BODY.replace(": ", " :  ")
    assert read("native", spaced).key(length) == native_key(spaced.encode(), length, None)


def test_a_body_in_a_string_is_its_exact_bytes() -> None:
    body = '{\n  "inputs": "caf\\u00e9 \\/ é"\n}'
    line = json.dumps({"request": {"body": body}, "tenant": "a", "at": 12})
    entry = read("native", line, body="request.body", time="at", isolation="tenant")
    assert entry.key(1024) == native_key(body.encode(), 1024, b"a")
    assert entry.at == 12
    assert read("native", json.dumps("no JSON {")).key(1024) == native_key(b"no JSON {", 1024, None)


def test_a_body_in_an_object_is_as_it_stands_in_the_line() -> None:
    entry = read("native", '{"body": {"b":1,  "a" :2}, "id": null}', body="body", isolation="id")
    assert entry.body == b'{"b":1,  "a" :2}'
    assert entry.isolation is None
    assert read("native", '{"body": {}}', body="body", isolation="id").isolation is None


def test_a_chat_key_is_of_the_text_and_its_cache_key() -> None:
    body = chat_body(TEXT) | {"prompt_cache_key": "t"}
    line = json.dumps(body)
    assert read("chat", line).key(1024) == chat_key(read_chat(line.encode()), 1024)
    assert read("chat", json.dumps(chat_body(TEXT))).key(1024) != read("chat", line).key(1024)
    # The layout of the body does not matter there.
    assert read("chat", json.dumps(body, indent=None, separators=(",", ":"), sort_keys=True)).key(
        2048
    ) == read("chat", line).key(2048)  # fmt: skip


def test_a_text_has_the_key_of_a_chat_with_that_text() -> None:
    line = json.dumps(chat_body(TEXT))
    assert read("text", json.dumps(TEXT)).key(1500) == chat_key(read_chat(line.encode()), 1500)
    assert read("text", '""').key(1024) is None
    assert read("text", '"\\ud800"').key(1024) is not None


# --- what a host makes of them ----------------------------------------------------------------------------------------


def test_the_prompt_is_what_the_model_reads() -> None:
    body = chat_body(TEXT)
    rendered = render_chat(body["messages"])  # type: ignore[arg-type]
    assert read("chat", json.dumps(body)).prompt_tokens == -(-len(rendered) // 4)
    assert read("native", json.dumps(body)).prompt_tokens == -(-len(rendered) // 4)
    assert read("native", BODY).prompt_tokens == -(-len(TEXT) // 4)
    assert read("native", "[1]").prompt_tokens == 1
    odd = '{"messages": [{"content": 5}]}'
    assert read("native", odd).prompt_tokens == -(-len(odd) // 4)


def test_prompts_that_begin_alike_share_blocks_however_their_bodies_are_written() -> None:
    one = read("native", json.dumps({"inputs": TEXT + "a", "parameters": {}}))
    other = read("native", json.dumps({"parameters": {}, "inputs": TEXT + "b"}))
    assert one.key(65_536) != other.key(65_536)
    assert len(one.blocks) == len(TEXT + "a") // 64
    assert one.blocks[:-1] == other.blocks[:-1]
    salted = read("chat", json.dumps(chat_body(TEXT) | {"cache_salt": "s"}))
    assert salted.blocks[0] != read("chat", json.dumps(chat_body(TEXT))).blocks[0]


@pytest.mark.parametrize(
    ("members", "tokens"),
    [({}, 200), ({"max_tokens": 5}, 5), ({"max_completion_tokens": 7}, 7), ({"max_tokens": 9_999}, 200),
     ({"parameters": {"max_new_tokens": 3}}, 3), ({"max_tokens": True}, 200), ({"max_tokens": "x"}, 200)],
)  # fmt: skip
def test_an_answer_is_as_long_as_assumed_or_as_allowed(members: dict[str, Any], tokens: int) -> None:
    assert read("native", json.dumps({"inputs": "a"} | members)).output_tokens == tokens


# --- which form -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "form"),
    [
        ('{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[0]}', "mooncake"),
        (json.dumps(chat_body("a")), "chat"),
        (json.dumps(json.dumps(chat_body("a"))), "chat"),
        (BODY, "native"),
        (json.dumps(BODY), "native"),
        ('{"messages": "none"}', "native"),
        ("[1, 2]", "native"),
        ('"just a text"', "text"),
        ('"[1]"', "text"),
    ],
)
def test_the_first_line_tells_the_form(line: str, form: str) -> None:
    assert detect(line.encode(), Members()) == form


def test_the_form_of_a_wrapped_body_is_the_bodys() -> None:
    assert detect(json.dumps({"b": chat_body("a")}).encode(), Members(body="b")) == "chat"
    assert detect(json.dumps({"b": json.dumps(chat_body("a"))}).encode(), Members(body="b")) == "chat"
    assert detect(json.dumps({"b": {"hash_ids": 1}}).encode(), Members(body="b")) == "native"


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "line", "members", "reason"),
    [
        ("native", "{", {}, "not JSON"),
        ("native", "{", {"body": "a"}, "not JSON"),
        ("native", "[]", {"body": "a.b"}, "there is no object that could have the member a.b"),
        ("native", '{"a": 1}', {"body": "b"}, "the member b is missing"),
        ("native", '{"a": 1}', {"body": "a", "time": "t"}, "the member t is missing"),
        ("native", '{"a": 1, "t": true}', {"body": "a", "time": "t"}, "t is neither a number"),
        ("native", '{"a": 1, "t": "noon"}', {"body": "a", "time": "t"}, "t is not an ISO 8601 time"),
        (
            "native",
            '{"a": 1, "i": 7}',
            {"body": "a", "isolation": "i"},
            "i is no string of at most 64 ASCII characters",
        ),
        ("native", '{"a": 1, "i": "\\ud800"}', {"body": "a", "isolation": "i"}, "not JSON"),
        ("native", '{"a": 1, "t": 1e999}', {"body": "a", "time": "t"}, "t is neither a number"),
        ("text", "7", {}, "a message text must be a JSON string"),
        ("chat", '{"a": 1}', {}, "no chat completions body: messages is required"),
        ("chat", '"nothing"', {}, "no chat completions body: the body is not JSON"),
        ("mooncake", '{"a": 1}', {}, "no line of a Mooncake trace"),
    ],
)
def test_a_line_that_is_no_request_says_why(form: str, line: str, members: dict[str, str], reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        read(form, line, **members)


@given(st.text(max_size=40), st.sampled_from(["native", "chat", "text", "mooncake"]))
def test_any_line_is_read_or_refused_and_never_quoted(noise: str, form: str) -> None:
    for line in (f'{{"{SECRET}": {noise}', f'{{"messages": [{{"content": "{SECRET}{noise}"}}]}}', noise, f'"{noise}"'):
        assert SECRET not in refusal(form, line)


@given(st.text(max_size=20), st.sampled_from(["native", "chat", "text"]))
def test_any_wrapped_line_is_read_or_refused(noise: str, form: str) -> None:
    wrapped = [json.dumps({"b": noise, "t": noise, "i": noise}), f'{{"b": "{noise}", "t": {noise}, "i": "{noise}"}}',
               f'{{"b": "{noise}", "t": 1, "i": "{noise}"}}']  # fmt: skip
    for line in wrapped:
        for members in (Members("b"), Members("b", "t"), Members("b", None, "i"), Members("b.b", "t")):
            refusal(form, line, members)
            try:
                found = detect(line.encode("utf-8", "surrogatepass"), members)
            except BadLine:
                continue
            assert found in FORMS


def refusal(form: str, line: str, members: Members = Members()) -> str:  # noqa: B008
    """Return why a line is refused; nothing if it is read."""
    try:
        Reader(form, members, 200).read(line.encode("utf-8", "surrogatepass"))
    except BadLine as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"12.5", 12.5), (b"1700000000", 1.7e9), (b"1700000000123", 1700000000.123), (b'"1970-01-01T00:00:10Z"', 10),
     (b'"1970-01-01T01:00:10+01:00"', 10), (b'"1970-01-01 00:00:10.5"', 10.5)],
)  # fmt: skip
def test_times_are_seconds_milliseconds_or_iso(value: bytes, seconds: float) -> None:
    assert time_of(value, "t") == pytest.approx(seconds)

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from dataplane.routing import prefix_key
from dataplane.routing.prefix_key import (
    ISOLATION_CHARACTERS_MAX,
    PREFIX_LENGTH_MAX,
    BadChat,
    Chat,
    chat_key,
    native_key,
    read_chat,
)

LENGTH = 1024
texts = st.text(st.characters(codec="utf-8"), max_size=40)
ids = st.binary(min_size=1, max_size=64)
few_bytes = st.lists(st.sampled_from([b"a", b"1", b":", b"n", b"N"]), max_size=3).map(b"".join)


def body_of(*messages: object, **members: object) -> bytes:
    return json.dumps({"messages": list(messages), **members}).encode()


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


def text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def key_of(body: bytes, length: int = LENGTH) -> int | None:
    return chat_key(read_chat(body), length)


# --- native ----------------------------------------------------------------------------------------------------------


@given(st.binary(min_size=1, max_size=64), st.binary(max_size=64), st.binary(max_size=64), st.none() | ids)
def test_only_the_first_bytes_of_a_native_body_decide(
    start: bytes, one: bytes, other: bytes, who: bytes | None
) -> None:
    prefix = (start * LENGTH)[:LENGTH]
    assert native_key(prefix + one, LENGTH, who) == native_key(prefix + other, LENGTH, who)
    changed = bytes([prefix[-1] ^ 1])
    assert native_key(prefix, LENGTH, who) != native_key(prefix[:-1] + changed, LENGTH, who)


@given(few_bytes, few_bytes, st.none() | few_bytes.filter(bool), st.none() | few_bytes.filter(bool))
def test_equal_native_keys_mean_equal_prefix_and_id(
    one: bytes, other: bytes, id_one: bytes | None, id_other: bytes | None
) -> None:
    key_one, key_other = native_key(one, LENGTH, id_one), native_key(other, LENGTH, id_other)
    assert (key_one == key_other) == ((one, id_one) == (other, id_other))


@given(st.binary(min_size=1, max_size=40), st.data())
def test_native_id_and_prefix_cannot_run_together(joined: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.sets(st.integers(1, len(joined)), max_size=4))
    keys = {native_key(joined[cut:], LENGTH, joined[:cut]) for cut in cuts}
    keys.add(native_key(joined, LENGTH, None))
    assert len(keys) == len(cuts) + 1


def test_an_empty_native_body_has_a_key_only_with_an_id() -> None:
    assert native_key(b"", LENGTH, None) is None
    assert native_key(b"", LENGTH, b"tenant") is not None
    assert native_key(b"", LENGTH, b"tenant") != native_key(b"tenant", LENGTH, None)


def test_an_id_cannot_play_the_part_of_no_id() -> None:
    """No body without an id has the key of a body with one, whatever the form that is hashed."""
    assert native_key(b"3:abcrest", LENGTH, None) != native_key(b"rest", LENGTH, b"abc")
    assert native_key(b"N3:abcrest", LENGTH, None) != native_key(b"rest", LENGTH, b"abc")


def test_keys_are_the_same_in_every_build() -> None:
    """Workers of two versions serve side by side during an upgrade; a change of these numbers moves every prefix."""
    assert native_key(b"once upon a time", LENGTH, None) == 0x2606198EF73D3132
    assert native_key(b"once upon a time", LENGTH, b"tenant") == 0x04F410B99FA715BE
    assert key_of(body_of(user("once upon a time"))) == 0x2A5AF6470A3FF7FB
    assert key_of(body_of(user("once upon a time"), prompt_cache_key="tenant")) == 0x0C40F89AFE45CFE5


# --- chat ------------------------------------------------------------------------------------------------------------


@given(st.lists(texts, min_size=1, max_size=5), st.data())
def test_strings_and_parts_have_one_key(contents: list[str], data: st.DataObject) -> None:
    """A content as one string, as parts cut anywhere, or spread over messages is the same text."""
    whole = "".join(contents)
    plain = read_chat(body_of(*map(user, contents)))
    parts = read_chat(body_of(user([text_part(text) for text in contents])))
    joined = read_chat(body_of(user(whole)))
    cut = data.draw(st.integers(0, len(whole)))
    halves = read_chat(body_of(user(whole[:cut]), {"role": "assistant", "content": [text_part(whole[cut:])]}))
    length = data.draw(st.integers(1, max(1, len(whole))))
    keys = {chat_key(chat, length) for chat in (plain, parts, joined, halves)}
    assert len(keys) == 1
    assert plain.text == parts.text == joined.text == halves.text == whole


@given(texts.filter(bool), texts, texts, st.integers(1, 40))
def test_prefix_length_counts_code_points(start: str, one: str, other: str, length: int) -> None:
    """A character outside the basic plane is one, as is each half of a combined one."""
    prefix = (start * length)[:length]
    assert key_of(body_of(user(prefix + one)), length) == key_of(body_of(user(prefix + other)), length)
    changed = prefix[:-1] + ("x" if prefix[-1] != "x" else "y")
    assert key_of(body_of(user(prefix)), length) != key_of(body_of(user(changed)), length)


def test_what_is_not_text_plays_no_part() -> None:
    """Roles, names, parameters, tools, images, the model and message borders."""
    plain = key_of(body_of(user("what is this")))
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    audio = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    same = [
        body_of({"role": "system", "content": "what is this", "name": "someone"}),
        body_of(user("what is"), {"role": "assistant", "content": " this"}),
        body_of(user([image, text_part("what is"), audio, text_part(" this"), image])),
        body_of(user("what is this"), model="m", temperature=0.7, stream=True, seed=3, user="u", tools=[{"type": "x"}]),
        body_of(user([{"type": "refusal", "refusal": "no", "text": "not this"}, text_part("what is this")])),
        body_of(user([{"text": "untyped"}, text_part("what is this")])),
        body_of(user("what is this"), {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}),
        body_of(user("what is this"), {"role": "assistant", "tool_calls": []}, user([]), user("")),
        body_of(user("what is this")).replace(b"is", rb"\u0069s"),
    ]
    assert {key_of(body) for body in same} == {plain}


def test_images_do_not_fill_the_prefix() -> None:
    """AWS: only text counts towards PrefixLength."""
    image = {"type": "image_url", "image_url": {"url": "data:" + "A" * 5000}}
    one, other = "x" * 1023 + "a", "x" * 1023 + "b"
    assert key_of(body_of(user([image, text_part(one)]))) != key_of(body_of(user([image, text_part(other)])))


@pytest.mark.parametrize("content", ["", [], None, [{"type": "image_url", "image_url": {"url": "u"}}], [text_part("")]])
def test_nothing_to_extract_is_no_key(content: object) -> None:
    """Such requests are spread by load; a shared key would send them all to one host."""
    assert key_of(body_of(user(content))) is None
    assert key_of(body_of()) is None
    assert key_of(body_of(user(content), prompt_cache_key="k")) is not None


@given(texts.filter(bool), st.data())
def test_chat_id_and_prefix_cannot_run_together(joined: str, data: st.DataObject) -> None:
    cuts = data.draw(st.sets(st.integers(1, len(joined)), max_size=3))
    keys = {key_of(body_of(user(joined[cut:]), prompt_cache_key=joined[:cut])) for cut in cuts}
    keys.add(key_of(body_of(user(joined))))
    assert len(keys) == len(cuts) + 1


def test_each_id_has_its_own_key_and_none_is_like_no_id() -> None:
    keys = [key_of(body_of(user("same"), prompt_cache_key=f"k{number}")) for number in range(64)]
    assert len(set(keys)) == 64
    absent = key_of(body_of(user("same")))
    assert key_of(body_of(user("same"), prompt_cache_key=None)) == absent
    assert key_of(body_of(user("same"), prompt_cache_key="")) == absent
    assert absent not in keys


def test_ids_that_differ_only_at_the_end_are_never_cut_to_one() -> None:
    """What is longer than the limit is refused by name."""
    longest = "k" * (ISOLATION_CHARACTERS_MAX - 1)
    assert key_of(body_of(user("x"), prompt_cache_key=longest + "a")) != key_of(
        body_of(user("x"), prompt_cache_key=longest + "b")
    )
    with pytest.raises(BadChat, match="prompt_cache_key must have at most 1024 characters, it has 1025") as caught:
        read_chat(body_of(user("x"), prompt_cache_key=longest + "aa"))
    assert caught.value.param == "prompt_cache_key"


@pytest.mark.parametrize("value", [5, [], {}, True, 0.5])
def test_an_id_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(BadChat, match="prompt_cache_key must be a string") as caught:
        read_chat(body_of(user("x"), prompt_cache_key=value))
    assert caught.value.param == "prompt_cache_key"


def test_an_id_with_half_a_character_is_refused() -> None:
    with pytest.raises(BadChat, match="prompt_cache_key must not hold lone surrogates"):
        read_chat(body_of(user("x"), prompt_cache_key="\ud83d"))


def test_bodies_that_only_lenient_readers_take_are_keyed_too() -> None:
    """The host may take them, so they are not refused here; and each has a key of its own text."""
    lone = key_of(body_of(user("half \ud83d of a face")))
    assert lone is not None
    assert lone != key_of(body_of(user("half  of a face")))
    plain = key_of(body_of(user("x")))
    assert key_of(b'{"messages":[{"content":"x"}],"temperature":NaN}') == plain
    assert key_of(b'{"messages":[{"content":"x"}],"top_p":-Infinity}') == plain
    assert key_of(body_of(user("x"), stream=1)) == plain
    assert key_of(b'{"messages":[{"content":"x"}],"temperature":NaN,"seed":%b}' % (b"9" * 5_000)) == plain
    assert key_of(body_of("a message", 3, None, user("x"), user(7), user([5, text_part("")]), ["y"])) == plain
    assert key_of(b"\xef\xbb\xbf" + body_of(user("x"))) == plain


def test_members_of_unusual_types_are_handed_on_as_sent() -> None:
    assert read_chat(body_of(user("x"), stream=True, model="m")) == Chat("x", None, True, "m")
    assert read_chat(body_of(user("x"))).model is UNSET
    assert read_chat(body_of(user("x"), stream=False)).stream is False
    assert read_chat(body_of(user("x"), stream="true", model=5)) == Chat("x", None, False, 5)
    assert read_chat(body_of(user("x"), stream=None)).stream is False


@pytest.mark.parametrize(
    ("body", "said", "param"),
    [
        (b"", "not JSON", None),
        (b"not json", "not JSON", None),
        (b'{"messages": [', "not JSON", None),
        (b"[]", "must be a JSON object", None),
        (b"null", "must be a JSON object", None),
        (b'"text"', "must be a JSON object", None),
        (b"{}", "messages is required", "messages"),
        (b'{"messages": null}', "messages is required", "messages"),
        (b'{"messages": "hello"}', "messages is required", "messages"),
        (b'{"messages": {"content": "x"}, "stream": 1}', "messages is required", "messages"),
        (b'{"messages": [{"content": "\xff"}]}', "not UTF-8: byte 27", None),
        (b'{"messages": [{"content": "\xed\xa0\x80"}]}', "not UTF-8", None),
        ('{"messages": [{"content": "x"}]}'.encode("utf-16"), "not UTF-8", None),
        ('{"messages": [{"content": "x"}]}'.encode("utf-16-le"), "not JSON", None),
        ('{"messages": [{"content": "x"}]}'.encode("utf-32-be"), "not JSON", None),
        (b'\xef\xbb\xbf\xef\xbb\xbf{"messages": []}', "not JSON", None),
    ],
)
def test_what_is_no_chat_request_is_refused(body: bytes, said: str, param: str | None) -> None:
    with pytest.raises(BadChat, match=said) as caught:
        read_chat(body)
    assert caught.value.param == param


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_deep_nesting_neither_crashes_nor_hangs(depth: int) -> None:
    """Wherever it is, the answer is a key or a BadChat."""
    deep = b"[" * depth + b"]" * depth
    with pytest.raises(BadChat):
        read_chat(deep)
    for body in (
        b'{"messages": %b}' % deep,
        b'{"messages": [{"content": "x"}], "tools": %b}' % deep,
        b'{"messages": [{"content": %b}]}' % deep,
        b'{"stream": 1, "messages": [{"content": "x"}], "a": %b}' % (b'{"a":' * depth + b"1" + b"}" * depth),
    ):
        said = outcome(read_chat, body)[0]
        assert isinstance(said, str)
        assert said in ("", "x") or "nested too deeply" in said or "not JSON" in said


def test_text_is_remembered_no_further_than_the_longest_prefix() -> None:
    """A body of 25 MB must not be held twice."""
    long = "x" * (PREFIX_LENGTH_MAX - 1)
    for body in (
        body_of(user(long), user("yz"), user("more")),
        body_of(user([text_part(long), text_part("yz"), text_part("more")])),
        body_of(user(long), user("yz"), stream=1),
    ):
        assert read_chat(body).text == long + "y"


# --- the two readers -------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
part_values = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["text", "image_url", "refusal", "", None, 5]),
        "text": st.text(max_size=6) | st.none() | json_values,
        "image_url": json_values,
    },
)
message_values = st.fixed_dictionaries(
    {},
    optional={
        "role": json_values,
        "content": st.text(max_size=6) | st.none() | st.lists(part_values | json_values, max_size=3) | json_values,
        "tool_calls": json_values,
    },
)
body_values = st.fixed_dictionaries(
    {},
    optional={
        "messages": st.lists(message_values | json_values, max_size=3) | json_values,
        "model": st.text(max_size=6) | json_values,
        "stream": st.booleans() | st.none() | json_values,
        "prompt_cache_key": st.text(max_size=6) | json_values,
        "temperature": json_values,
    },
)


def outcome(read: Any, body: bytes) -> tuple[object, ...]:
    try:
        chat = read(body)
    except BadChat as bad:
        return str(bad), bad.param
    return chat.text, chat.isolation, chat.stream, chat.model if isinstance(chat.model, str) else None


@given(body_values, st.booleans())
def test_the_two_readers_agree(value: dict[str, object], ascii_only: bool) -> None:
    """The quick typed reader and the lenient one that takes over from it say the same of every body."""
    body = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    if not _is_utf8(body):
        assert "not UTF-8" in str(outcome(read_chat, body)[0])
        return
    assert outcome(read_chat, body) == outcome(prefix_key._read_loosely, body)


@given(st.lists(st.tuples(texts, texts), max_size=3))
def test_of_repeated_members_both_readers_take_the_last(pairs: list[tuple[str, str]]) -> None:
    messages = ",".join(f'{{"content":{json.dumps(one)},"content":{json.dumps(other)}}}' for one, other in pairs)
    body = f'{{"messages":[{{"content":"no"}}],"messages":[{messages}],"model":"a","model":"b"}}'.encode()
    assert outcome(read_chat, body) == outcome(prefix_key._read_loosely, body)
    assert read_chat(body).text == "".join(other for _, other in pairs)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    outcome(read_chat, body)


def test_mangled_bodies_are_read_or_refused() -> None:
    """One byte changed, at random, in a real body: still a key or a BadChat, and nothing else."""
    dice = random.Random(7)
    whole = bytearray(body_of(user("héllo"), user([text_part("world")]), model="m", stream=True, prompt_cache_key="k"))
    for _ in range(2_000):
        body = bytearray(whole)
        body[dice.randrange(len(body))] = dice.randrange(256)
        outcome(read_chat, bytes(body))


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True

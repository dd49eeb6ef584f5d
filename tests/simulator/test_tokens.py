from itertools import takewhile
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from simulator.tokens import BLOCK_BYTES, PIECES, answer_text, block_hashes, count_tokens, render_chat

texts = st.builds(lambda blocks, rest: b"".join(blocks) + rest, st.lists(st.just(b"x" * 64), max_size=4), st.binary())


@given(texts, texts)
def test_the_same_beginning_has_the_same_blocks_and_no_more(one: bytes, other: bytes) -> None:
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    equal = [a == b for a, b in zip(block_hashes(one), block_hashes(other), strict=False)]
    assert equal == [index < shared // BLOCK_BYTES for index in range(len(equal))]


@given(texts, st.binary())
def test_appending_text_keeps_the_blocks_before_it(text: bytes, more: bytes) -> None:
    before = block_hashes(text)
    assert block_hashes(text + more)[: len(before)] == before
    assert len(before) == len(text) // BLOCK_BYTES


def test_a_salt_shares_nothing() -> None:
    text = b"x" * 640
    assert len(set(block_hashes(text)) | set(block_hashes(text, "one")) | set(block_hashes(text, "two"))) == 30


def test_four_bytes_are_a_token() -> None:
    assert [count_tokens(b"x" * size) for size in (0, 1, 4, 5, 8)] == [0, 1, 1, 2, 2]
    assert {len(piece.encode()) for piece in PIECES} == {4}
    assert len(set(PIECES)) == len(PIECES)


@given(st.binary(max_size=20), st.integers(1, 300), st.integers(1, 300))
def test_an_answer_is_fixed_by_its_prompt_and_a_shorter_one_is_its_beginning(prompt: bytes, one: int, two: int) -> None:
    answers = [answer_text(prompt, tokens) for tokens in (one, two)]
    assert [count_tokens(answer.encode()) for answer in answers] == [one, two]
    assert answers[0].startswith(answers[1]) or answers[1].startswith(answers[0])


messages = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["system", "user", "assistant"]),
        st.text(max_size=40)
        | st.none()
        | st.lists(st.text(max_size=9).map(lambda text: {"type": "text", "text": text})),
    ),
    min_size=1,
    max_size=4,
)


@given(messages, st.integers(1, 60), st.text(max_size=20))
def test_a_conversation_that_goes_on_begins_with_what_was_generated(
    chat: list[dict[str, Any]], tokens: int, question: str
) -> None:
    prompt = render_chat(chat)
    assert len(prompt) % 4 == 0
    answer = answer_text(prompt, tokens)
    turn = [*chat, {"role": "assistant", "content": answer}, {"role": "user", "content": question}]
    assert render_chat(turn).startswith(prompt + answer.encode())


def test_strings_and_text_parts_read_the_same() -> None:
    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]
    assert render_chat([{"role": "user", "content": parts}]) == render_chat([{"role": "user", "content": "abc"}])


def test_other_parts_and_tool_calls_count_by_their_content() -> None:
    def image(url: str) -> bytes:
        return render_chat([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}])

    assert image("data:a") == image("data:a") != image("data:b")
    called = render_chat([{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}])
    assert called != render_chat([{"role": "assistant", "content": None, "tool_calls": [{"id": "2"}]}])

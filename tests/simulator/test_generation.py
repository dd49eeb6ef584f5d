import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.generation import Generation, plan
from simulator.request import PromptTooLong
from simulator.tokens import answer_text, count_tokens


def planned(
    prompt: bytes = b"hello world", limit: int | None = None, context: int = 1000, **more: object
) -> Generation:
    return plan(prompt, context_tokens=context, max_tokens=limit, default_tokens=64, **more)  # type: ignore[arg-type]


def test_a_limit_is_met_exactly_and_named_as_the_reason() -> None:
    generation = planned(limit=200)
    assert (generation.output_tokens, generation.finish_reason) == (200, "length")
    assert count_tokens(generation.text.encode()) == 200


def test_without_a_limit_the_answer_has_its_usual_length_or_what_fits() -> None:
    assert (planned().output_tokens, planned().finish_reason) == (64, "stop")
    assert planned(b"x" * 400, context=110).output_tokens == 10


@pytest.mark.parametrize(("size", "limit"), [(400, None), (40, 91), (4000, 1)])
def test_what_does_not_fit_is_refused(size: int, limit: int | None) -> None:
    with pytest.raises(PromptTooLong, match="at most 100 tokens"):
        planned(b"x" * size, limit, context=100)


@given(st.integers(1, 40), st.integers(0, 39), st.integers(1, 9))
def test_a_stop_string_ends_the_answer_before_it(tokens: int, start: int, length: int) -> None:
    whole = answer_text(b"hello world", tokens)
    word = whole[start * 2 : start * 2 + length]
    generation = planned(limit=tokens, stop=(word, "never there") if word else ("never there",))
    if not word:
        assert generation.text == whole
        return
    assert generation.text == whole[: whole.index(word)]
    assert generation.finish_reason == "stop"
    assert len(generation.text) + len(word) <= generation.output_tokens * 4 < len(generation.text) + len(word) + 4


def test_parts_make_up_the_whole() -> None:
    generation = planned(limit=10, stop=("e",))
    parts = [generation.part(token, token + 1) for token in range(10)]
    assert "".join(parts) == generation.text


def test_blocks_cover_prompt_and_answer_and_keep_salts_apart() -> None:
    generation = planned(b"x" * 64, limit=16)
    assert len(generation.blocks) == 2
    assert not set(generation.blocks) & set(planned(b"x" * 64, limit=16, salt="tenant").blocks)


def test_an_empty_prompt_is_one_token() -> None:
    assert planned(b"", 5).prompt_tokens == 1

"""What virtual time takes for granted of a prompt is what a simulated host finds in its text."""

import random
from itertools import pairwise

import pytest

from benchmarks.fleet.conversations import Api, Chats, Conversation, Documents, Lengths, Turn, words
from dataplane.routing.prefix_key import native_key, read_chat
from simulator.calibration import BLOCK_TOKENS
from simulator.native_api import parse
from simulator.openai_api import ChatRequest, parse_chat
from simulator.tokens import answer_text, block_hashes, count_tokens, render_chat

DOCUMENTS = Documents(per_prefix=(5, 6), shared_tokens=200, own_tokens=33, output_tokens=40)
CHATS = Chats(turns=4.0, user=Lengths(60, 1.2, 500), answer=Lengths(90, 0.9, 500))


def turns(conversation: Conversation) -> list[Turn]:
    found = []
    while (turn := conversation.next_turn()) is not None:
        found.append(turn)
    return found


def prompt(turn: Turn, api: Api) -> bytes:
    """Return what a simulated host's engine computes."""
    body = api.body(turn.messages, turn.output_tokens)
    asked = parse(body, "") if api is Api.NATIVE else parse_chat(body)
    assert asked.max_tokens == turn.output_tokens
    return asked.prompt


def hashes(turn: Turn) -> list[int]:
    text = prompt(turn, Api.NATIVE)
    return block_hashes(text + answer_text(text, turn.output_tokens).encode())


@pytest.mark.parametrize("kind", [DOCUMENTS, CHATS])
@pytest.mark.parametrize("api", Api)
def test_a_host_counts_the_same_tokens_over_both_apis(api: Api, kind: Documents | Chats) -> None:
    for number in range(20):
        for turn in turns(kind.start(random.Random(number), number)):
            text = prompt(turn, api)
            assert text == render_chat(turn.messages)
            assert count_tokens(text) == turn.prompt_tokens


@pytest.mark.parametrize("kind", [DOCUMENTS, CHATS])
def test_two_turns_share_the_blocks_whose_text_they_share(kind: Documents | Chats) -> None:
    for number in range(30):
        for before, after in pairwise(turns(kind.start(random.Random(number), number))):
            shared = 0
            for one, other in zip(hashes(before), hashes(after), strict=False):
                if one != other:
                    break
                shared += 1
            assert shared == min(len(before.blocks), len(after.blocks))
            assert list(before.blocks)[:shared] == list(after.blocks)[:shared]
            # The last token of an answer is never in the cache, the rest of the prompt's full blocks is.
            stored = min(shared * BLOCK_TOKENS, before.prompt_tokens + before.output_tokens - 1)
            assert after.reusable_tokens == stored // BLOCK_TOKENS * BLOCK_TOKENS


def test_the_first_turn_finds_nothing_and_other_conversations_share_nothing() -> None:
    for kind in (DOCUMENTS, CHATS):
        one, other = (turns(kind.start(random.Random(number), number)) for number in (1, 2))
        assert one[0].reusable_tokens == other[0].reusable_tokens == 0
        assert not {block for turn in one for block in turn.blocks} & {block for turn in other for block in turn.blocks}


def test_a_document_is_asked_as_often_as_it_says() -> None:
    lengths = [len(turns(DOCUMENTS.start(random.Random(number), number))) for number in range(400)]
    assert set(lengths) == {5, 6}
    assert sum(lengths) / len(lengths) == pytest.approx(5.5, abs=0.1)


def test_chats_have_the_turns_and_lengths_they_say() -> None:
    found = [turns(CHATS.start(random.Random(number), number)) for number in range(1_500)]
    assert sum(map(len, found)) / len(found) == pytest.approx(4.0, rel=0.08)
    answers = [turn.output_tokens for chat in found for turn in chat]
    assert 1 <= min(answers) <= max(answers) <= 500
    assert sum(answers) / len(answers) == pytest.approx(90, rel=0.08)


def test_a_chat_sends_its_whole_history() -> None:
    chat = next(found for number in range(99) if len(found := turns(CHATS.start(random.Random(number), number))) > 3)
    for before, after in pairwise(chat):
        answer = answer_text(render_chat(before.messages), before.output_tokens)
        assert after.messages[: len(before.messages)] == before.messages
        assert after.messages[-2] == {"role": "assistant", "content": answer}
        assert after.messages[-1]["role"] == "user"


def test_keys_are_the_products() -> None:
    turn = turns(DOCUMENTS.start(random.Random(1), 1))[0]
    body = Api.NATIVE.body(turn.messages, 5)
    assert Api.NATIVE.key(body, 300) == native_key(body, 300, None)
    chat = Api.OPENAI.body(turn.messages, 5)
    assert read_chat(chat).text == "".join(message["content"] for message in turn.messages)
    assert Api.OPENAI.key(chat, 300) == Api.OPENAI.key(chat.replace(b'"max_tokens":5', b'"max_tokens":6'), 300)


def test_a_streamed_body_asks_for_its_usage() -> None:
    asked = parse_chat(Api.OPENAI.body([{"role": "user", "content": "x"}], 5, stream=True))
    assert isinstance(asked, ChatRequest)
    assert asked.stream
    assert asked.include_usage


def test_words_are_whole_tokens_and_the_same_for_the_same_dice() -> None:
    for tokens in (1, 7, 200):
        text = words(random.Random(3), tokens)
        assert count_tokens(text.encode()) == tokens
        assert len(text) == 4 * tokens
        assert text == words(random.Random(3), tokens)

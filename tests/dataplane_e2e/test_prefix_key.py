"""What decides a request's home: the first PrefixLength bytes or characters, and the isolation id; nothing else."""

import json
from collections import Counter
from typing import Any

import pytest

from tests.dataplane_e2e.stage import PREFIX_ID, Fleet, chat, chat_body, error_of, homes, invoke, prefix
from tests.fakes.data_plane import DataPlane

SYSTEM = "You are a careful assistant. " * 60


def conversation(system: str, question: str, **members: Any) -> bytes:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return json.dumps({"model": "", "messages": messages, **members}).encode()


def test_bytes_after_the_prefix_play_no_part(plane: DataPlane, fleet: Fleet) -> None:
    """50 requests with equal first bytes on one host; a byte inside may move them."""
    deployed = fleet.deploy(3)
    start = prefix(0)
    with plane.client() as client:
        assert len({invoke(client, deployed, start + b"tail %d" % number) for number in range(50)}) == 1
        changed = {invoke(client, deployed, b"%d" % number + start[1:]) for number in range(10, 40)}
    assert changed == {"h1", "h2", "h3"}


def test_the_tail_of_a_conversation_plays_no_part(plane: DataPlane, fleet: Fleet) -> None:
    """Nor do parameters; another system text does."""
    deployed = fleet.deploy(4)
    with plane.client() as client:
        found = set()
        for number in range(40):
            members = {"temperature": number / 40, "max_tokens": number + 1, "seed": number, "user": f"u{number}"}
            if number % 2:
                members |= {"tools": [{"type": "function", "function": {"name": f"f{number}"}}], "stop": ["x"]}
            found.add(chat(client, deployed, conversation(SYSTEM, f"question {number}", **members)))
        assert len(found) == 1
        others = {chat(client, deployed, conversation(f"{number} {SYSTEM}", "q")) for number in range(20)}
    assert len(others) > 1


def test_text_is_compared_not_json(plane: DataPlane, fleet: Fleet) -> None:
    """Spacing, escapes, member order and parameters of the JSON do not matter; parts are as one string."""
    deployed = fleet.deploy(4)
    with plane.client() as client:
        for number in range(12):
            text = f"{number} é\N{GRINNING FACE} and some words"
            message = {"role": "user", "content": text}
            halves = [{"type": "text", "text": text[:6]}, {"type": "text", "text": text[6:]}]
            image = {"type": "image_url", "image_url": {"url": f"data:{number}"}}
            spellings = [
                json.dumps({"model": "a", "messages": [message]}),
                json.dumps({"messages": [message], "temperature": 1, "model": "b"}, indent=3),
                json.dumps({"messages": [message]}, ensure_ascii=False, separators=(",", ":")),
                json.dumps({"messages": [{"content": halves, "role": "user"}]}),
                json.dumps({"messages": [{"content": [image, halves[0], image, halves[1]], "role": "user"}]}),
                json.dumps({"messages": [{"content": [image, *halves], "role": "user"}], "stream": False}),
            ]
            assert len({chat(client, deployed, spelling.encode()) for spelling in spellings}) == 1


def test_length_is_counted_in_characters_of_text(plane: DataPlane, fleet: Fleet) -> None:
    """1,024 characters of more bytes; images do not fill the prefix."""
    deployed = fleet.deploy(4)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5_000}}
    with plane.client() as client:
        found = set()
        for number in range(24):
            # 1,000 three-byte characters, then the difference at character 1,000: inside the prefix.
            parts = [image, {"type": "text", "text": "中" * 1_000 + f"{number:024d}"}]
            found.add(chat(client, deployed, json.dumps({"messages": [{"role": "user", "content": parts}]}).encode()))
        assert len(found) > 1
        after = {chat(client, deployed, chat_body("中" * 1_024 + f"{number}")) for number in range(24)}
    assert len(after) == 1


def test_short_prompts_have_homes_of_their_own(plane: DataPlane, fleet: Fleet) -> None:
    """300 prompts shorter than PrefixLength, each asked three times."""
    deployed = fleet.deploy(4)
    with plane.client() as client:
        prompts = [b"short %d" % number for number in range(150)]
        texts = [chat_body(f"short {number}") for number in range(150)]
        rounds = [homes(client, deployed, prompts) + [chat(client, deployed, text) for text in texts] for _ in range(3)]
    assert rounds[0] == rounds[1] == rounds[2]
    shares = Counter(rounds[0])
    assert len(shares) == 4
    assert max(shares.values()) < 120


@pytest.mark.parametrize(
    "content",
    [
        lambda number: [],
        lambda number: [{"type": "image_url", "image_url": {"url": f"https://images.test/{number}"}}],
        lambda number: "",
        lambda number: None,
    ],
    ids=["empty", "image", "blank", "null"],
)
def test_chats_without_text_are_spread(plane: DataPlane, fleet: Fleet, content: Any) -> None:
    """200 of them; no host gets more than 60%."""
    deployed = fleet.deploy(4)
    with plane.client() as client:
        for number in range(200):
            chat(client, deployed, json.dumps({"messages": [{"role": "user", "content": content(number)}]}).encode())
    assert max(deployed.shares().values()) <= 120
    assert min(deployed.shares().values()) > 0


def test_empty_bodies_are_spread(plane: DataPlane, fleet: Fleet) -> None:
    """The same rule on the native API."""
    deployed = fleet.deploy(4)
    with plane.client() as client:
        for _ in range(200):
            invoke(client, deployed, b"")
    assert max(deployed.shares().values()) <= 120
    assert min(deployed.shares().values()) > 0


def test_an_isolation_id_is_a_key_without_text_too(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(4)
    with plane.client() as client:
        for number in range(6):
            header = [(PREFIX_ID, f"tenant {number}")]
            assert len({invoke(client, deployed, b"", header) for _ in range(6)}) == 1


def test_ids_join_the_key_on_every_route(plane: DataPlane, fleet: Fleet) -> None:
    """The same id, the same host; 64 ids use all hosts; invocations and streams agree."""
    deployed = fleet.deploy(4)
    native: list[str] = []
    with plane.client() as client:
        for number in range(64):
            header = [(PREFIX_ID, f"k{number}")]
            first = invoke(client, deployed, prefix(0), header)
            assert invoke(client, deployed, prefix(0), header) == first
            answer = client.request(deployed.stream, prefix(0), header)
            assert b'"host": "%b"' % first.encode() in answer.body
            native.append(first)
        asked = [chat(client, deployed, chat_body("x", prompt_cache_key=f"k{number}")) for number in range(64)]
        assert asked == [chat(client, deployed, chat_body("x", prompt_cache_key=f"k{number}")) for number in range(64)]
        without = invoke(client, deployed, prefix(0))
        assert set(native) == set(asked) == {"h1", "h2", "h3", "h4"}
        assert {invoke(client, deployed, prefix(0)) for _ in range(3)} == {without}


def test_an_id_and_a_prefix_do_not_run_together(plane: DataPlane, fleet: Fleet) -> None:
    """B.3 rule 4: 'a' + 'bc' is another key than 'ab' + 'c'."""
    deployed = fleet.deploy(4)
    differ = 0
    with plane.client() as client:
        for number in range(24):
            one = invoke(client, deployed, b"b%d" % number, [(PREFIX_ID, "a")])
            two = invoke(client, deployed, b"%d" % number, [(PREFIX_ID, "ab")])
            differ += one != two
    # With independent keys 18 of 24 differ; with one key none would.
    assert differ > 8


def test_ids_of_64_characters_count_to_the_last(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(4)
    with plane.client() as client:
        found = {invoke(client, deployed, b"x", [(PREFIX_ID, "i" * 62 + f"{number:02d}")]) for number in range(24)}
        assert len(found) > 1
        keys = ["k" * 63 + f"{number:02d}" for number in range(24)]
        assert len({chat(client, deployed, chat_body("x", prompt_cache_key=key)) for key in keys}) > 1


@pytest.mark.parametrize("value", ["i" * 65, "é", "a\tb", "a\x7f", ""])
def test_a_bad_id_is_refused_where_prefixes_do_not_matter_too(plane: DataPlane, fleet: Fleet, value: str) -> None:
    """The header's form does not depend on the strategy; tests of names and routes are in test_invoke."""
    deployed = fleet.deploy(2, "RANDOM")
    with plane.client() as client:
        assert client.request(deployed.invocations, b"{}", [(PREFIX_ID, value)]).status == 400
    assert deployed.delivered == 0


def test_a_repeated_id_is_refused(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(2)
    with plane.client() as client:
        for target in (deployed.invocations, deployed.stream):
            assert client.request(target, b"{}", [(PREFIX_ID, "a"), (PREFIX_ID, "b")]).status == 400
    assert deployed.delivered == 0


def test_a_good_id_is_ignored_by_other_strategies(plane: DataPlane, fleet: Fleet) -> None:
    """B.3 rule 6"""
    deployed = fleet.deploy(3, "RANDOM")
    with plane.client() as client:
        for _ in range(60):
            invoke(client, deployed, b"x", [(PREFIX_ID, "id with a space")])
    assert min(deployed.shares().values()) > 0


def test_null_and_empty_cache_keys_are_absent(plane: DataPlane, fleet: Fleet) -> None:
    deployed = fleet.deploy(4)
    with plane.client() as client:
        for number in range(10):
            bodies = [chat_body(f"{number}", **members) for members in ({}, {"prompt_cache_key": None})]
            bodies.append(chat_body(f"{number}", prompt_cache_key=""))
            assert len({chat(client, deployed, body) for body in bodies}) == 1


@pytest.mark.parametrize("key", ["5", "[]", "{}", "true", '"\\ud83d"', '"' + "k" * 1_025 + '"'])
def test_bad_cache_keys_are_refused(plane: DataPlane, fleet: Fleet, key: str) -> None:
    """Wrong types, half a surrogate pair, over 1,024 characters; never cut."""
    deployed = fleet.deploy(2)
    with plane.client() as client:
        answer = client.request(deployed.chat, b'{"messages":[],"prompt_cache_key":%b}' % key.encode())
        assert answer.status == 400
        assert error_of(answer)["param"] == "prompt_cache_key"
    assert deployed.delivered == 0


def test_the_native_header_means_nothing_on_the_chat_route(plane: DataPlane, fleet: Fleet) -> None:
    """The body's prompt_cache_key is the id there."""
    deployed = fleet.deploy(4)
    with plane.client() as client:
        home = chat(client, deployed, chat_body("x"))
        for number in range(12):
            assert chat(client, deployed, chat_body("x"), [(PREFIX_ID, f"k{number}")]) == home


def test_both_workers_agree_on_every_home(plane: DataPlane, second_plane: DataPlane, fleet: Fleet) -> None:
    """They run with different PYTHONHASHSEED."""
    deployed = fleet.deploy(4)
    bodies = [prefix(number) for number in range(100)]
    texts = [chat_body(f"text {number}", prompt_cache_key="k") for number in range(50)]
    with plane.client() as one, second_plane.client() as two:
        assert homes(one, deployed, bodies) == homes(two, deployed, bodies)
        assert [chat(one, deployed, text) for text in texts] == [chat(two, deployed, text) for text in texts]


def test_many_prefixes_leave_nothing_behind(plane: DataPlane, fleet: Fleet) -> None:
    """No index of prefixes grows, here or in Redis."""
    deployed = fleet.deploy(4)
    with plane.client() as client:
        for number in range(1_000):
            invoke(client, deployed, prefix(number, 2_000))
        fleet.expect_idle(2.0)
        keys = fleet.stage.routes.redis.dbsize()
        before = plane.worker_bytes()
        for number in range(800, 2_800):
            invoke(client, deployed, prefix(number, 2_000))
        fleet.expect_idle(2.0)
        assert fleet.stage.routes.redis.dbsize() <= keys
        assert plane.worker_bytes() - before < 3 * 2**20

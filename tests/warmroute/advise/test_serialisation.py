import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmroute.advise import serialisation
from warmroute.advise.serialisation import CAUSES, Examiner, summary, writing_of

ORDER, WHITE, ESCAPES = CAUSES
VALUE = {"inputs": 'Grüße\n"x" \\ / {a: 1, b: 2}', "parameters": {"temperature": 1.0, "top": [1, 2]}}


def examined(*bodies: str | bytes) -> Examiner:
    examiner = Examiner()
    for number, body in enumerate(bodies, 1):
        examiner.add(number, body if isinstance(body, bytes) else body.encode())
    return examiner


def swapped(value: dict[str, Any]) -> dict[str, Any]:
    return dict(reversed(value.items()))


COMPACT = json.dumps(VALUE, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize(
    ("other", "causes"),
    [
        (json.dumps(VALUE, ensure_ascii=False), [WHITE]),
        (json.dumps(VALUE, ensure_ascii=False, indent=2), [WHITE]),
        (json.dumps(swapped(VALUE), separators=(",", ":"), ensure_ascii=False), [ORDER]),
        (json.dumps(VALUE, separators=(",", ":")), [ESCAPES]),
        (COMPACT.replace("/", "\\/"), [ESCAPES]),
        (COMPACT.replace("1.0", "1e0"), [ESCAPES]),
        (json.dumps(swapped(VALUE)), [ORDER, WHITE, ESCAPES]),
        (json.dumps(VALUE), [WHITE, ESCAPES]),
    ],
)
def test_the_same_json_in_other_bytes_is_found_with_its_cause(other: str, causes: list[str]) -> None:
    found = examined(COMPACT, other, COMPACT)
    assert (found.bodies, found.repeats, found.differing) == (3, 2, 1)
    assert [cause for cause, count in found.causes.items() if count] == causes
    assert found.example == (1, 2)
    assert found.is_mixed


def test_white_space_in_another_place_is_white_space() -> None:
    found = examined('{ "a":1}', '{"a": 1}')
    assert found.causes == {ORDER: 0, WHITE: 1, ESCAPES: 0}


def test_another_value_is_no_difference() -> None:
    found = examined('{"a": 1, "b": 2}', '{"a": 2, "b": 1}', '{"a": 1, "b": 2}')
    assert (found.repeats, found.differing, found.is_mixed) == (1, 0, False)


def test_habits_are_seen_without_any_body_coming_twice() -> None:
    found = examined(
        '{"a": 1, "b": [2, 3]}', '{"a":4,"b":[5]}', '{"b":6,"a":7}', '{"a":"é","b":1}', '{"a":"\\u00e9","b":2}'
    )
    assert {name: habit.bodies for name, habit in found.spaces.items()} == {"one": 1, "none": 4}
    assert found.spaces["none"].line == 2
    assert {name: habit.line for name, habit in found.texts.items()} == {"raw": 4, "escaped": 5}
    assert (found.reordered, found.reordered_at) == (1, (1, 3))
    assert found.is_mixed
    assert json.loads(json.dumps(summary(found)))["white_space"]["none"] == {"bodies": 4, "first_line": 2}


def test_values_without_a_place_for_white_space_have_no_habit() -> None:
    assert examined("1", '"a b, c: d"', "[]", "{}").spaces == {}
    assert not examined("1", '{"a": 1}', "[7]").is_mixed


def test_escapes_of_control_characters_are_no_habit() -> None:
    assert writing_of(b'"\xc3\xa9 \\u001b \\\\u00e9"', "é \x1b \\u00e9").text == "raw"
    assert writing_of(b'"\xc3\xa9 \\u00e9"', "é é").text == "both"


def test_what_is_no_json_is_counted() -> None:
    found = examined("plain", b"\xff", "[" * 5_000 + "]" * 5_000, "{}")
    assert (found.bodies, found.not_json) == (4, 3)


def test_memory_is_bounded_and_a_kept_value_is_compared_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serialisation, "VALUES_KEPT", 50)
    monkeypatch.setattr(serialisation, "SHAPES_KEPT", 5)
    examiner = Examiner()
    for spaced in (False, True):
        for number in range(400):
            body = {"a": number, f"m{number % 40}": 1}
            examiner.add(number, json.dumps(body, separators=(", ", ": ") if spaced else (",", ":")).encode())
    assert len(examiner._values) <= 50
    assert len(examiner._shapes) == 5
    assert examiner.differing > 5
    assert examiner.causes[WHITE] == examiner.differing


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab\"\\:,{ é", max_size=4), inner, max_size=3),
    max_leaves=10,
)  # fmt: skip


@given(JSON, st.booleans(), st.sampled_from([None, 1]), st.booleans())
def test_a_value_is_the_same_however_it_is_written(
    value: Any, ascii_only: bool, indent: int | None, sort: bool
) -> None:
    plain = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    other = json.dumps(value, ensure_ascii=ascii_only, indent=indent, sort_keys=sort).encode()
    one, two = writing_of(plain, json.loads(plain)), writing_of(other, json.loads(other))
    assert one.value == two.value
    assert one.white == 0
    assert two.white == len(other) - len(json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":")).encode())
    if indent is None:
        assert two.space in ("one", None)
    assert bool(one.raw != two.raw) == bool(plain != other)
    if plain != other:
        assert one.causes(two)

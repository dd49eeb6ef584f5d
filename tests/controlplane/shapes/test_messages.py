from hypothesis import given
from hypothesis import strategies as st

from controlplane.shapes.base import Failure
from controlplane.shapes.messages import (
    MESSAGE_CHARACTERS_MAX,
    PATH_CHARACTERS_MAX,
    VALUE_CHARACTERS_MAX,
    enum_constraint,
    failures_message,
    path_text,
    quoted,
)


def test_paths_are_lower_camel_and_count_items_from_one() -> None:
    assert path_text(("ProductionVariants", 0, "EnableSSMAccess")) == "productionVariants.1.member.enableSSMAccess"


def test_keys_of_a_map_stay_as_they_were_sent() -> None:
    assert path_text(("PrimaryContainer", "Environment", "HF_TOKEN")) == "primaryContainer.environment.HF_TOKEN"


def test_several_failures_are_counted() -> None:
    message = failures_message([Failure(("A",), "x", 1), Failure(("B",), "y")])
    assert message == (
        "2 validation errors detected: Value '1' at 'a' failed to satisfy constraint: x; "
        "Value at 'b' failed to satisfy constraint: y"
    )


def test_a_message_is_bounded_and_says_what_it_leaves_out() -> None:
    failures = [Failure((f"Member{n}",), "x" * 100, "v" * 1000) for n in range(500)]
    message = failures_message(failures)
    assert message.startswith("500 validation errors detected: ")
    assert len(message) <= MESSAGE_CHARACTERS_MAX
    shown = message.count("failed to satisfy")
    assert message.endswith(f"; and {500 - shown} more")


def test_a_short_set_of_values_is_listed() -> None:
    assert enum_constraint(("A", "B"), "c") == "Member must satisfy enum value set: [A, B]"


def test_a_long_set_of_values_is_cut_to_the_near_ones() -> None:
    values = tuple(f"ml.g{n}.xlarge" for n in range(100))
    text = enum_constraint(values, "ml.g7.xlrge")
    assert text.startswith("Member must satisfy enum value set: [ml.g7.xlarge, ")
    assert text.endswith("(100 values)")


def test_control_characters_are_escaped() -> None:
    assert quoted("a\r\nINFO fake \x1b[31m\u2028\ud83d") == r"a\r\nINFO fake \x1b[31m\u2028\ud83d"


@given(st.recursive(st.none() | st.integers() | st.floats() | st.text() | st.just("\ud83d\0"), st.lists))
def test_any_value_can_be_shown_on_one_line(value: object) -> None:
    shown = quoted(value)
    assert shown.isprintable()
    assert len(shown) <= VALUE_CHARACTERS_MAX * 10 + 3


def test_long_values_and_paths_are_cut() -> None:
    assert quoted("x" * 1000) == "x" * VALUE_CHARACTERS_MAX + "..."
    assert len(path_text(("X" * 100_000,))) == PATH_CHARACTERS_MAX + 3
    assert len(quoted(10**100_000)) < 50

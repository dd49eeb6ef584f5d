from warmroute.advise.report import writing_lines
from warmroute.advise.serialisation import Examiner


def examined(*bodies: str) -> Examiner:
    examiner = Examiner()
    for number, body in enumerate(bodies, 1):
        examiner.add(number, body.encode())
    return examiner


def test_bodies_that_are_written_alike_get_one_line() -> None:
    assert writing_lines(examined('{"a": 1}', '{"a": 1}', '{"a": 2}'), "native") == [
        "Serialisation: all bodies are written alike (1 are the same JSON as an earlier one)."
    ]
    assert writing_lines(None, "text") == writing_lines(Examiner(), "native") == []


def test_differences_are_told_with_their_lines_and_never_with_content() -> None:
    found = examined('{"secret": "ü", "n": 1}', '{"n":1,"secret":"ü"}', '{"secret": "\\u00fc", "n": 1}')
    said = "\n".join(writing_lines(found, "native"))
    assert "2 of 2 bodies that are the same JSON as an earlier one have other bytes" in said
    assert "order of keys 1, white space 1, escapes or the spelling of numbers 1. Compare lines 1 and 2." in said
    assert "white space after commas and colons: one in 2 (line 1); none in 1 (line 2)." in said
    assert "characters beyond ASCII: raw in 2 (line 1); escaped in 1 (line 3)." in said
    assert "In 1 bodies the members of an object come in another order than before. Compare lines 1 and 2." in said
    assert "has two homes" in said
    assert "secret" not in said
    assert "changes nothing there" in writing_lines(found, "chat")[-1]

import socket
from pathlib import Path

import msgspec
import pytest

from benchmarks.plot import Curve, Panel, Plot
from benchmarks.result import FORM, Result, Table, machine_facts, read, write

RESULT = Result(
    part="speed",
    what="How fast.",
    command="python -m benchmarks speed",
    quick=False,
    machine={"cores": 2},
    seeds=[1, 2],
    settings={"levels": [0.5, 8.0], "name": "x"},
    cpu_seconds=12.34,
    tables=[Table("one", "All of it.", ["rule", "us"], [["a", "1.5"], ["b", "2"]])],
    findings=["a is faster."],
    figures=[{"rule": "a", "us": [1.5, 1.0, 2.0]}],
)


def test_a_result_comes_back_as_it_was_written(tmp_path: Path) -> None:
    data, page = write(RESULT, tmp_path / "new")
    assert read(data) == RESULT
    assert page.read_text() == RESULT.markdown()


def test_plots_are_kept_as_data_drawn_beside_the_page_and_shown_on_it(tmp_path: Path) -> None:
    panel = Panel("left", "s", "hits", [Curve("a", [0, 1, 2], [0.1, 0.5, 0.4])])
    result = msgspec.structs.replace(RESULT, plots=[Plot("over-time", "Hits over time.", [panel])])
    data, page, picture = write(result, tmp_path)
    assert read(data) == result
    assert picture == tmp_path / "speed-over-time.png"
    assert picture.stat().st_size > 0
    assert "![Hits over time.](speed-over-time.png)" in page.read_text()


def test_a_page_has_what_it_takes_to_make_the_figures_again() -> None:
    page = RESULT.markdown()
    assert "`python -m benchmarks speed`" in page
    assert "12 s of CPU" in page
    assert "Seeds: 1, 2." in page
    assert "levels 0.5, 8; name x" in page
    assert "| rule | us |\n| --- | --- |\n| a | 1.5 |\n| b | 2 |" in page
    assert "- a is faster." in page


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(RESULT, form=FORM + 1)))
    with pytest.raises(ValueError, match=f"has form {FORM + 1}"):
        read(path)
    told = msgspec.json.decode(msgspec.json.encode(RESULT))
    for changed in ({**told, "more": 1}, {**told, "seeds": "1"}, {k: v for k, v in told.items() if k != "command"}):
        path.write_bytes(msgspec.json.encode(changed))
        with pytest.raises(msgspec.ValidationError):
            read(path)


def test_machine_facts_do_not_name_the_machine() -> None:
    facts = machine_facts("redis")
    assert facts["cores"]
    assert facts["Python"].count(".") == 2 if isinstance(facts["Python"], str) else False
    text = str(facts)
    assert socket.gethostname() not in text
    assert str(Path.cwd()) not in text
    assert str(Path.home()) + "/" not in text

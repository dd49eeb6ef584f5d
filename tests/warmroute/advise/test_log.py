import gzip
import io
import sys
from pathlib import Path

import pytest

from warmroute.advise import log
from warmroute.advise.log import Log
from warmroute.faults import Fault


def test_lines_have_their_numbers_and_blank_ones_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'1\r\n\n  \n"two"\n3')
    with Log(str(path)) as found:
        assert list(found.lines()) == [(1, b"1"), (4, b'"two"'), (5, b"3")]
        assert found.position() == found.bytes == path.stat().st_size


def test_a_gzip_file_is_unpacked_and_its_progress_is_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"1\n2\n"))
    with Log(str(path)) as found:
        assert list(found.lines()) == [(1, b"1"), (2, b"2")]
        assert found.bytes is not None
        assert 0 < found.position() <= found.bytes


def test_standard_input_is_read_and_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1\n")))
    with Log("-") as found:
        assert (found.bytes, list(found.lines())) == (None, [(1, b"1")])
    assert not sys.stdin.buffer.closed


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Fault, match=r"nothing\.jsonl cannot be read: No such file"):
        Log(str(tmp_path / "nothing.jsonl"))
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(b"1\n" * 1000)[:-9])
    with Log(str(cut)) as found, pytest.raises(Fault, match=r"cannot be read after line \d+: "):
        list(found.lines())
    none = tmp_path / "none.gz"
    none.write_bytes(b"plain")
    with Log(str(none)) as found, pytest.raises(Fault, match="after line 0: Not a gzipped file"):
        list(found.lines())


def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "LINE_BYTES_MAX", 100)
    path = tmp_path / "a"
    path.write_bytes(b"1\n" + b"x" * 1000)
    with Log(str(path)) as found, pytest.raises(Fault, match=r"line 2 of .* is longer than"):
        list(found.lines())

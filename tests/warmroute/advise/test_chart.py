from pathlib import Path

import pytest

from tests.warmroute.advise.test_choose import FEW, MANY, ONE, found
from tests.warmroute.advise.test_trials import figures
from warmroute.advise.chart import bars, check_plot, plot, wrapped
from warmroute.advise.choose import choose
from warmroute.advise.trials import Trial
from warmroute.faults import Fault

FOUND = found([
    Trial(ONE, 1024, figures(hit_rate=0.0, busiest=1.0)), Trial(FEW, 4, figures(hit_rate=0.2)),
    Trial(FEW, 8, figures(hit_rate=0.3), and_above=True), Trial(MANY, 8, figures(hit_rate=0.6), and_above=True),
])  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 200])
def test_bars_are_as_long_as_what_they_show(width: int) -> None:
    lines = bars(FOUND, choose(FOUND), width).splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "PrefixLength", "1,024-1,536", "2,048-4,096", "8,192", "all caches in one"]  # fmt: skip
    # The first bar ends with the first percentage.
    hits = [line.partition("%")[0].count("█") for line in lines[1:]]
    assert hits[0] == 0 < hits[1] < hits[2] == hits[3]
    assert lines[3].endswith("<")
    assert "30.0%" in lines[2]
    assert max(map(len, lines)) <= max(width, 75)


def test_words_are_wrapped_under_their_mark() -> None:
    assert wrapped("one two three", 9, "- ") == "- one two\n  three"


def test_a_plot_is_a_png(tmp_path: Path) -> None:
    check_plot(tmp_path / "a.png")
    plot(FOUND, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(Fault, match=r"nowhere/a\.png cannot be written: there is no directory"):
        check_plot(tmp_path / "nowhere" / "a.png")
    with pytest.raises(Fault, match=r"cannot be written: Is a directory"):
        plot(FOUND, tmp_path)


def test_without_matplotlib_a_plot_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Fault, match="needs matplotlib"):
        check_plot(tmp_path / "a.png")

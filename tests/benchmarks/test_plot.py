from pathlib import Path

import pytest

from benchmarks.plot import Bar, Curve, Panel, Plot, draw

PNG = b"\x89PNG\r\n\x1a\n"


def panel(shape: str = "line", **more: object) -> Panel:
    curves = [Curve(label, [1.0, 2.0, 3.0], [0.5, rise, 0.7], shape) for label, rise in (("a", 0.6), ("b", 0.9))]  # type: ignore[arg-type]
    return Panel("title", "seconds", "share", curves, **more)  # type: ignore[arg-type]


def picture(path: Path, *panels: Panel) -> bytes:
    draw(Plot("name", "What it shows.", list(panels)), path)
    return path.read_bytes()


@pytest.mark.parametrize("shape", ["line", "stairs", "bars", "dashed"])
def test_a_plot_is_a_png_and_the_same_one_each_time(shape: str, tmp_path: Path) -> None:
    first = picture(tmp_path / "one.png", panel(shape))
    assert first.startswith(PNG)
    assert first == picture(tmp_path / "two.png", panel(shape))


def test_what_a_plot_says_is_seen(tmp_path: Path) -> None:
    plain = panel()
    seen = [
        picture(tmp_path / "one.png", one)
        for one in (
            plain,
            panel(log_x=True),
            panel(y_from_zero=False),
            panel(marks=[1.5]),
            panel(ticks={"x": 1.0, "y": 2.0}),
            *(panel(shape) for shape in ("stairs", "bars", "dashed")),
        )
    ]
    assert len(set(seen)) == len(seen)


def test_panels_stand_side_by_side(tmp_path: Path) -> None:
    one, two = (picture(tmp_path / "one.png", *[panel()] * count) for count in (1, 2))
    widths = [int.from_bytes(data[16:20], "big") for data in (one, two)]
    assert widths[1] == 2 * widths[0]


def test_bars_lie_in_place_of_curves(tmp_path: Path) -> None:
    def bars(*words: str, is_ours: bool = False) -> Panel:
        return Panel("title", "us", "", [], bars=[Bar(name, 2.0, "2 (1.0x)", is_ours=is_ours) for name in words])

    shown = [
        picture(tmp_path / "one.png", panel) for panel in (bars("a", "b"), bars("a", "c"), bars("a", "b", is_ours=True))
    ]
    assert len(set(shown)) == len(shown)

from pathlib import Path

import pytest

from benchmarks.proxy import routers
from benchmarks.proxy.contenders import LeftOut
from benchmarks.proxy.routers import ROUTERS, Wheel


def test_a_wheel_that_cannot_be_had_is_left_out_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routers, "CACHE", tmp_path / "cache")
    # An index with nothing in it: nobody is asked.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    wheel = Wheel("a-router", "1.2.3", ())
    with pytest.raises(LeftOut, match=r"its wheel 1\.2\.3 was not installed by pip: .*a-router==1\.2\.3"):
        wheel.install()
    assert not wheel.home.exists()


def test_what_is_installed_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "CACHE", tmp_path)
    monkeypatch.setattr("subprocess.run", None)
    wheel = Wheel("a-router", "1.2.3", ())
    wheel.home.mkdir()
    wheel.home.joinpath("installed").touch()
    assert wheel.install() == tmp_path / "a-router-1.2.3" / "bin" / "a-router"


def test_the_cache_is_not_part_of_the_repository() -> None:
    ignored = Path(__file__).parents[2].joinpath(".gitignore").read_text().splitlines()
    assert f"{routers.CACHE.name}/" in ignored


def test_versions_are_exact_and_every_router_has_a_policy_by_prefix() -> None:
    assert {one.program for one in ROUTERS if one.by_prefix} == {one.program for one in ROUTERS}
    assert all(wheel.version.count(".") == 2 for wheel in (routers.SMG, routers.VLLM, routers.SGLANG))

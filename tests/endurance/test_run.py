from pathlib import Path

from tests.endurance.load import IN_TEN_THOUSAND, Manner
from tests.endurance.run import run


def test_some_seconds_of_the_documented_load_leave_nothing_wrong(tmp_path: Path) -> None:
    """docs/endurance.md: every answer exact, every break visible, descriptors back. Too short to tell of memory."""
    said: list[str] = []
    report = run(seconds=6, workers=2, rate=60, seed=3, directory=tmp_path, say=said.append)
    print(report.text())
    assert [line for line in report.wrong if not line.startswith("memory of worker")] == []
    assert sum(report.done.values()) >= 300
    assert len(said) == 60
    assert report.after is not None
    assert report.after.descriptors == report.before.descriptors
    assert max(max(sample.descriptors) for sample in report.during) > max(report.before.descriptors)


def test_one_in_a_hundred_leaves_and_one_meets_a_failing_host() -> None:
    assert sum(count for manner, count in IN_TEN_THOUSAND.items() if manner.is_left) == 100
    assert IN_TEN_THOUSAND[Manner.NO_ANSWER] + IN_TEN_THOUSAND[Manner.BROKEN] == 100

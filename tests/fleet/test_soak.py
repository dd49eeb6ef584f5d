from pathlib import Path

import pytest

from tests.fleet import soak


@pytest.mark.timeout(240)
def test_a_minute_of_faults_leaves_no_wrong_count_and_no_failure_unexplained(tmp_path: Path) -> None:
    """The documented command's run, for 60 s; docs/soak.md."""
    report = soak.run(minutes=1, workers=4, seed=1, directory=tmp_path)
    explained = report.explain()
    print(report.table(explained))
    assert report.wrong == []
    assert report.checks >= 9
    assert {event.kind for event in report.events} >= {"worker killed", "worker paused", "routes switched"}
    assert {event.kind for event in report.events} & {"Redis frozen", "Redis restarted empty", "Redis flushed"}

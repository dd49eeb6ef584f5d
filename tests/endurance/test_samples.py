import os
from collections.abc import Sequence

import pytest

from tests.endurance.samples import Sample, faults, growth, table, take


def sample(at: float, *rss: float, descriptors: Sequence[int] = (20, 20), pids: Sequence[int] = (1, 2)) -> Sample:
    return Sample(at, int(at), tuple(pids), tuple(int(size * 1e6) for size in rss), tuple(descriptors), at)


def run(last: float, *, spike: float = 50.0) -> list[Sample]:
    """A sample a second for 600 s: 100 s of growth, then flat until 500 s, then ``last``; one is ``spike``."""
    found = [sample(at, 50 if at > 100 else 30 + at / 5, 50 if at < 500 else last) for at in range(1, 601)]
    found[300] = sample(301, 50, spike)
    return found


BEFORE, AFTER = sample(0, 40, 40), sample(600, 60, 60)


def test_growth_is_told_for_each_worker() -> None:
    assert growth(run(55), 100) == [0.0, pytest.approx(0.1)]


def test_growth_before_the_first_minutes_are_over_does_not_count() -> None:
    assert growth(run(50), 100)[0] == 0.0
    assert growth(run(50), 0)[0] > 0.2


def test_a_body_in_passing_is_no_growth() -> None:
    assert growth(run(50, spike=500), 100) == [0.0, 0.0]


def test_too_few_samples_are_no_result() -> None:
    with pytest.raises(ValueError, match="only 1 samples after 600 s"):
        growth(run(50), 600)


def test_a_flat_run_has_no_fault() -> None:
    assert faults(BEFORE, run(52), AFTER, 100) == []


def test_memory_that_grew_is_one() -> None:
    (said,) = faults(BEFORE, run(52.6), AFTER, 100)
    assert said == "memory of worker 2 grew by 5.2% after the first 100 s"


def test_descriptors_that_stayed_are_one() -> None:
    (said,) = faults(BEFORE, run(50), sample(600, 50, 50, descriptors=(20, 21)), 100)
    assert said == "descriptors were (20, 20) before the load and are (20, 21) after it"


def test_a_worker_that_was_started_anew_is_one() -> None:
    """Its memory tells nothing."""
    assert faults(BEFORE, run(99), sample(600, 10, 10, pids=(1, 3)), 100) == ["a worker ended and was started anew"]


def test_the_table_has_the_ends_and_medians_between() -> None:
    lines = table(BEFORE, run(55), AFTER, rows=6).splitlines()
    assert [line.split()[0] for line in lines] == ["until,", "before", "99", "199", "299", "399", "499", "600", "after"]
    assert lines[-2].split()[-2:] == ["55.0", "20"]


def test_a_sample_is_of_the_living() -> None:
    found = take(1.5, 7, [os.getpid()])
    assert found.rss[0] > 1e6
    assert found.descriptors[0] >= 3
    with open(os.devnull) as _:
        assert take(1.5, 7, [os.getpid()]).descriptors[0] == found.descriptors[0] + 1
    assert found.cpu_seconds > 0
    with pytest.raises(OSError, match="No such file"):
        take(0, 0, [2**22 + 1])

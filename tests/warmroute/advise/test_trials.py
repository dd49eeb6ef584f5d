import dataclasses

import pytest

from simulator.calibration import LLAMA_3_1_70B_8XH100 as PROFILE
from tests.warmroute.advise.test_fleet import load
from warmroute.advise.fleet import Figures
from warmroute.advise.spool import Kept, Spool
from warmroute.advise.trials import Group, Replays, Trial, lower, run_all, same_groups, settled

FIGURES = Figures(100, 0, 0.5, 0.1, 0.2, 0.3, 0.0, 0.0, 0.15, at_home=5)
GROUP = Group((1024,), 4, 0.3)


def figures(**changes: float) -> Figures:
    return dataclasses.replace(FIGURES, **changes)  # type: ignore[arg-type]


def test_lengths_with_as_many_groups_are_one() -> None:
    assert same_groups([1024, 2048, 4096, 8192], [1, 1, 9, 9], [1.0, 1.0, 0.2, 0.2], [True, True, False, False]) == [
        Group((1024, 2048), 1, 1.0), Group((4096, 8192), 9, 0.2, exact=False)
    ]  # fmt: skip


def test_a_threshold_that_nobody_reaches_stands_for_all_above() -> None:
    assert settled(GROUP, (2, 4, 8, 1024), figures()) == Trial(GROUP, 8, figures(), and_above=True)
    assert settled(GROUP, (2, 4), figures()) == Trial(GROUP, 4, figures(), and_above=False)
    over = figures(overflow=0.1)
    assert settled(GROUP, (2, 1024), over) == Trial(GROUP, 1024, over, and_above=False)


def test_lower_thresholds_are_tried_where_they_may_matter() -> None:
    far = Group((2048,), 9, 0.1)
    trials = [Trial(GROUP, 8, figures()), Trial(far, 8, figures(hit_rate=0.4))]
    assert lower(trials, (2, 4, 8, 16), 7) == [(GROUP, 2), (GROUP, 4)]
    unlevel = Trial(far, 4, figures(hit_rate=0.1, busiest=0.3))
    assert lower([trials[0], unlevel], (2, 4), 7) == [(GROUP, 2), (GROUP, 4), (far, 2)]
    assert lower(trials, (2, 4), 1) == []


@pytest.mark.parametrize("hosts", [1, 3])
def test_what_is_replayed_is_told_as_it_goes(hosts: int) -> None:
    with Spool(100) as spool:
        for at, kept in load(60, 6, gap=0.05):
            # The second length puts all into one group.
            spool.add(at, Kept(kept.prompt_tokens, kept.output_tokens, [1, kept.keys[0]], kept.blocks))
        replays = Replays(spool, (1024, 2048), hosts, PROFILE, None)
        left: list[int] = []
        found = run_all(
            replays, same_groups((1024, 2048), (1, 6), (1.0, 1 / 6), (True, True)), (1, 4, 1024), left.append
        )
        assert left[-1] == 0
        assert len(left) == len(found.trials) + 1
        for trial in found.trials:
            assert trial.figures == replays.run(trial.group.lengths[0], trial.threshold)
            if trial.and_above:
                assert trial.figures == replays.run(trial.group.lengths[0], 1024)
        assert found.hosts == hosts
        assert found.pooled >= max(found.random.hit_rate, found.least_outstanding.hit_rate)
        assert replays.is_assumed is False
    order = [(trial.group.lengths, trial.threshold) for trial in found.trials]
    assert order == sorted(order)
    assert len(set(order)) == len(order)
    assert hosts == 3 or len(order) == 2

from collections.abc import Sequence

import pytest

from tests.warmroute.advise.test_trials import figures
from warmroute.advise.choose import busiest_max, choose, middle
from warmroute.advise.trials import Found, Group, Trial

ONE = Group((1024, 1536), 1, 1.0)
FEW = Group((2048, 3072, 4096), 70, 0.1)
MANY = Group((8192,), 900, 0.01)


def found(trials: Sequence[Trial], hosts: int = 7, least: float = 0.1) -> Found:
    return Found(hosts, list(trials), figures(hit_rate=0.09), figures(hit_rate=least), 0.6)


def test_the_best_level_pair_is_recommended_with_its_reasons() -> None:
    advice = choose(found([
        Trial(ONE, 1024, figures(hit_rate=0.58, busiest=0.9)), Trial(ONE, 4, figures(hit_rate=0.1, overflow=0.7)),
        Trial(FEW, 16, figures(hit_rate=0.5)), Trial(FEW, 4, figures(hit_rate=0.4, overflow=0.1)),
        Trial(MANY, 16, figures(hit_rate=0.3)),
    ]))  # fmt: skip
    assert (advice.strategy, advice.prefix_length, advice.concurrency_threshold) == ("PREFIX_AWARE", 3072, 16)
    said = " ".join(advice.reasons)
    assert "50.0% of the prompt tokens are found in a cache, against 10.0% with LEAST_OUTSTANDING_REQUESTS" in said
    assert "Shorter, at 1,536, there is 1 group and at best 58.0% is found, with 90.0% of the requests on the" in said
    assert "Longer, at 8,192, there are 900 groups and at best 30.0% is found." in said
    assert "at 4, the next lower one, 10.0% would, and 10.0 points less be found" in said


def test_of_thresholds_as_good_the_lowest_that_few_overflow() -> None:
    trials = [Trial(FEW, 32, figures(hit_rate=0.5)), Trial(FEW, 16, figures(hit_rate=0.499, overflow=0.01)),
              Trial(FEW, 8, figures(hit_rate=0.497, overflow=0.1))]  # fmt: skip
    assert choose(found(trials)).concurrency_threshold == 16
    hot = [Trial(FEW, 32, figures(hit_rate=0.5, overflow=0.2)), Trial(FEW, 8, figures(hit_rate=0.499, overflow=0.3))]
    assert choose(found(hot)).concurrency_threshold == 8


def test_of_lengths_as_good_the_more_level() -> None:
    trials = [Trial(FEW, 8, figures(hit_rate=0.503, busiest=0.175)), Trial(MANY, 8, figures(hit_rate=0.5))]
    assert choose(found(trials)).prefix_length == 8192


def test_where_no_pair_is_level_the_most_level_is_taken_and_it_says_so() -> None:
    advice = choose(found([Trial(ONE, 1024, figures(hit_rate=0.5, busiest=0.9)),
                           Trial(FEW, 8, figures(hit_rate=0.4, busiest=0.5))]))  # fmt: skip
    assert advice.prefix_length == 3072
    assert any("The busiest host gets 3.5 times its even share" in reason for reason in advice.reasons)


def test_a_pair_that_lets_hosts_queue_is_not_taken() -> None:
    """The busiest host has little more than the others, and yet more than it can do."""
    trials = [Trial(FEW, 32, figures(hit_rate=0.5, ttft_p90_s=0.26)), Trial(FEW, 8, figures(hit_rate=0.45))]
    assert choose(found(trials)).concurrency_threshold == 8
    assert choose(found(trials[:1])).concurrency_threshold == 32


def test_a_saturated_fleet_is_warned_of() -> None:
    advice = choose(found([Trial(FEW, 8, figures(saturated=0.5))]))
    assert any("needs more hosts" in reason for reason in advice.reasons)
    assert any("50.0% meet all hosts at the threshold; no lower one was tried" in reason for reason in advice.reasons)


@pytest.mark.parametrize(("hosts", "least", "said"), [(7, 0.495, "share too little"), (1, 0.1, "at least two")])
def test_prefix_aware_is_not_recommended_where_it_does_nothing(hosts: int, least: float, said: str) -> None:
    advice = choose(found([Trial(FEW, 8, figures(hit_rate=0.5, busiest=1 / hosts))], hosts, least))
    assert advice.strategy == "LEAST_OUTSTANDING_REQUESTS"
    assert said in advice.reasons[0]


def test_one_of_few_hosts_never_gets_nearly_all() -> None:
    assert [busiest_max(hosts) for hosts in (1, 2, 4, 10)] == [1, 0.75, 0.5, 0.2]


def test_the_middle_of_equal_lengths_is_far_from_both_ends() -> None:
    assert middle([1024]) == 1024
    assert middle([2048, 3072, 4096]) == 3072
    assert middle([2048, 3072, 4096, 6144]) == 3072
    assert middle([8192, 16384, 32768, 65536]) == 8192

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.proxy.latency import percentile, uncorrected

HISTOGRAMS = st.dictionaries(st.integers(0, 400), st.integers(1, 50), max_size=40)


def corrected(histogram: dict[int, int], interval: int) -> dict[int, int]:
    """What wrk 4.1 makes of it, as its stats_correct does: upwards, each count spread over what is below."""
    counts = dict(histogram)
    for latency in range(2 * interval, max(counts, default=0) + 1):
        below = latency - interval
        while counts.get(latency, 0) and below > interval:
            counts[below] = counts.get(below, 0) + counts[latency]
            below -= interval
    return counts


@given(HISTOGRAMS, st.integers(1, 100))
def test_what_wrk_adds_is_taken_back(histogram: dict[int, int], interval: int) -> None:
    assert uncorrected(corrected(histogram, interval), interval) == histogram


@given(HISTOGRAMS)
def test_nothing_is_taken_back_where_wrk_added_nothing(histogram: dict[int, int]) -> None:
    assert uncorrected(histogram, 0) == histogram
    assert uncorrected(histogram, 1_000) == histogram


@given(st.lists(st.integers(0, 50), min_size=1), st.floats(0.01, 1.0))
def test_a_percentile_is_the_least_that_enough_are_not_above(latencies: list[int], share: float) -> None:
    histogram = {value: latencies.count(value) for value in latencies}
    found = percentile(histogram, share)
    assert found in histogram
    assert sum(value <= found for value in latencies) >= share * len(latencies)
    assert sum(value < found for value in latencies) < share * len(latencies)


def test_percentiles_of_known_latencies() -> None:
    hundred = dict.fromkeys(range(1, 101), 1)
    assert [percentile(hundred, share) for share in (0.5, 0.99, 1.0)] == [50, 99, 100]
    assert percentile({}, 0.5) == 0

"""Percentiles of what a generator saw, without what wrk adds to it. Pure.

wrk fills in for requests that a slow answer held back: below a latency of n it counts one more at each of n less the
mean interval, less twice that, and so on (its stats_correct). That answers how long users would have waited who come by
a clock, and the faster the server, the more it adds; the difference of two servers would be of two corrections.
"""

from collections.abc import Mapping


def uncorrected(histogram: Mapping[int, int], interval: int) -> dict[int, int]:
    """Return the latencies as they were seen. Both in whole us; ``interval``: wrk's, of one connection's requests."""
    left = dict(histogram)
    if interval > 0:
        for latency in sorted(histogram, reverse=True):
            if latency < 2 * interval:
                break
            for below in range(latency - interval, interval, -interval):
                left[below] = left.get(below, 0) - left[latency]
    return {latency: count for latency, count in left.items() if count}


def percentile(histogram: Mapping[int, int], share: float) -> int:
    """Return the least latency that ``share`` of all are not above; 0 when there are none."""
    wanted, seen = share * sum(histogram.values()), 0
    for latency in sorted(histogram):
        seen += histogram[latency]
        if seen >= wanted:
            return latency
    return 0

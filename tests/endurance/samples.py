"""Memory and open descriptors of a data plane's workers over time, and whether they stayed as they were."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

GROWTH_MAX = 0.05
WINDOWS = 10
"""A run's samples are compared by medians over a tenth of it each: one large body in passing is no growth."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Sample:
    """One moment. A value per worker, in order of their process ids."""

    at: float
    """Seconds since the load began."""
    requests: int
    """Ended so far."""
    pids: tuple[int, ...]
    rss: tuple[int, ...]
    """Bytes."""
    descriptors: tuple[int, ...]
    cpu_seconds: float
    """Of all workers so far."""


def take(at: float, requests: int, pids: Sequence[int]) -> Sample:
    """Look at the processes now. Raises OSError when one is gone."""
    rss = tuple(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES for pid in pids)
    descriptors = tuple(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)
    return Sample(at, requests, tuple(pids), rss, descriptors, sum(map(cpu_seconds, pids)))


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def growth(samples: Sequence[Sample], settled: float) -> list[float]:
    """Return for each worker by how much memory grew after ``settled`` seconds: 0.05 is 5%.

    The highest of the later windows against the first. Raises ValueError when there are too few samples to tell.
    """
    later = [sample for sample in samples if sample.at >= settled]
    if len(later) < 2:
        raise ValueError(f"only {len(later)} samples after {settled:.0f} s")
    width = samples[-1].at / WINDOWS
    windows: dict[int, list[Sample]] = {}
    for sample in later:
        windows.setdefault(min(int((sample.at - settled) / width), WINDOWS - 1), []).append(sample)
    medians = [[median(sample.rss[worker] for sample in windows[key]) for key in sorted(windows)]
               for worker in range(len(samples[0].rss))]  # fmt: skip
    return [max(values[1:], default=values[0]) / values[0] - 1 for values in medians]


def faults(before: Sample, during: Sequence[Sample], after: Sample, settled: float) -> list[str]:
    """Return what is wrong: memory that grew, descriptors that stayed, workers that were started anew."""
    if any(sample.pids != before.pids for sample in (*during, after)):
        return ["a worker ended and was started anew"]
    found = [
        f"memory of worker {pid} grew by {share:.1%} after the first {settled:.0f} s"
        for pid, share in zip(before.pids, growth(during, settled), strict=True)
        if share >= GROWTH_MAX
    ]
    if after.descriptors != before.descriptors:
        found.append(f"descriptors were {before.descriptors} before the load and are {after.descriptors} after it")
    return found


def table(before: Sample, during: Sequence[Sample], after: Sample, rows: int = 30) -> str:
    """Return the samples as text: medians over ``rows`` equal spans, with the first and the last sample."""
    width = during[-1].at / rows
    spans: dict[int, list[Sample]] = {}
    for sample in during:
        spans.setdefault(min(int(sample.at / width), rows - 1), []).append(sample)
    lines = [f"{'until, s':>9}  {'requests':>9}  {'CPU, s':>8}  RSS in MB and descriptors of each worker"]
    for name, found in [("before", [before]), *(("", spans[key]) for key in sorted(spans)), ("after", [after])]:
        last = found[-1]
        workers = "   ".join(
            f"{median(s.rss[n] for s in found) / 1e6:6.1f} {median(s.descriptors[n] for s in found):5.0f}"
            for n in range(len(last.rss))
        )
        lines.append(f"{name or format(last.at, '.0f'):>9}  {last.requests:>9,}  {last.cpu_seconds:>8.1f}  {workers}")
    return "\n".join(lines)

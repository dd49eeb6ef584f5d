"""``python -m tests.fuzz --minutes 60 --seed 1``: fuzz for a while; print every finding with its input.

A case is named by part, seed and number, and is run again by ``--part wire --seed 1 --only 4711``.
"""

import argparse
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.fuzz import keys, parsers, wire, worker
from tests.fuzz.report import Finding

SLICE_SECONDS = 5.0
FINDINGS_MAX = 10
"""Of one part; most are one fault over and over."""
PARTS = ("wire", "worker", "keys", "parsers")

Run = Callable[[random.Random], None]


def case(part: str, run: Run, seed: int, number: int) -> bool:
    """Run one case; print and return whether it found something."""
    try:
        run(random.Random(f"{seed}:{number}"))
    except Finding as finding:
        print(f"FOUND {part}, --part {part} --seed {seed} --only {number}\n{finding}\n", flush=True)
        return True
    return False


def main(arguments: list[str] | None = None) -> int:
    """Return the exit code: 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time; it is printed")
    parser.add_argument("--part", choices=PARTS, action="append", help="one or several; default: all")
    parser.add_argument("--only", type=int, help="run this case alone")
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}", flush=True)
    with contextlib.ExitStack() as stack:
        runs: dict[str, Run] = {"wire": wire.run, "keys": keys.run, "parsers": parsers.run}
        chosen = given.part or list(PARTS)
        if "worker" in chosen:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fuzz-")))
            runs["worker"] = stack.enter_context(worker.running(directory)).run
        if given.only is not None:
            return max(case(part, runs[part], given.seed, given.only) for part in chosen)
        return _rounds({part: runs[part] for part in chosen}, given.seed, given.minutes * 60)


def _rounds(runs: dict[str, Run], seed: int, seconds: float) -> int:
    ends = time.monotonic() + seconds
    done, found = dict.fromkeys(runs, 0), dict.fromkeys(runs, 0)
    while time.monotonic() < ends and min(found.values()) < FINDINGS_MAX:
        for part, run in runs.items():
            pause = min(ends, time.monotonic() + SLICE_SECONDS)
            while time.monotonic() < pause and found[part] < FINDINGS_MAX:
                found[part] += case(part, run, seed, done[part])
                done[part] += 1
    print("; ".join(f"{part}: {done[part]} cases, {found[part]} findings" for part in runs))
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())

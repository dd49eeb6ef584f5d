"""An endurance run from the command line. See docs/endurance.md.

.venv/bin/python -m tests.endurance --minutes 30
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.endurance.run import run


def main() -> int:
    """Run, print the samples, and return 0 when nothing is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.endurance", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=60, help="requests a second")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="endurance-") as directory:
        report = run(
            options.minutes * 60, options.workers, options.rate, options.seed, Path(directory),
            lambda line: print(line, flush=True),
        )  # fmt: skip
    print(report.text())
    for line in report.wrong:
        print("WRONG", line)
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

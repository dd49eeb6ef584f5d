"""``python -m benchmarks [PART ...] [--quick] [--only A,B] [--results DIR]``: without a part, all of them."""

import argparse
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks import documents
from benchmarks.errors import BenchmarkError, InputMissing
from benchmarks.result import DIRECTORY, Result, write

PARTS = {
    "announcement": "the announcement's benchmark in virtual time: its table, theirs beside ours",
    "scaling": "seven hosts become eight, and eight seven, under load, in virtual time",
    "sockets": "a small case in virtual time and over real sockets: do they agree",
    "trace": "a production trace with its own timestamps, in virtual time: strategies, lengths, thresholds",
    "engine": "a real engine's prompt caches on the CPU behind the whole product, strategy by strategy",
    "rivals": "the LLM routers' cache policies and the product in front of the same real prompt caches",
    "overflow": "where a request goes when its home is busy: the product's rule and others, in virtual time",
    "admission": "what choosing and counting a request costs a worker and Redis",
    "scale": "what a request costs the workers as instances, endpoints, workers and open streams grow",
    "proxy": "what the hop costs: the worker, nginx and the LLM routers in front of the same hosts",
    "access": "what it costs to know a caller, and what one caller's flood costs another",
}
"""Each is a package here whose module ``study`` has ``run(quick, say) -> Result``; some take ``only``, too."""
DOCS = "docs"


def main(arguments: Sequence[str]) -> int:
    """Run the parts asked for; return the exit code."""
    options = _parser().parse_args(arguments)
    unknown = [part for part in options.parts if part not in PARTS and part != DOCS]
    if unknown:
        print(f"There is no part {', '.join(unknown)}. Parts: {', '.join([*PARTS, DOCS])}.", file=sys.stderr)
        return 2
    code = 0
    only = [name.strip() for name in options.only.split(",") if name.strip()]
    for part in options.parts or [*PARTS, DOCS]:
        if part == DOCS:
            if not options.quick:
                documents.refresh()
            continue
        try:
            result = _run(part, only)(
                quick=options.quick, say=lambda text, part=part: print(f"{part}: {text}", flush=True)
            )
        except BenchmarkError as error:
            # The other parts can be had all the same; its own results stay as they are.
            print(f"{part}: not measured: {error}", file=sys.stderr)
            if options.parts or not isinstance(error, InputMissing):
                code = 2
            continue
        _show(result)
        # Figures of a quick run mean nothing and some are not all: they never take the place of real ones.
        directory = options.results or (None if options.quick or only else DIRECTORY)
        if directory is not None:
            for path in write(result, directory):
                print(f"wrote {path.name}")
    return code


def _run(part: str, only: Sequence[str]) -> Callable[..., Result]:
    # Late, so that one part needs nothing of another.
    run: Callable[..., Result] = importlib.import_module(f"benchmarks.{part}.study").run
    if not only:
        return run
    if "only" not in inspect.signature(run).parameters:
        raise BenchmarkError("it takes no --only")
    return partial(run, only=only)


def _show(result: Result) -> None:
    print()
    for table in result.tables:
        if table.name == "everything":
            continue
        lines = [table.columns, *table.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(table.columns))]
        print(f"{table.name}: {table.caption}\n")
        for line in lines:
            print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
        print()
    for finding in result.findings:
        print(finding)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, and write results/.")
    told = "; ".join(f"{name}: {text}" for name, text in PARTS.items())
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{told}; {DOCS}: copy the tables into the documents")
    parser.add_argument("--quick", action="store_true", help="only show that the parts work; nothing is kept")
    parser.add_argument(
        "--only", default="", metavar="A,B", help="of proxy: programs, contenders and loads by name; keeps nothing"
    )
    parser.add_argument(
        "--results", type=Path, metavar="DIR", help="where the results go instead of benchmarks/results"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

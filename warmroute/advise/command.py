"""``warmroute advise``: options, one pass over the log, the replays, and what comes of them."""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from warmroute.advise.log import Log
from warmroute.faults import Fault

FORMS = ("auto", "native", "chat", "text", "mooncake")
LAST = 20_000
ENGINE = "llama-3.1-70b-8xh100"
PAGE_WIDTH_MAX = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``warmroute advise`` to ``parser``."""
    add = parser.add_argument
    add(
        "--log",
        required=True,
        metavar="FILE",
        help="JSON Lines, one request a line; .gz is unpacked; - reads the input",
    )
    told = "a body of InvokeEndpoint, a chat completions body, a message text or a line of a Mooncake trace"
    add("--format", choices=FORMS, default="auto", help=f"what a line is: {told}; auto: the first line tells")
    add("--hosts", type=_whole(1, 1000), default=3, metavar="N", help="model hosts of the endpoint (%(default)s)")
    add("--json", action="store_true", help="print one JSON object instead of a page")
    add("--plot", type=Path, metavar="FILE", help="also draw the trade-off into a PNG; needs matplotlib")
    add("--prefix-lengths", type=_wholes(1024, 65_536), metavar="N,...", help="candidates (13 from 1024 to 65536)")
    add("--thresholds", type=_wholes(1, 1024), metavar="N,...", help="candidates (powers of two from 2 to 1024)")
    replayed = "requests to replay, the last of the log (%(default)s); groups are counted over all of it"
    add("--last", type=_whole(1, 10**7), default=LAST, metavar="N", help=replayed)
    add("--skip-bad", action="store_true", help="skip and count lines that are no requests instead of ending")
    group = parser.add_argument_group("where a line is more than the body")
    add = group.add_argument
    add("--body", metavar="MEMBER", help="member of the line that has the body; dots lead into inner objects")
    add("--time", metavar="MEMBER", help="member with the arrival: seconds, milliseconds or ISO 8601")
    add("--id", metavar="MEMBER", help="member with X-Amzn-SageMaker-Prefix-Aware-Id")
    group = parser.add_argument_group("what is simulated")
    add = group.add_argument
    rate = "requests a second over all hosts (the log's; without times in it, one for each host)"
    add("--rate", type=_positive, metavar="R", help=rate)
    add("--engine", metavar="NAME", default=ENGINE, help="the simulator's profile of a host (%(default)s)")
    add("--cache-tokens", type=_whole(16, 10**9), metavar="N", help="tokens in a host's KV cache (the profile's)")
    answer = "tokens of an answer where the log does not tell, or the most its request allows (%(default)s)"
    add("--output-tokens", type=_whole(1, 100_000), default=200, metavar="N", help=answer)


def run(options: argparse.Namespace) -> int:
    """Give advice; return the exit code. Raises Fault."""
    from warmroute.advise import chart, choose, report, trials
    from warmroute.advise.forms import Members
    from warmroute.advise.intake import How, Intake
    from warmroute.advise.spool import Spool

    if options.plot is not None:
        chart.check_plot(options.plot)
    profile = _profile(options.engine, options.cache_tokens)
    lengths = options.prefix_lengths or trials.LENGTHS
    how = How(options.format, Members(options.body, options.time, options.id), options.output_tokens, options.skip_bad)
    with _disk(), Spool(options.last) as spool, Log(options.log) as log:
        intake = Intake(spool, lengths, how)
        with _bar("reading", log.bytes, "B") as bar:
            intake.take(log, lambda position: _move(bar, position))
        replays = trials.Replays(spool, lengths, options.hosts, profile, options.rate)
        with _bar("replaying", None, " runs") as bar:
            found = trials.run_all(
                replays, intake.groups(), options.thresholds or trials.THRESHOLDS, lambda left: _count(bar, left)
            )
        read = report.read_of(intake, log.name, replays, profile)
    advice = choose.choose(found)
    if options.plot is not None:
        chart.plot(found, options.plot)
    if options.json:
        print(json.dumps(report.as_json(read, found, advice), indent=2))
    else:
        width = min(PAGE_WIDTH_MAX, shutil.get_terminal_size((PAGE_WIDTH_MAX, 24)).columns)
        print(_printable(report.page(read, found, advice, width), sys.stdout.encoding), end="")
    return 0


@contextmanager
def _disk() -> Iterator[None]:
    """Whatever else fails in here says so itself; what is left is the disk of the temporary files."""
    try:
        yield
    except OSError as error:
        where = tempfile.gettempdir()
        raise Fault(
            f"{where} cannot keep the last requests: {error.strerror}; name another directory in TMPDIR, or give a "
            "smaller --last"
        ) from None


def _bar(what: str, total: int | None, unit: str) -> Any:
    """Return a progress bar on standard error; none where that is no terminal."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    return tqdm(desc=what, total=total, unit=unit, unit_scale=unit == "B", leave=False, disable=None, file=sys.stderr)


def _move(bar: Any, position: int) -> None:
    bar.update(position - bar.n)


def _count(bar: Any, left: int) -> None:
    bar.total = bar.n + 1 + left
    bar.update(1)


def _printable(text: str, encoding: str) -> str:
    """Return ``text`` in what the terminal can show."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join("#" if character == "█" else character for character in text if character.isascii() or
                       character == "█").encode("ascii", "replace").decode()  # fmt: skip
    return text


def _profile(name: str, cache_tokens: int | None) -> Any:
    from simulator.calibration import BLOCK_TOKENS, PROFILES

    if name not in PROFILES:
        raise Fault(f"there is no engine {name}; there are {', '.join(sorted(PROFILES))}")
    profile = PROFILES[name]
    return profile if cache_tokens is None else replace(profile, kv_blocks=cache_tokens // BLOCK_TOKENS)


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return parse


def _wholes(low: int, high: int) -> Callable[[str], tuple[int, ...]]:
    parse_one = _whole(low, high)
    return lambda text: tuple(sorted({parse_one(one.strip()) for one in text.split(",")}))


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 and below a million")
    return value

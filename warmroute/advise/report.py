"""What the command says: a page for people, and one JSON object for programs. No prompt is in either. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from simulator.calibration import BLOCK_TOKENS, Profile
from warmroute.advise import chart
from warmroute.advise.choose import Advice
from warmroute.advise.intake import Intake
from warmroute.advise.serialisation import Examiner, summary
from warmroute.advise.trials import Found, Group, Replays, Trial

KEYS = {
    "native": "bytes of the body (InvokeEndpoint)",
    "chat": "characters of the messages' text (OpenAI API)",
    "text": "characters of the text (OpenAI API)",
    "mooncake": "characters of the text, four to a token (OpenAI API)",
}


@dataclass(frozen=True, slots=True)
class Read:
    """What one pass over the log says."""

    log: str
    form: str
    requests: int
    skipped: int
    """Lines that are no requests, where the user allows it."""
    without_key: int
    groups: list[Group]
    alone: dict[int, float]
    """PrefixLength -> share of its groups that have one request."""
    writing: Examiner | None
    """None where the log has no bodies."""
    replayed: int
    seconds: float
    """Between the first and the last of the requests that are replayed."""
    assumed_rate: bool
    """The log has no times."""
    engine: str
    cache_tokens: int


def read_of(intake: Intake, log: str, replays: Replays, profile: Profile) -> Read:
    """Return what was read, after the replays were set up."""
    return Read(
        log=log,
        form=intake.form,
        requests=intake.requests,
        skipped=intake.skipped,
        without_key=intake.without_key,
        groups=intake.groups(),
        alone=intake.alone(),
        writing=intake.writing if intake.writing.bodies else None,
        replayed=len(replays.arrivals),
        seconds=replays.arrivals[-1][0],
        assumed_rate=replays.is_assumed,
        engine=profile.name,
        cache_tokens=profile.kv_blocks * BLOCK_TOKENS,
    )


def page(read: Read, found: Found, advice: Advice, width: int) -> str:
    """Return the page, with lines of at most ``width`` characters where words allow it."""
    parts = [
        _log(read),
        _table(found),
        chart.bars(found, advice, width),
        "\n".join(writing_lines(read.writing, read.form)),
        _recommendation(advice, width),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def as_json(read: Read, found: Found, advice: Advice) -> dict[str, Any]:
    """Return everything as JSON values. Shares are 0 to 1, times seconds."""
    return {
        "log": {
            "form": read.form, "requests": read.requests, "skipped_lines": read.skipped,
            "requests_without_key": read.without_key, "replayed": read.replayed, "replayed_seconds": read.seconds,
            "times_assumed": read.assumed_rate,
        },
        "model": {"hosts": found.hosts, "engine": read.engine, "cache_tokens_of_a_host": read.cache_tokens},
        "groups": [
            {"prefix_lengths": list(group.lengths), "groups": group.number, "exact": group.exact,
             "largest_share": group.largest, "alone_share": read.alone[group.lengths[0]]} for group in read.groups
        ],
        "trials": [
            {"prefix_length": trial.group.lengths[0], "prefix_lengths": list(trial.group.lengths),
             "concurrency_threshold": trial.threshold, "and_above": trial.and_above, **asdict(trial.figures)}
            for trial in found.trials
        ],
        "random": asdict(found.random),
        "least_outstanding_requests": asdict(found.least_outstanding),
        "pooled_hit_rate": found.pooled,
        "serialisation": None if read.writing is None else summary(read.writing),
        "recommendation": {
            "routing_strategy": advice.strategy, "prefix_length": advice.prefix_length,
            "concurrency_threshold": advice.concurrency_threshold, "reasons": advice.reasons,
        },
    }  # fmt: skip


def writing_lines(found: Examiner | None, form: str) -> list[str]:
    """Return what is to be said about how bodies are written."""
    if found is None or not found.bodies:
        return []
    if not found.is_mixed:
        repeats = f" ({found.repeats:,} are the same JSON as an earlier one)" if found.repeats else ""
        return [f"Serialisation: all bodies are written alike{repeats}."]
    lines = ["Serialisation: bodies are NOT all written alike."]
    if found.differing:
        causes = ", ".join(f"{cause} {count:,}" for cause, count in found.causes.items() if count)
        first, second = found.example or (0, 0)
        lines.append(f"  {found.differing:,} of {found.repeats:,} bodies that are the same JSON as an earlier one have "
                     f"other bytes: {causes}. Compare lines {first} and {second}.")  # fmt: skip
    for what, habits in (
        ("white space after commas and colons", found.spaces),
        ("characters beyond ASCII", found.texts),
    ):
        if len(habits) > 1:
            told = "; ".join(f"{name} in {habit.bodies:,} (line {habit.line})" for name, habit in habits.items())
            lines.append(f"  {what}: {told}.")
    if found.reordered and found.reordered_at is not None:
        lines.append(f"  In {found.reordered:,} bodies the members of an object come in another order than before. "
                     f"Compare lines {found.reordered_at[0]} and {found.reordered_at[1]}.")  # fmt: skip
    lines.append(
        "  The native API's key is made of bytes: the same prompt written in two ways has two homes. Serialise it one "
        "way." if form == "native" else
        "  The OpenAI API's key is made of the text, so this changes nothing there; it would for InvokeEndpoint."
    )  # fmt: skip
    return lines


def _log(read: Read) -> str:
    lines = [f"{read.log}: {read.requests:,} requests, read as {read.form}. PrefixLength counts {KEYS[read.form]}."]
    if read.form == "chat":
        lines.append("If these bodies go to InvokeEndpoint, give --format native: its key is made of bytes.")
    if read.skipped:
        lines.append(f"{read.skipped:,} lines are no requests and were skipped.")
    if read.without_key:
        lines.append(f"{read.without_key:,} requests have no text and no id, so no key.")
    rate = read.replayed / read.seconds if read.seconds > 0 else 0.0
    said = "no times in the log: Poisson arrivals assumed" if read.assumed_rate else "with the log's own times"
    lines.append(f"Replayed: the last {read.replayed:,}, {rate:.3g} a second ({said}), on {read.engine} with "
                 f"{read.cache_tokens:,} tokens of KV cache a host.")  # fmt: skip
    return "\n".join(lines)


def _table(found: Found) -> str:
    columns = ["PrefixLength", "groups", "largest", "Threshold", "hit rate", "overflow", "all busy", "busiest host",
               "TTFT p50", "p90, ms"]  # fmt: skip
    rows, last = [], None
    for trial in found.trials:
        head = ["", "", ""] if trial.group is last else [
            chart.name(trial.group), f"{'' if trial.group.exact else '~'}{trial.group.number:,}",
            f"{trial.group.largest:.1%}"]  # fmt: skip
        last = trial.group
        rows.append(head + _figures(trial))
    for name, figures in (("LEAST_OUTSTANDING_REQUESTS", found.least_outstanding), ("RANDOM", found.random)):
        rows.append([name, "", "", "", f"{figures.hit_rate:.1%}", "", "", f"{figures.busiest:.1%}",
                     f"{figures.ttft_p50_s * 1000:,.0f}", f"{figures.ttft_p90_s * 1000:,.0f}"])  # fmt: skip
    # A strategy's name runs into the empty columns beside it.
    widths = [max(len(line[place]) for line in [columns, *rows] if place or line[1] or line[3]) for place in
              range(len(columns))]  # fmt: skip
    return "\n".join(_line(line, widths) for line in [columns, *rows])


def _figures(trial: Trial) -> list[str]:
    figures = trial.figures
    return [f"{trial.threshold}{'+' if trial.and_above else ''}", f"{figures.hit_rate:.1%}", f"{figures.overflow:.1%}",
            f"{figures.saturated:.1%}", f"{figures.busiest:.1%}", f"{figures.ttft_p50_s * 1000:,.0f}",
            f"{figures.ttft_p90_s * 1000:,.0f}"]  # fmt: skip


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    if cells[0] and not cells[1] and not cells[3]:
        start = sum(widths[:4]) + 6
        head, rest, at = cells[0].ljust(start), cells[4:], 4
    else:
        head, rest, at = cells[0].ljust(widths[0]), cells[1:], 1
    return head + "".join("  " + cell.rjust(width) for cell, width in zip(rest, widths[at:], strict=True))


def _recommendation(advice: Advice, width: int) -> str:
    if advice.strategy == "PREFIX_AWARE":
        said = (f"Recommended: PREFIX_AWARE with PrefixLength {advice.prefix_length} and ConcurrencyThreshold "
                f"{advice.concurrency_threshold}")  # fmt: skip
    else:
        said = f"Recommended: {advice.strategy}"
    return "\n".join([said, *(chart.wrapped(reason, width, "- ") for reason in advice.reasons)])

"""``warmroute audit``: who changed what, from the database's audit records."""

import argparse
import json
from datetime import datetime

from contract.settings import Settings
from warmroute.faults import Fault
from warmroute.table import columns

_FILTERS = {
    "principal": "this key's id, or 'command line'",
    "tenant": "this tenant",
    "operation": "this operation, such as DeleteEndpoint",
    "resource": "the resource of this name",
    "outcome": "OK, or this error's code",
    "request-id": "this request",
}
_SHOWN = ("at", "principal", "source", "operation", "resource", "outcome", "request_id")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, help_text in _FILTERS.items():
        parser.add_argument(f"--{name}", help=f"only {help_text}")
    parser.add_argument("--after", type=_moment, metavar="TIME", help="not before this; ISO 8601, such as 2026-05-01")
    parser.add_argument("--before", type=_moment, metavar="TIME", help="before this")
    parser.add_argument("--limit", type=int, default=100, metavar="N", help="at most so many, the newest (100)")
    parser.add_argument("--json", action="store_true", help="one JSON document a line")


def run(options: argparse.Namespace, settings: Settings) -> int:
    """Print the records, the newest last. Raises Fault."""
    from controlplane import local

    names = [name.replace("-", "_") for name in _FILTERS]
    equal = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    try:
        found = local.audit_records(settings, equal, options.after, options.before, options.limit)
    except local.Refused as refused:
        raise Fault(str(refused)) from None
    found.reverse()
    if options.json:
        for record in found:
            print(json.dumps(record))
    else:
        print(columns(_SHOWN, [[record[name] for name in _SHOWN] for record in found]))
    return 0


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time in ISO 8601, such as 2026-05-01T12:00") from None
    return moment if moment.tzinfo is not None else moment.astimezone()

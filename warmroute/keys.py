"""``warmroute keys``: keys of principals, straight on the database, by the operations that the API has for them."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract.settings import Settings
from warmroute.faults import Fault
from warmroute.table import columns

ROLES = ("admin", "operator", "reader", "invoke")
_SECRETS = ("SecretAccessKey", "ApiKey")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions. ``action`` in the result is the name of one."""
    actions = parser.add_subparsers(metavar="action", required=True, dest="action", help="what to do with keys")
    create = actions.add_parser("create", help="make a key and print its secret, once")
    create.add_argument("--role", required=True, choices=ROLES, help="what it may do")
    create.add_argument("--tenant", help="sees and invokes only what is this tenant's (the installation's: everything)")
    create.add_argument(
        "--endpoint",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only endpoints of such a name, with * and ?; may be repeated",
    )
    create.add_argument(
        "--kind", choices=("access-key", "api-key"), default="access-key", help="api-key: for OpenAI clients"
    )
    create.add_argument("--requests-per-second", type=float, metavar="N", help="over all workers")
    create.add_argument("--concurrent-requests", type=int, metavar="N", help="over all workers")
    create.add_argument("--description", metavar="TEXT", help="what it is for")
    listing = actions.add_parser("list", help="list the keys, without their secrets")
    listing.add_argument("--tenant", help="only this tenant's")
    for name, help_text in (
        ("disable", "refuse a key until it is enabled"),
        ("enable", "let a key in again"),
        ("rotate", "make a key's successor; both are valid for a while"),
        ("delete", "delete a key"),
    ):
        action = actions.add_parser(name, help=help_text)
        action.add_argument("id", metavar="ID", help="its id")
        if name == "rotate":
            action.add_argument(
                "--grace-seconds", type=int, default=86400, metavar="N", help="how long the old one is valid (86400)"
            )
    actions.add_parser("reseal", help="seal all secrets anew under the first of the secret keys")
    for action in actions.choices.values():
        action.add_argument("--json", action="store_true", help="print JSON")
        # As good after the action as before it, where the parser of all of them has it.
        action.add_argument(
            "--data-dir", type=Path, default=argparse.SUPPRESS, metavar="DIR", help="of a running `warmroute up`"
        )


def run(options: argparse.Namespace, settings: Settings) -> int:
    """Do one action and print what came of it. Raises Fault."""
    from controlplane import local

    try:
        match options.action:
            case "list":
                _print_keys(_all(settings, options.tenant), as_json=options.json)
            case "reseal":
                count = local.reseal(settings)
                _print({"Sealed": count}, as_json=options.json)
            case _:
                operation, members = _request(options)
                _print(local.call(settings, operation, **members), as_json=options.json)
    except local.Refused as refused:
        raise Fault(str(refused)) from None
    return 0


def _request(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    match options.action:
        case "create":
            members = {
                "Role": options.role,
                "Kind": options.kind,
                "Tenant": options.tenant,
                "Endpoints": options.endpoint,
                "RequestsPerSecond": options.requests_per_second,
                "ConcurrentRequests": options.concurrent_requests,
                "Description": options.description,
            }
            return "CreateAccessKey", {name: value for name, value in members.items() if value is not None}
        case "rotate":
            return "RotateAccessKey", {"AccessKeyId": options.id, "GraceSeconds": options.grace_seconds}
        case "delete":
            return "DeleteAccessKey", {"AccessKeyId": options.id}
        case action:
            return "UpdateAccessKey", {"AccessKeyId": options.id, "Enabled": action == "enable"}


def _all(settings: Settings, tenant: str | None) -> list[dict[str, Any]]:
    from controlplane import local

    found: list[dict[str, Any]] = []
    more: dict[str, Any] = {"Tenant": tenant} if tenant else {}
    while True:
        answer = local.call(settings, "ListAccessKeys", **more)
        found += answer["AccessKeys"]
        if "NextToken" not in answer:
            return found
        more["NextToken"] = answer["NextToken"]


def _print(answer: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(answer))
        return
    width = max((len(name) for name in answer), default=0)
    for name, value in answer.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        print(f"{name:<{width}}  {shown}{'  (shown this once)' if name in _SECRETS else ''}")


def _print_keys(keys: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(keys))
        return
    rows = [
        (
            key["AccessKeyId"],
            key["Role"],
            key.get("Tenant", ""),
            ",".join(key["Endpoints"]) or "*",
            _state(key),
            key.get("Description", ""),
        )
        for key in keys
    ]
    print(columns(("id", "role", "tenant", "endpoints", "state", "description"), rows))


def _state(key: Mapping[str, Any]) -> str:
    if not key["Enabled"]:
        return "disabled"
    return "rotated" if "ExpiresAt" in key else "enabled"

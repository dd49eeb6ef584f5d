"""``warmroute host``: options, and one host in the foreground."""

import argparse
import asyncio
import math
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import replace

from simulator.calibration import BLOCK_TOKENS, PROFILES, Profile
from simulator.host import HostSettings, serve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``warmroute host`` to ``parser``."""
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    add("--port", type=_whole(0, 65_535), default=8000, help="port to listen on; 0 takes a free one (%(default)s)")
    add("--name", type=_name, help="named in every answer (the address)")
    add("--model", type=_name, default="simulated", help="model that /v1/models lists (%(default)s)")
    add("--profile", choices=sorted(PROFILES), default="laptop", help="what the engine can do (%(default)s)")
    add("--speed", type=_number(0.001, 1000), default=1.0, help="engine seconds in a second (%(default)s)")
    add("--output-tokens", type=_whole(1, 100_000), default=64, help="answer's length if none is asked (%(default)s)")
    group = parser.add_argument_group("engine", "each replaces the profile's own figure")
    add = group.add_argument
    add("--kv-tokens", type=_whole(BLOCK_TOKENS, 10**9), help="tokens that the KV cache holds, in blocks of 16")
    add("--max-sequences", type=_whole(1, 100_000), help="sequences in the batch")
    add("--token-budget", type=_whole(1, 10**6), help="tokens computed in one step")
    add("--prefill-tokens-per-second", type=_number(1, 10**9), help="prompt tokens computed in a second")
    add("--decode-ms", type=_number(0.001, 60_000), help="time of one step, so of one token, in ms")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; return the exit code."""
    try:
        settings = HostSettings(_profile(args), args.name or "", args.model, args.speed, args.output_tokens)
    except ValueError as error:
        print(f"warmroute host: {error}", file=sys.stderr)
        return 2
    try:
        asyncio.run(_serve(settings, args.host, args.port))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error
        print(
            f"warmroute host: cannot listen on {args.host} port {args.port}: {reason}. Give another --host or --port.",
            file=sys.stderr,
        )
        return 1
    return 0


async def _serve(settings: HostSettings, host: str, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(settings, host=host, port=port, on_ready=_say_ready, stop=stop)


def _say_ready(url: str) -> None:
    print(f"simulated host ready on {url}", flush=True)


def _profile(args: argparse.Namespace) -> Profile:
    given = {
        "kv_blocks": args.kv_tokens and args.kv_tokens // BLOCK_TOKENS,
        "max_sequences": args.max_sequences,
        "token_budget": args.token_budget,
        "prefill_token_seconds": args.prefill_tokens_per_second and 1 / args.prefill_tokens_per_second,
        "step_seconds": args.decode_ms and args.decode_ms / 1000,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if args.max_sequences and not args.token_budget:
        # Asked for a larger batch only; a step must have room for one token of each.
        changes["token_budget"] = max(PROFILES[args.profile].token_budget, args.max_sequences)
    return replace(PROFILES[args.profile], **changes)


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be a whole number from {low} to {high}, not {text!r}")
        return value

    return parse


def _number(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be a number from {low:g} to {high:g}, not {text!r}")
        return value

    return parse


def _name(text: str) -> str:
    if not re.fullmatch(r"[!-~]{1,128}", text):
        raise argparse.ArgumentTypeError("must be 1 to 128 printable ASCII characters without spaces")
    return text

import argparse
import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from simulator.calibration import LAPTOP, LLAMA_3_1_70B_8XH100
from simulator.command import _profile, add_arguments

PROGRAM = (
    "import argparse, sys; from simulator import command; parser = argparse.ArgumentParser('warmroute host'); "
    "command.add_arguments(parser); sys.exit(command.run(parser.parse_args()))"
)


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser("warmroute host")
    add_arguments(parser)
    return parser.parse_args(arguments)


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def address(process: subprocess.Popen[str]) -> tuple[str, int]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("simulated host ready on http://127.0.0.1:")
    host, port = line.strip().rsplit("/", 1)[1].split(":")
    return host, int(port)


def test_the_profile_is_the_default_of_what_is_not_given() -> None:
    assert _profile(parse()) is not None
    assert _profile(parse()) == LAPTOP
    assert _profile(parse("--profile", "llama-3.1-70b-8xh100")) == LLAMA_3_1_70B_8XH100


def test_options_replace_figures_of_the_profile() -> None:
    profile = _profile(
        parse(
            *("--kv-tokens", "1000", "--max-sequences", "7", "--token-budget", "512"),
            *("--prefill-tokens-per-second", "2000", "--decode-ms", "25"),
        )
    )
    assert (profile.kv_blocks, profile.max_sequences, profile.token_budget) == (62, 7, 512)
    assert (profile.prefill_token_seconds, profile.step_seconds) == (0.0005, 0.025)


def test_a_larger_batch_gets_the_budget_it_needs() -> None:
    assert _profile(parse("--max-sequences", "5000")).token_budget == 5000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--port", "70000"), "argument --port: must be a whole number from 0 to 65535, not '70000'"),
        (("--port", "http"), "argument --port: must be a whole number from 0 to 65535, not 'http'"),
        (("--speed", "0"), "argument --speed: must be a number from 0.001 to 1000, not '0'"),
        (("--decode-ms", "nan"), "argument --decode-ms: must be a number from 0.001 to 60000, not 'nan'"),
        (("--kv-tokens", "15"), "argument --kv-tokens: must be a whole number from 16 to 1000000000, not '15'"),
        (("--name", "two words"), "argument --name: must be 1 to 128 printable ASCII characters without spaces"),
        (("--profile", "tpu"), "argument --profile: invalid choice: 'tpu' (choose from"),
    ],
)
def test_bad_options_are_named(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(*arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_options_that_contradict_each_other_are_refused() -> None:
    with started("--max-sequences", "100", "--token-budget", "50") as process:
        _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert err.startswith("warmroute host: token_budget (50) must be at least max_sequences (100)")


def test_a_taken_port_is_said_plainly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with started("--port", str(port)) as process:
            _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert err == (
        f"warmroute host: cannot listen on 127.0.0.1 port {port}: Address already in use. "
        "Give another --host or --port.\n"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_whatever_is_open(number: signal.Signals) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 20_000, "stream": True})
    with started("--port", "0", "--name", "h") as process:
        host, port = address(process)
        streaming = http.client.HTTPConnection(host, port, timeout=20)
        streaming.request("POST", "/v1/chat/completions", body)
        response = streaming.getresponse()
        assert response.readline().startswith(b"data: ")
        half = socket.create_connection((host, port))
        half.sendall(b"POST /invocations HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf")
        process.send_signal(number)
        out, err = process.communicate(timeout=10)
        assert (process.returncode, out, err) == (0, "", "")
        rest = response.read()
        assert b"This simulated host is stopping." in rest
        assert b"[DONE]" not in rest
        half.close()
        streaming.close()

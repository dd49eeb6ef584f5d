"""One process at a time uses a data directory."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until
from warmroute.embedded import EmbeddedError
from warmroute.embedded.directory import hold, socket_dir

HOLDER = """
import sys, time
from pathlib import Path
from warmroute.embedded.directory import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(1000)
"""


def test_a_second_user_is_refused_by_name_until_the_first_is_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        expected = rf"is in use by another `warmroute up` \(process {holder.pid}\); stop it or give another --data-dir"
        with pytest.raises(EmbeddedError, match=expected), hold(tmp_path):
            pass
        holder.send_signal(signal.SIGKILL)
    wait_until(lambda: _held(tmp_path), what="the directory of a killed process")


def test_it_may_be_held_again_in_turn(tmp_path: Path) -> None:
    for _ in range(2):
        with hold(tmp_path / "new" / "dir"):
            assert (tmp_path / "new" / "dir" / "lock").read_text() == f"{os.getpid()}\n"


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(EmbeddedError, match=r"--data-dir .*file cannot be used \(.*\); give a directory"),
        hold(tmp_path / "file"),
    ):
        pass


def test_sockets_are_private_and_do_not_pile_up(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    first = socket_dir(long, ".s.PGSQL.5432")
    try:
        assert socket_dir(long, ".s.PGSQL.5432") == first
        assert first.stat().st_mode & 0o777 == 0o700
        assert socket_dir(tmp_path, "s").parent == tmp_path
    finally:
        first.rmdir()


def test_a_planted_socket_directory_is_not_trusted(tmp_path: Path) -> None:
    long = tmp_path / ("y" * 100)
    long.mkdir()
    expected = socket_dir(long, ".s.PGSQL.5432")
    expected.rmdir()
    expected.symlink_to(tmp_path)
    try:
        found = socket_dir(long, ".s.PGSQL.5432")
        assert found != expected
        found.rmdir()
    finally:
        expected.unlink()


def _held(path: Path) -> bool:
    try:
        with hold(path):
            return True
    except EmbeddedError:
        return False

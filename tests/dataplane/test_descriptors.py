"""Limits are of a process, so each case has one of its own."""

import resource
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.descriptors import PER_CLIENT, RESERVE, connections_within

PROGRAM = """
import logging, resource, sys
from dataplane.descriptors import claim

logging.basicConfig(format="%(message)s")
soft, hard, wanted = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(claim(wanted), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@given(st.integers(1, 10**6), st.integers(0, 10**6))
def test_all_connections_that_are_kept_have_their_descriptors(wanted: int, descriptors: int) -> None:
    fits = connections_within(wanted, descriptors)
    assert 1 <= fits <= wanted
    assert fits == 1 or RESERVE + PER_CLIENT * fits <= descriptors
    assert fits == wanted or RESERVE + PER_CLIENT * (fits + 1) > descriptors


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "fits", "limit"),
    [(256, 900, 100, 100, 264), (256, 900, 1000, 418, 900), (256, 256, 1000, 96, 256), (900, 900, 100, 100, 900)],
    ids=["raised as far as needed", "raised to the hard limit", "cannot be raised", "enough"],
)
def test_the_soft_limit_is_raised_as_far_as_it_may(soft: int, hard: int, wanted: int, fits: int, limit: int) -> None:
    command = [sys.executable, "-c", PROGRAM, *map(str, (soft, hard, wanted))]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == [str(fits), str(limit)]
    assert ("raise the limit" in ended.stderr) == (fits < wanted)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 900, "this process keeps its own"

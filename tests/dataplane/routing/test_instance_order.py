import itertools
import json
import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.routing.instance_order import RANKS, SLOTS, InstanceOrder
from dataplane.routing.prefix_key import native_key

identities = st.lists(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=12), min_size=1, max_size=12, unique=True
)
keys = st.integers(0, 2**64 - 1)

NAMES: dict[str, Callable[[int], str]] = {
    "addresses": lambda number: f"http://10.0.0.{number}:8000",
    "ports": lambda number: f"http://127.0.0.1:{9000 + number}",
    "short": lambda number: f"h{number}",
    "extending": lambda number: "h" + "1" * number,
    "zones": lambda number: f"gpu-{number % 3}.zone-{number // 3}.example.internal",
}


def order(names: list[str]) -> InstanceOrder:
    return InstanceOrder(names, range(len(names)))


def ranked(names: list[str], key: int) -> list[str]:
    return [names[position] for position in order(names).all(key)]


@given(identities, keys)
def test_an_order_holds_every_instance_once(names: list[str], key: int) -> None:
    assert sorted(order(names).all(key)) == list(range(len(names)))


@given(identities.filter(lambda names: len(names) > 1), keys, st.data())
def test_a_change_of_the_fleet_moves_nothing_else(names: list[str], key: int, data: st.DataObject) -> None:
    """Removing an instance leaves the order of the others; read backwards, adding one only inserts it."""
    gone = data.draw(st.sampled_from(names))
    with_it = ranked(names, key)
    without = ranked([name for name in names if name != gone], key)
    assert without == [name for name in with_it if name != gone]


@given(identities, keys, st.randoms(use_true_random=False))
def test_places_in_the_list_do_not_matter(names: list[str], key: int, dice: random.Random) -> None:
    shuffled = list(names)
    dice.shuffle(shuffled)
    assert ranked(shuffled, key) == ranked(names, key)


@given(identities, keys, st.integers(0, 1000))
def test_an_order_is_told_in_the_numbers_given(names: list[str], key: int, start: int) -> None:
    numbers = range(start, start + len(names))
    found = InstanceOrder(names, numbers).all(key)
    assert [names[number - start] for number in found] == ranked(names, key)


@given(st.integers(1, 60), keys)
def test_the_first_ranks_are_the_beginning_of_the_whole_order(count: int, key: int) -> None:
    orders = order([f"host-{number}" for number in range(count)])
    assert orders.first(key) == orders.all(key)[:RANKS]
    assert orders.first(key) == orders.first(key), "remembered"


@pytest.mark.parametrize(
    ("count", "name"),
    [*((7, name) for name in NAMES), *zip([3, 4, 5, 6, 8, 11, 16, 23, 32], itertools.cycle(NAMES), strict=False)],
)
def test_shares_are_even(count: int, name: str) -> None:
    """Each instance is home to 1/N of the slots, as far as chance goes, whatever its name."""
    homes = Counter(first_of_all_slots(count, name))
    mean = SLOTS / count
    deviation = math.sqrt(mean * (1 - 1 / count))
    assert len(homes) == count
    # One in a hundred thousand instances of a fair hash is further off.
    assert max(abs(slots - mean) for slots in homes.values()) < 4.5 * deviation


def first_of_all_slots(count: int, name: str) -> list[int]:
    names = [NAMES[name](number) for number in range(1, count + 1)]
    # More than RANKS instances are ranked by a heap; the home alone is quicker to find.
    orders = order(names)
    return [max(range(count), key=orders._scores(slot).__getitem__) for slot in range(SLOTS)]


@pytest.mark.parametrize(
    "names", [["http://127.0.0.1:900", "http://127.0.0.1:9001", "http://127.0.0.1:90"], ["h1", "h11", "h111"]]
)
def test_names_that_extend_each_other_share_evenly(names: list[str]) -> None:
    """3,000 prefixes, each host within 20% of the mean."""
    orders = order(names)
    homes = Counter(orders.first(native_key(b"prefix %d" % number, 1024, None) or 0)[0] for number in range(3_000))
    assert all(800 < count < 1_200 for count in homes.values()), homes


def test_seven_hosts_share_prefixes_evenly() -> None:
    """3,500 distinct prefixes of 2 KB, every host within 20% of 500."""
    for name in NAMES.values():
        orders = order([name(number) for number in range(1, 8)])
        bodies = (b"%d %b" % (number, b"x" * 2048) for number in range(3_500))
        homes = Counter(orders.first(native_key(body, 2048, None) or 0)[0] for body in bodies)
        assert len(homes) == 7
        assert all(400 < count < 600 for count in homes.values()), homes


def test_a_fifth_host_takes_a_fifth_of_the_prefixes() -> None:
    names = [f"http://10.0.0.{number}:8000" for number in range(1, 6)]
    four, five = order(names[:4]), order(names)
    moved = [
        (four.first(key)[0], five.first(key)[0]) for key in range(10_000) if four.first(key)[0] != five.first(key)[0]
    ]
    assert {to for _, to in moved} == {4}
    assert 0.18 < len(moved) / 10_000 < 0.22
    assert {origin for origin, _ in moved} == {0, 1, 2, 3}


def test_overflow_of_one_home_goes_to_all_others() -> None:
    """Keys of one home do not share their second rank."""
    orders = order([f"host-{number}" for number in range(6)])
    seconds = Counter(ranks[1] for key in range(6_000) if (ranks := orders.first(key))[0] == 0)
    assert sorted(seconds) == [1, 2, 3, 4, 5]
    assert max(seconds.values()) < 0.3 * sum(seconds.values())


def test_every_process_has_the_same_orders() -> None:
    """Whatever seeds Python's own hashes."""
    program = (
        "import json; from dataplane.routing.instance_order import InstanceOrder as I;"
        "print(json.dumps([I([f'h{n}' for n in range(12)], range(12)).all(k * 7919) for k in range(50)]))"
    )
    said = set()
    for seed in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        said.add(subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, check=True).stdout)
    orders = order([f"h{number}" for number in range(12)])
    here = [list(orders.all(key * 7919)) for key in range(50)]
    assert [json.loads(text) for text in said] == [here]


@pytest.mark.parametrize(("count", "limit"), [(3, 4_096), (32, 4_096), (33, SLOTS)])
def test_what_is_remembered_is_bounded(count: int, limit: int) -> None:
    """However many distinct prefixes pass by."""
    orders = order([f"host-{number}" for number in range(count)])
    most = 0
    for key in range(3 * limit if limit < SLOTS else 6_000):
        orders.first(key * 2_654_435_761)
        most = max(most, len(orders._remembered))
    assert most <= limit

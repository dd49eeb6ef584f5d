import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.routing.admission import Outcome
from dataplane.state.ledger import FEW, Admit, Ledger, grant

Granted = list[tuple[int, Outcome, bool]]


def ledger() -> Ledger:
    """A ledger whose first call was made."""
    ledger = Ledger("e1", 0.0)
    call(ledger)
    ledger.sent = None
    return ledger


def call(ledger: Ledger, now: float = 1.0) -> dict[str, Any]:
    """Return what the next call says, by name."""
    names = ("worker", "sequence", "lease", "renew", "held", "deltas", "admits")
    return dict(zip(names, msgspec.msgpack.decode(ledger.write_call("w", 7, 10_000, now)), strict=True))


def pairs(flat: list[int]) -> dict[int, int]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def wait(ledger: Ledger, *numbers: int, threshold: int = 2, complete: bool = True) -> Granted:
    """Queue one admission; what it is granted lands in the result."""
    granted: Granted = []
    everything = None if complete else lambda: numbers
    ledger.queue.append(
        Admit(
            numbers, threshold, 5, lambda number, outcome, alone: granted.append((number, outcome, alone)), everything
        )
    )
    return granted


def test_keys_are_those_of_the_contract() -> None:
    assert Ledger("e1", 0.0).keys == (b"warmroute:{e1}:load", b"warmroute:{e1}:ledger", b"warmroute:{e1}:leases")


def test_the_first_call_states_everything_and_renews() -> None:
    fresh = Ledger("e1", 0.0)
    fresh.hold(3)
    fresh.change(3, 1)
    said = call(fresh)
    assert (said["worker"], said["sequence"], said["lease"]) == ("w", 7, 10_000)
    assert (said["renew"], said["held"], said["deltas"]) == (1, [3, 1], [])


def test_later_calls_say_what_changed() -> None:
    book = ledger()
    book.hold(3)
    book.change(3, 1)
    book.change(4, -2)
    said = call(book)
    assert (said["renew"], said["held"], pairs(said["deltas"])) == (0, None, {3: 1, 4: -2})
    assert book.deltas == {}
    assert call(book)["deltas"] == []


def test_a_renewing_call_asks_once() -> None:
    book = ledger()
    book.renew = True
    assert [call(book)["renew"] for _ in range(2)] == [1, 0]


def test_admissions_go_out_in_order_with_what_the_script_needs() -> None:
    book = ledger()
    wait(book, 4, 2, 9, threshold=3)
    wait(book, 2, 4, complete=False)
    wait(book, 1, threshold=0)
    assert call(book)["admits"] == [[3, 5, 1, 4, 2, 9], [2, 5, 0, 2, 4], [0, 5, 1, 1]]
    assert book.queue == []
    assert len(book.sent or ()) == 3
    assert book.sent_at == 1.0


@given(st.integers(2 * FEW + 1, 300), st.integers(0, 2**30 - 1))
def test_a_few_of_an_idle_fleet_are_asked_for_the_idlest(size: int, dice: int) -> None:
    few = ledger().idlest_of(range(100, 100 + size), dice)
    assert len(set(few)) == len(few) == FEW
    assert set(few) <= set(range(100, 100 + size))


def test_all_are_asked_when_they_are_few_or_most_are_busy() -> None:
    book = ledger()
    small, large = range(2 * FEW), range(100)
    assert book.idlest_of(small, 1) is small
    book.held, book.others = dict.fromkeys(range(30), 1), dict.fromkeys(range(20, 50), 2)
    assert book.idlest_of(large, 1) is not large
    book.others[50] = 1
    assert book.idlest_of(large, 1) is large


def test_every_instance_of_an_idle_fleet_gets_its_part_of_the_ties() -> None:
    """The bits that choose the few are not those that choose among them."""
    book, dice, size, draws = ledger(), random.Random(1), 96, 20_000
    chosen: Counter[int] = Counter()
    for _ in range(draws):
        bits = dice.getrandbits(30)
        few = book.idlest_of(range(size), bits)
        chosen[few[bits % len(few)]] += 1
    mean = draws / size
    assert all(mean / 2 < chosen[number] < 2 * mean for number in range(size))


def test_changes_that_cancel_out_are_no_news() -> None:
    book = ledger()
    for delta in (1, 1, -2):
        book.change(3, delta)
    assert not book.has_news
    book.change(3, -1)
    assert book.has_news


def test_a_restatement_is_news_only_with_something_held() -> None:
    book = ledger()
    book.restate = True
    assert not book.has_news
    book.hold(1)
    assert book.has_news


@given(st.lists(st.tuples(st.sampled_from(["hold", "drop", "send", "lose", "back"]), st.integers(1, 3)), max_size=30))
def test_the_stores_share_is_what_is_held_less_what_it_has_yet_to_hear(steps: list[tuple[str, int]]) -> None:
    """Whatever was lost on the way: after any call that arrived, store and worker agree."""
    book, share = Ledger("e", 0.0), {1: 0, 2: 0, 3: 0}
    share[1] = 9  # Whatever the store believes of an earlier life.
    for step, number in steps:
        if step == "hold" or (step == "drop" and not book.held.get(number)):
            book.hold(number)
            book.change(number, 1)
        elif step == "drop":
            book.drop(number)
            book.change(number, -1)
        else:
            said = call(book)
            if step == "back":
                book.take_back()
                continue
            if said["held"] is not None:
                share = {1: 0, 2: 0, 3: 0} | pairs(said["held"])
            for changed, delta in pairs(said["deltas"]).items():
                share[changed] += delta
            book.take_back() if step == "lose" else setattr(book, "sent", None)
        if not book.restate:
            assert share == {n: book.held.get(n, 0) - book.deltas.get(n, 0) for n in share}


def test_a_call_taken_back_goes_before_what_came_since() -> None:
    book = ledger()
    first, second = wait(book, 1), wait(book, 2)
    call(book)
    assert book.sent is not None
    grant(book.sent[0], 1, Outcome.HOME, degraded=False)
    third = wait(book, 3)
    book.take_back()
    assert [admit.numbers for admit in book.queue] == [(2,), (3,)]
    assert book.sent is None
    assert book.restate
    assert (first, second, third) == ([(1, Outcome.HOME, False)], [], [])


def test_what_waits_is_decided_alone_once() -> None:
    """Also what is on its way: its caller has waited long enough. A late answer finds it decided."""
    book = ledger()
    sent = wait(book, 1, 2)
    call(book)
    queued = wait(book, 1, 2)
    for _ in range(2):
        book.decide_waiting()
    assert (sent, queued) == ([(1, Outcome.HOME, True)], [(1, Outcome.HOME, True)])
    assert book.held == {1: 2}
    assert book.deltas == {1: 2}
    assert book.queue == []
    assert [admit.granted for admit in book.sent or ()] == [None]


@pytest.mark.parametrize(("workers", "threshold", "share"), [(1, 4, 4), (2, 4, 2), (3, 4, 2), (4, 4, 1), (9, 4, 1)])
def test_alone_a_worker_has_its_share_of_the_threshold(workers: int, threshold: int, share: int) -> None:
    book = ledger()
    book.learn(workers, [])
    granted = [wait(book, 1, 2, threshold=threshold) for _ in range(share + 1)]
    book.decide_waiting()
    assert [one[0][0] for one in granted] == [1] * share + [2]
    assert [one[0][1] for one in granted] == [Outcome.HOME] * share + [Outcome.OVERFLOW]


def test_alone_overflow_goes_where_the_fleet_was_lighter_when_last_heard() -> None:
    book = ledger()
    book.hold(1)
    book.learn(1, [1, 1, 2, 5, 3, 4])
    granted = wait(book, 1, 2, 3, threshold=1)
    book.decide_waiting()
    assert granted == [(3, Outcome.OVERFLOW, True)]


def test_alone_all_instances_are_looked_at_when_the_first_ranks_are_full() -> None:
    """The order that was sent is kept: a late answer counts positions in it."""
    book = ledger()
    book.hold(1)
    book.hold(2)
    granted: Granted = []
    everything = (9, 1, 2, 3)
    admit = Admit(
        (1, 2), 1, 0, lambda number, outcome, alone: granted.append((number, outcome, alone)), lambda: everything
    )
    book.decide_alone(admit)
    assert granted == [(9, Outcome.HOME, True)]
    assert admit.numbers == (1, 2)


def test_alone_the_fewest_are_counted_with_the_others_requests() -> None:
    book = ledger()
    book.learn(2, [1, 3, 2, 1])
    granted = [wait(book, 1, 2, threshold=0) for _ in range(3)]
    book.decide_waiting()
    assert [one[0][0] for one in granted[:2]] == [2, 2]
    assert {one[0][1] for one in granted} == {Outcome.LEAST_OUTSTANDING}


def test_what_others_hold_is_the_load_less_ones_own_share() -> None:
    """The share in the store is what is held less the changes that it has yet to hear."""
    book = ledger()
    for _ in range(3):
        book.hold(1)
    book.hold(2)
    book.change(1, 1)
    book.learn(4, [1, 5, 2, 1, 3, 2])
    assert book.others == {1: 3, 3: 2}
    assert book.live_workers == 4
    book.learn(0, [])
    assert (book.others, book.live_workers) == ({}, 1)

"""Three workers, three instances, one real Redis, and everything that may befall them, in any order.

The workers are the real InFlight and Ledger in virtual time, the store runs the real script. What is drawn: admissions,
releases, answers that are slow or lost, calls lost before or after they were run or that arrive late, workers that
vanish, workers paused past their lease, a store that is unreachable and a store that forgets everything.
"""

import contextlib
from collections import Counter

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dataplane.routing.admission import Outcome, pick, pick_least
from dataplane.state.link import GIVE_UP_SECONDS
from tests.dataplane.state.script import DONE, Store
from tests.dataplane.state.virtual import BUDGET_SECONDS, LEASE_SECONDS, Call, VirtualLoop, Worker, virtual_loop

INSTANCES = (1, 2, 3)
WORKERS = 3
workers = st.integers(0, WORKERS - 1)
orders = st.permutations(INSTANCES)


class Fleet(RuleBasedStateMachine):
    redis_url = ""

    def __init__(self) -> None:
        super().__init__()
        self._exit = contextlib.ExitStack()
        self.loop: VirtualLoop = self._exit.enter_context(virtual_loop())
        self.store = Store(self.redis_url)
        self._exit.callback(self.store.close)
        self._exit.callback(self.store.lose_everything)
        self.dead: set[str] = set()
        self.late: dict[str, list[Call]] = {}

    @initialize()
    def start(self) -> None:
        self.workers = [Worker(self.loop, self.store) for _ in range(WORKERS)]

    # --- requests ----------------------------------------------------------------------------------------------------

    @rule(worker=workers, order=orders, threshold=st.integers(1, 3), times=st.integers(1, 4))
    def admit(self, worker: int, order: list[int], threshold: int, times: int) -> None:
        for _ in range(times):
            self.workers[worker].admit(order, threshold)
        self.loop.settle()

    @rule(worker=workers, order=orders, threshold=st.integers(1, 3))
    def admit_by_first_ranks(self, worker: int, order: list[int], threshold: int) -> None:
        self.workers[worker].admit(order[:2], threshold, everything=order)
        self.loop.settle()

    @rule(worker=workers, dice=st.integers(0, 99))
    def admit_least_outstanding(self, worker: int, dice: int) -> None:
        self.workers[worker].admit(INSTANCES, 0, dice)
        self.loop.settle()

    @rule(worker=workers, number=st.sampled_from(INSTANCES))
    def count(self, worker: int, number: int) -> None:
        self.workers[worker].count(number)
        self.loop.settle()

    @precondition(lambda self: any(worker.holding for worker in self.workers))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from([worker for worker in self.workers if worker.holding]))
        for _ in range(data.draw(st.integers(1, len(worker.holding)))):
            worker.release(data.draw(st.integers(0, len(worker.holding) - 1)))
        self.loop.settle()

    # --- the wire ----------------------------------------------------------------------------------------------------

    @rule(worker=workers)
    def answer(self, worker: int) -> None:
        """The oldest call arrives and is answered."""
        if self.workers[worker].wire.calls:
            self.check_answer(*self.workers[worker].deliver())

    @rule()
    def answer_all(self) -> None:
        for worker in self.workers:
            while worker.wire.calls:
                self.check_answer(*worker.deliver())

    @rule(worker=workers, fate=st.sampled_from(["run", "late", "lost"]))
    def lose_connection(self, worker: int, fate: str) -> None:
        """A call on its way was run and its answer is lost, or it arrives after its connection is over, or never."""
        one = self.workers[worker]
        for call in one.wire.lose():
            if fate == "run":
                self.store.run(call.keys, call.argument)
            elif fate == "late":
                self.late.setdefault(one.name, []).append(call)
        self.loop.settle()

    @rule(worker=workers)
    def arrive_late(self, worker: int) -> None:
        for call in self.late.pop(self.workers[worker].name, []):
            self.store.run(call.keys, call.argument)

    @rule(worker=workers)
    def overtake(self, worker: int) -> None:
        """A call arrives when the connection after its own has long said everything again."""
        one = self.workers[worker]
        one.count(1)
        self.loop.settle()
        self.lose_connection(worker, "late")
        one.wire.is_up = True
        self.pass_time(GIVE_UP_SECONDS)
        while one.wire.calls:
            self.check_answer(*one.deliver())
        self.arrive_late(worker)

    @rule(worker=workers, is_up=st.booleans())
    def cut_or_mend(self, worker: int, is_up: bool) -> None:
        one = self.workers[worker]
        one.wire.is_up = is_up
        if not is_up:
            one.wire.lose()
        self.loop.settle()

    @rule(seconds=st.sampled_from([BUDGET_SECONDS * 1.5, GIVE_UP_SECONDS * 1.1]))
    def pass_time(self, seconds: float) -> None:
        self.loop.advance(seconds, step=seconds / 4)
        self.store.age(seconds)

    # --- what befalls workers and the store --------------------------------------------------------------------------

    @rule(worker=workers, is_run=st.booleans())
    def crash(self, worker: int, is_run: bool) -> None:
        """A worker vanishes with all it holds; another is started in its place, under a name of its own."""
        one = self.workers[worker]
        for call in one.vanish():
            if is_run:
                self.store.run(call.keys, call.argument)
        self.late.pop(one.name, None)
        self.dead.add(one.name)
        self.workers[worker] = Worker(self.loop, self.store)

    @rule()
    def leases_of_the_dead_end(self) -> None:
        for name in self.dead:
            self.store.lapse(name)

    @rule(worker=workers)
    def pause_past_the_lease(self, worker: int) -> None:
        # What was on its way has arrived long before.
        self.arrive_late(worker)
        self.store.lapse(self.workers[worker].name)

    @rule()
    def forget_everything(self) -> None:
        self.late.clear()
        self.store.lose_everything()

    @rule()
    def come_to_rest(self) -> None:
        """Let every worker reach the store for a lease: then the counts are the truth, whatever happened before."""
        self.late.clear()
        for worker in self.workers:
            worker.wire.is_up = True
        self.answer_until_quiet()
        self.pass_time(GIVE_UP_SECONDS * 3)
        self.answer_until_quiet()
        for _ in range(4):
            self.pass_time(LEASE_SECONDS / 3)
            self.answer_until_quiet()
        # A worker may have forgotten an endpoint that nobody uses; the next one who does strikes what it left.
        self.store.call("auditor", sequence=self.store.now_ms(), held={})
        shares = self.store.shares
        for worker in self.workers:
            assert worker.waiting == 0
            assert worker.in_flight.held(self.store.endpoint_id) == Counter(worker.holding)
            assert shares.pop(worker.name, {}) == Counter(worker.holding)
        assert not any(shares.values()), "of the dead and the auditor nothing is left"

    # --- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def the_store_is_consistent(self) -> None:
        self.store.check()

    @invariant()
    def nothing_was_released_that_was_not_held(self) -> None:
        for worker in getattr(self, "workers", []):
            assert worker.observer.corrections == 0

    @invariant()
    def no_request_waits_past_its_budget(self) -> None:
        """Every request that waits belongs to a call on its way: none was dropped."""
        for worker in getattr(self, "workers", []):
            assert worker.waiting == 0 or worker.wire.calls

    def check_answer(self, call: Call, answer: list[int]) -> None:
        """Each admission of the call was right at its moment, found by taking back what came after it."""
        if answer[0] != DONE:
            return
        admits = call.words[6]
        choices = list(zip(answer[3 : 3 + 2 * len(admits) : 2], answer[4 : 4 + 2 * len(admits) : 2], strict=True))
        # The answer's own deeds may have been followed by calls of the loop, but none has arrived yet.
        counts = Counter(self.store.load)
        for (threshold, dice, complete, *order), (position, outcome) in reversed(
            list(zip(admits, choices, strict=True))
        ):
            if position >= 0:
                counts[order[position]] -= 1
            seen = [counts[number] for number in order]
            if position < 0:
                assert not complete
                assert min(seen[0], sorted(seen)[1]) >= threshold
            elif threshold:
                assert (position, outcome) == pick(seen, threshold)
                assert seen[position] < threshold or min(counts[n] for n in INSTANCES) >= threshold
            else:
                assert (position, Outcome(outcome)) == pick_least(seen, dice)

    def answer_until_quiet(self) -> None:
        for _ in range(20):
            self.answer_all()
            self.loop.settle()
            if not any(worker.wire.calls for worker in self.workers):
                return
        raise AssertionError("the workers never come to rest")

    def teardown(self) -> None:
        try:
            if hasattr(self, "workers"):
                self.come_to_rest()
                for worker in self.workers:
                    while worker.holding:
                        worker.release(0)
                self.come_to_rest()
                assert self.store.load == {}
                assert not any(self.store.shares.values())
        finally:
            self._exit.close()


def test_counts_survive_whatever_happens(redis_url: str) -> None:
    Fleet.redis_url = redis_url
    # Shrinking takes minutes: add Phase.shrink to look into a failure.
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    run_state_machine_as_test(
        Fleet, settings=settings(max_examples=50, stateful_step_count=40, deadline=None, phases=phases)
    )

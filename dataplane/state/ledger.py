"""This worker's side of one endpoint's counts: what it holds, what it has yet to tell the store, who waits.

Pure bookkeeping; state/inflight.py moves it. ``held`` is the truth about this worker; the store's share for this worker
is ``held`` less ``deltas`` whenever no call is on its way.
"""

from collections.abc import Callable, Sequence

import msgspec

from contract import redis_keys
from dataplane.routing.admission import Outcome, pick_alone, pick_least

Granted = Callable[[int, Outcome, bool], None]
"""Called with (instance number, outcome, degraded) as soon as the request is counted."""

FEW = 8
"""With half of the instances idle, one of so many is in 255 of 256 choices."""

_encode = msgspec.msgpack.Encoder().encode


class Admit:
    """One request that waits for its instance."""

    __slots__ = ("complete", "dice", "everything", "granted", "numbers", "threshold")

    def __init__(
        self,
        numbers: Sequence[int],
        threshold: int,
        dice: int,
        granted: Granted,
        everything: Callable[[], Sequence[int]] | None,
    ) -> None:
        self.numbers = numbers
        """Instance numbers in order of preference."""
        self.threshold = threshold
        """0: fewest in flight."""
        self.dice = dice
        self.granted: Granted | None = granted
        """None once it was decided."""
        self.everything = everything
        """Gives all instances in order when ``numbers`` are only the first; None when they are all."""


class Ledger:
    """See the module. ``sent`` is the one call on its way: the admits in it, or None."""

    __slots__ = (
        "asked_at",
        "deltas",
        "held",
        "keys",
        "live_workers",
        "others",
        "queue",
        "refusals",
        "renew",
        "restate",
        "sent",
        "sent_at",
        "used_at",
    )

    def __init__(self, endpoint_id: str, now: float, live_workers: int = 1) -> None:
        self.keys = (
            redis_keys.load_key(endpoint_id).encode(),
            redis_keys.ledger_key(endpoint_id).encode(),
            redis_keys.leases_key(endpoint_id).encode(),
        )
        self.held: dict[int, int] = {}
        self.deltas: dict[int, int] = {}
        self.others: dict[int, int] = {}
        self.live_workers = live_workers
        """Who share the threshold when each decides alone; as last heard."""
        self.queue: list[Admit] = []
        self.sent: list[Admit] | None = None
        self.sent_at = 0.0
        self.refusals = 0
        """Calls in a row that a node did not run."""
        self.asked_at: float | None = None
        """When the first of the calls was sent that what waits was in; None when nothing waits."""
        self.used_at = now
        self.renew = True
        self.restate = True
        """The store may not have this worker's share (first call, lost lease, lost reply): say all of it again."""

    def idlest_of(self, numbers: Sequence[int], dice: int) -> Sequence[int]:
        """Return which of ``numbers`` to ask for the one with fewest in flight: some at random, while most are idle.

        An idle one has fewest, whoever else there is, so a few will do as long as one of them is likely to be idle.
        """
        size = len(numbers)
        if size <= 2 * FEW or 2 * len(self.held.keys() | self.others.keys()) > size:
            return numbers
        # Other bits than those that break ties: the same ones would never choose some.
        start = (dice >> 15) % size
        few = numbers[start : start + FEW]
        return few if len(few) == FEW else [*few, *numbers[: FEW - len(few)]]

    def hold(self, number: int) -> None:
        self.held[number] = self.held.get(number, 0) + 1

    def drop(self, number: int) -> None:
        left = self.held[number] - 1
        if left:
            self.held[number] = left
        else:
            del self.held[number]

    def change(self, number: int, delta: int) -> None:
        """Note a change that the store has yet to be told."""
        total = self.deltas.get(number, 0) + delta
        if total:
            self.deltas[number] = total
        else:
            self.deltas.pop(number, None)

    @property
    def has_news(self) -> bool:
        return bool(self.queue or self.deltas or (self.restate and self.held))

    def write_call(self, worker: str, sequence: int, lease_ms: int, now: float) -> bytes:
        """Move the queue into ``sent`` and return the script's argument for it."""
        held = _flat(self.held) if self.restate else None
        deltas = [] if self.restate else _flat(self.deltas)
        admits = [[a.threshold, a.dice, 0 if a.everything else 1, *a.numbers] for a in self.queue]
        self.sent, self.queue, self.deltas = self.queue, [], {}
        self.sent_at = now
        if self.asked_at is None:
            self.asked_at = now
        renew, self.renew, self.restate = 1 if self.renew or self.restate else 0, False, False
        return _encode([worker, sequence, lease_ms, renew, held, deltas, admits])

    def take_back(self) -> None:
        """The call on the way did not count, or nobody knows: what it held goes back, and all is stated anew."""
        sent, self.sent = self.sent or [], None
        self.queue[:0] = [admit for admit in sent if admit.granted is not None]
        self.restate = True

    def decide_waiting(self) -> None:
        """Decide everything that waits, also in the call on the way, without the store."""
        queue, self.queue = self.queue, []
        self.asked_at = None
        for admit in [*(self.sent or ()), *queue]:
            if admit.granted is not None:
                self.decide_alone(admit)

    def decide_alone(self, admit: Admit) -> None:
        """Decide without the store, on last known counts, and note it for later."""
        numbers = admit.numbers
        share = -(-admit.threshold // self.live_workers)
        own = [self.held.get(number, 0) for number in numbers]
        if admit.everything is not None and min(own) >= share:
            # Not into the admit: a late answer of the store counts positions in what it was asked.
            numbers = admit.everything()
            own = [self.held.get(number, 0) for number in numbers]
        known = [count + self.others.get(number, 0) for count, number in zip(own, numbers, strict=True)]
        if admit.threshold:
            position, outcome = pick_alone(own, known, share)
        else:
            position, outcome = pick_least(known, admit.dice)
        number = numbers[position]
        self.hold(number)
        self.change(number, 1)
        grant(admit, number, outcome, degraded=True)

    def learn(self, live_workers: int, load: Sequence[int]) -> None:
        """Take the fleet's counts from a renewing reply, after its admits were entered into ``held``."""
        self.live_workers = max(1, live_workers)
        fleet = dict(zip(load[::2], load[1::2], strict=True))
        self.others = {
            number: others
            for number, total in fleet.items()
            if (others := total - self.held.get(number, 0) + self.deltas.get(number, 0)) > 0
        }


def grant(admit: Admit, number: int, outcome: Outcome, *, degraded: bool) -> None:
    granted, admit.granted = admit.granted, None
    assert granted is not None
    granted(number, outcome, degraded)


def _flat(counts: dict[int, int]) -> list[int]:
    return [value for item in counts.items() for value in item]

"""The sequences that generate: each gets one token a step, all in lockstep.

So a sequence is described by the tick at which it joined, and what a step needs of all of them is kept as sums. A run
of steps costs the same as one.
"""

from heapq import heappop, heappush

from simulator.calibration import BLOCK_TOKENS
from simulator.request import Request, Stage


class Lockstep:
    """Owner of the ``joined`` and ``join`` of requests in Stage.GENERATE."""

    def __init__(self) -> None:
        self.tick = 0
        """Steps so far."""
        self.size = 0
        """Sequences."""
        self.context = 0
        """Tokens of KV that they read in the next step, all together."""
        self._phases = [0] * BLOCK_TOKENS
        """How many sequences have only full blocks, and so need a new one, before the step at -tick modulo 16."""
        self._finishes: list[tuple[int, int, Request]] = []
        """(tick, join, request): when an answer is complete. Stale where the request left or joined again since."""
        self._joins = 0

    def join(self, request: Request) -> None:
        """Add a request whose next token but one is to be generated; ``target`` tokens are in its KV."""
        self._joins += 1
        request.joined = self.tick
        request.join = self._joins
        self.size += 1
        self.context += request.target
        self._phases[(request.target - self.tick) % BLOCK_TOKENS] += 1
        heappush(self._finishes, (self.tick + request.output_tokens - request.generated, self._joins, request))

    def leave(self, request: Request) -> int:
        """Remove a request; return how many of its tokens are in the KV cache."""
        stored = self.stored(request)
        self.size -= 1
        self.context -= stored
        self._phases[(request.target - request.joined) % BLOCK_TOKENS] -= 1
        return stored

    def stored(self, request: Request) -> int:
        """Return how many tokens of a request are in the KV cache: all but the one generated last."""
        return request.target + self.tick - request.joined

    def generated(self, request: Request) -> int:
        """Return how many tokens of its answer a request has."""
        return request.generated + self.tick - request.joined

    def run(self, steps: int) -> None:
        """Let ``steps`` steps happen, no more than steps_to_finish()."""
        self.tick += steps
        self.context += steps * self.size

    def demand(self, step: int = 0) -> int:
        """Return the blocks that sequences start in the next step, or ``step`` steps after it."""
        return self._phases[-(self.tick + step) % BLOCK_TOKENS]

    def demand_of(self, first: int, last: int) -> int:
        """Return the sum of demand() over the steps from ``first`` to ``last``, both included."""
        rounds, rest = divmod(max(last - first + 1, 0), BLOCK_TOKENS)
        # The phases of these steps lie side by side, going down from the first step's and round at 0.
        top = -(self.tick + first) % BLOCK_TOKENS
        bottom = top - rest + 1
        if bottom >= 0:
            return rounds * self.size + sum(self._phases[bottom : top + 1])
        return rounds * self.size + sum(self._phases[: top + 1]) + sum(self._phases[bottom:])

    def steps_to_finish(self) -> int:
        """Return after how many steps the next answer is complete. There must be a sequence."""
        while _is_stale(self._finishes[0]):
            heappop(self._finishes)
        return self._finishes[0][0] - self.tick

    def finished(self) -> list[Request]:
        """Return the sequences whose answer is complete, in the order they joined. They are still members."""
        complete = []
        while self._finishes and self._finishes[0][0] <= self.tick:
            entry = heappop(self._finishes)
            if not _is_stale(entry):
                complete.append(entry[2])
        return complete


def _is_stale(entry: tuple[int, int, Request]) -> bool:
    _, join, request = entry
    return request.stage is not Stage.GENERATE or request.join != join

"""A run of engine steps with the same composition."""

from bisect import bisect_right

from simulator.request import Request


class Batch:
    """``steps`` steps from ``start`` on; the first takes ``seconds``, each next one ``growth`` more.

    The end of a step is computed from the start of the run, so it does not depend on how often somebody looks.
    """

    __slots__ = ("chunks", "done", "growth", "seconds", "start", "steps")

    def __init__(
        self, start: float, seconds: float, growth: float, steps: int, chunks: list[tuple[Request, int]]
    ) -> None:
        self.start = start
        self.seconds = seconds
        self.growth = growth
        self.steps = steps
        self.chunks = chunks
        """Prompts in this batch and the tokens of each that it computes. Not empty: then it has one step."""
        self.done = 0

    def time(self, steps: int) -> float:
        """Return when the first ``steps`` steps are over."""
        return self.start + steps * self.seconds + self.growth * (steps * (steps - 1) // 2)

    def steps_by(self, now: float) -> int:
        """Return how many steps are over at ``now``, which is not before the end of the last known one."""
        if self.time(self.steps) <= now:
            return self.steps
        return self.done + bisect_right(range(self.done + 1, self.steps), now, key=self.time)

    def cut(self) -> None:
        """End the run with the step under way: the composition changes."""
        self.steps = min(self.steps, self.done + 1)
